"""The collector's settings while jobs run, and after."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from cenote import garbage


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(701, 11, 12)
    yield
    gc.set_threshold(*before)


def _fail() -> None:
    with garbage.rarely():
        assert gc.get_threshold() == (50_000, 11, 12)
        raise RuntimeError


def test_a_job_that_fails_gives_back_what_it_found() -> None:
    with pytest.raises(RuntimeError):
        _fail()
    assert gc.get_threshold() == (701, 11, 12)


def test_the_last_of_several_jobs_gives_it_back() -> None:
    first, second = garbage.rarely(), garbage.rarely()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == 50_000
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (701, 11, 12)


@pytest.mark.parametrize("own", [0, 90_000])
def test_who_looks_more_rarely_or_never_keeps_that(own: int) -> None:
    gc.set_threshold(own, 11, 12)
    with garbage.rarely():
        assert gc.get_threshold()[0] == own
