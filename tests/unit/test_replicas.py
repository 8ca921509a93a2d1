"""Several engines behind one client: who gets what, order, errors, cancelling, starting."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM
from cenote.config.engine import EngineConfig
from cenote.config.profile import usable_cores
from cenote.engine.messages import (
    EngineOutput,
    EnginePrompt,
    EngineReady,
    EngineRequest,
    StepStats,
)
from cenote.engine.placement import share_cores
from cenote.engine.replicas import ReplicatedClient, split, start_replicas
from cenote.errors import EngineUnavailable, InvalidRequest, Overloaded
from cenote.params import LateInteractionParams, PoolingParams


class FakeEngine:
    """Keeps its futures until they are answered by hand."""

    restarts = 1

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.is_alive = True
        self.refuse = False
        self.closed = False
        self.stats = StepStats(running=1, waiting=2)
        self.ready = EngineReady([], 0, 0, "", "", "")
        self.work: list[tuple[list[EngineRequest], Future[list[EngineOutput]]]] = []

    def on_step(self, listener: Any) -> None:
        listener(self.stats)

    def submit(self, requests: list[EngineRequest]) -> Future[list[EngineOutput]]:
        if self.refuse:
            raise Overloaded("full", retry_after=1)
        future: Future[list[EngineOutput]] = Future()
        self.work.append((requests, future))
        return future

    def answer(self) -> None:
        for requests, future in self.work:
            if future.set_running_or_notify_cancel():
                future.set_result([EngineOutput(one.request_id) for one in requests])

    def control(self, method: str, **args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if method == "bad":
            future.set_exception(InvalidRequest("bad", param="method"))
        else:
            future.set_result(self.name)
        return future

    def close(self) -> None:
        self.closed = True

    @property
    def ids(self) -> list[str]:
        return [one.request_id for requests, _ in self.work for one in requests]


def request(name: str, length: int = 4, part: LateInteractionParams | None = None) -> EngineRequest:
    params = PoolingParams("token_embed" if part else "embed", late_interaction=part)
    return EngineRequest(name, EnginePrompt([len(name)] * length), params)


def group(key: str, documents: int) -> list[EngineRequest]:
    query = request(key, 5, LateInteractionParams("cache_query", key, documents))
    part = LateInteractionParams("score_doc", key)
    return [query, *(request(f"{key}{i}", 7, part) for i in range(documents))]


@pytest.fixture
def engines() -> list[FakeEngine]:
    return [FakeEngine("a"), FakeEngine("b")]


def test_a_submission_is_spread_by_tokens_and_its_outputs_keep_their_order(
    engines: list[FakeEngine],
) -> None:
    client = ReplicatedClient(engines)
    names = [f"r{i}" for i in range(6)]
    future = client.submit([request(name) for name in names])
    assert [len(engine.ids) for engine in engines] == [3, 3]
    engines[1].answer()
    assert not future.done()
    engines[0].answer()
    assert [one.request_id for one in future.result(1)] == names
    client.submit([request("long", 100)])
    client.submit([request("x"), request("y")])
    assert {"x", "y"} <= set(engines[0].ids) or {"x", "y"} <= set(engines[1].ids)


def test_score_groups_stay_whole_and_a_query_goes_where_it_went(engines: list[FakeEngine]) -> None:
    client = ReplicatedClient(engines)
    for _ in range(3):
        client.submit(group("key", 5))
    assert sorted(len(engine.work) for engine in engines) == [0, 3]
    assert [len(part.requests) for part in split([*group("k", 2), request("r")])] == [3, 1]


def test_the_first_error_fails_all_and_cancels_the_others(engines: list[FakeEngine]) -> None:
    client = ReplicatedClient(engines)
    future = client.submit([request("one"), request("two")])
    engines[0].work[0][1].set_exception(EngineUnavailable("dead"))
    with pytest.raises(EngineUnavailable):
        future.result(1)
    assert engines[1].work[0][1].cancelled()


def test_cancelling_cancels_every_part_and_a_refusal_leaves_none(engines: list[FakeEngine]) -> None:
    client = ReplicatedClient(engines)
    client.submit([request("one"), request("two")]).cancel()
    assert all(engine.work[0][1].cancelled() for engine in engines)
    engines[1].refuse = True
    with pytest.raises(Overloaded):
        client.submit([request("three"), request("four")])
    assert engines[0].work[1][1].cancelled()
    assert client.submit([]).result(1) == []
    assert client._waiting == [0, 0]


def test_work_goes_round_a_dead_engine(engines: list[FakeEngine]) -> None:
    client = ReplicatedClient(engines)
    engines[0].is_alive = False
    assert client.is_alive
    client.submit([request("one"), request("two")])
    assert engines[1].ids == ["one", "two"]


def test_admin_calls_and_records_are_of_all(engines: list[FakeEngine]) -> None:
    client = ReplicatedClient(engines)
    assert client.control("stats").result(1) == "a"
    with pytest.raises(InvalidRequest):
        client.control("bad").result(1)
    assert (client.stats.running, client.stats.waiting, client.restarts) == (2, 4, 2)
    seen: list[StepStats] = []
    client.on_step(seen.append)
    assert len(seen) == 2
    client.close()
    assert all(engine.closed for engine in engines)


def test_replicas_share_threads_and_none_stays_where_one_cannot_start() -> None:
    made: list[FakeEngine] = []
    lock = threading.Lock()
    config = EngineConfig(replicas=2, threads=5, max_waiting_requests=9)
    configs: list[EngineConfig] = []
    placed: list[frozenset[int]] = []

    def start(share: EngineConfig, cores: frozenset[int]) -> FakeEngine:
        with lock:
            configs.append(share)
            placed.append(cores)
            made.append(FakeEngine())
            return made[-1]

    start_replicas(config, start)
    assert [(one.threads, one.max_waiting_requests, one.replicas) for one in configs] == [
        (2, 5, 1)
    ] * 2

    assert sorted(placed, key=sorted) == sorted(share_cores(2, usable_cores()), key=sorted)

    def fail_second(share: EngineConfig, cores: frozenset[int]) -> FakeEngine:
        with lock:
            if len(made) == 3:
                raise EngineUnavailable("no")
            made.append(FakeEngine())
            return made[-1]

    with pytest.raises(EngineUnavailable):
        start_replicas(config, fail_second)
    assert made[2].closed


def test_two_real_replicas_give_what_one_engine_gives(tiny_bert: Path) -> None:
    texts = ["a", "two words", "three words here", "and yet another text"]
    settings = {"dtype": "float32", "threads": 1, "profile": False}
    with LLM(str(tiny_bert), **settings) as llm:
        alone = [item.embedding for item in llm.embed(texts)]
    with LLM(str(tiny_bert), replicas=2, **settings) as llm:
        spread = [item.embedding for item in llm.embed(texts)]
    np.testing.assert_allclose(np.stack(spread), np.stack(alone), atol=1e-6)
