"""Our histograms say what prometheus_client's own say of the same values, to the letter."""

from __future__ import annotations

from threading import Thread

import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest

from cenote.server.histograms import Histogram

BOUNDS = (0.001, 0.25, 1, 64, 131072)
VALUES = (0.0, 0.001, 0.0011, 1.0, 63.9, 1e9, 0.3)


@pytest.fixture(autouse=True)
def as_metrics_are() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]


def test_a_single_series() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    reference = prometheus_client.Histogram("a_seconds", "Text.", buckets=BOUNDS, registry=theirs)
    series = Histogram("a_seconds", "Text.", BOUNDS, ours).labels()
    assert generate_latest(ours) == generate_latest(theirs)
    for value in VALUES:
        reference.observe(value)
        series.observe(value)
    assert generate_latest(ours) == generate_latest(theirs)


def test_a_series_for_each_value_of_a_label() -> None:
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    reference = prometheus_client.Histogram(
        "b", "Text.", ["route"], buckets=BOUNDS, registry=theirs
    )
    histogram = Histogram("b", "Text.", BOUNDS, ours, "route")
    assert generate_latest(ours) == generate_latest(theirs)
    for index, value in enumerate(VALUES):
        route = f"/{index % 2}"
        reference.labels(route).observe(value)
        histogram.labels(route).observe(value)
    assert generate_latest(ours) == generate_latest(theirs)


def test_no_value_is_lost_between_threads() -> None:
    series = Histogram("c", "Text.", (1.0,), CollectorRegistry()).labels()

    def observe() -> None:
        for _ in range(20_000):
            series.observe(0.5)

    threads = [Thread(target=observe) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert series.read() == ([80_000, 80_000], 40_000.0)
