"""What both clients do before and after the engine: the queue's bound, order, errors, cancelling.

A fake transport stands for the engine: messages are collected, answers are given by hand.
"""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from cenote.config.engine import EngineConfig
from cenote.engine.awaiting import FutureBridge
from cenote.engine.base_client import BaseClient
from cenote.engine.messages import (
    AbortRequests,
    AddRequests,
    ControlReply,
    ControlRequest,
    EngineOutput,
    EngineOutputs,
    EnginePrompt,
    EngineRequest,
    StepStats,
    ToEngine,
)
from cenote.errors import EngineUnavailable, InvalidRequest, Overloaded, UnsupportedTask
from cenote.params import PoolingParams


class FakeTransport(BaseClient):
    def __init__(self, **settings: int) -> None:
        super().__init__(EngineConfig(**settings))  # type: ignore[arg-type]
        self.sent: list[ToEngine] = []
        self.gone = False
        self._unavailable = None

    def close(self) -> None:
        """Nothing runs."""

    def _send(self, message: ToEngine) -> None:
        if self.gone:
            raise BrokenPipeError
        self.sent.append(message)

    def ids(self, message: int = -1) -> list[str]:
        sent = self.sent[message]
        assert isinstance(sent, AddRequests)
        return [one.request_id for one in sent.requests]

    def answer(self, *ids: str, stats: StepStats | None = None) -> None:
        self._receive(EngineOutputs([output(one) for one in ids], stats))

    def fail(self, engine_id: str, code: str, message: str) -> None:
        failed = EngineOutput(engine_id, error_code=code, error_message=message)
        self._receive(EngineOutputs([failed]))


def output(engine_id: str) -> EngineOutput:
    return EngineOutput(engine_id, np.ones(2, np.float32).tobytes(), shape=(2,))


def request(name: str, tokens: int = 2) -> EngineRequest:
    return EngineRequest(name, EnginePrompt([1] * tokens), PoolingParams("embed"))


@pytest.fixture
def client() -> FakeTransport:
    return FakeTransport()


def test_outputs_come_in_the_order_of_the_requests(client: FakeTransport) -> None:
    future = client.submit([request(name) for name in "abc"])
    for one in reversed(client.ids()):
        assert not future.done()
        client.answer(one)
    assert [one.request_id for one in future.result(0)] == ["a", "b", "c"]


def test_callers_may_repeat_their_ids(client: FakeTransport) -> None:
    futures = [client.submit([request("same"), request("same")]) for _ in range(2)]
    engine_ids = client.ids(0) + client.ids(1)
    assert len(set(engine_ids)) == 4
    client.answer(*engine_ids)
    assert [len(one.result(0)) for one in futures] == [2, 2]


def test_nothing_to_run_is_answered_at_once(client: FakeTransport) -> None:
    assert client.submit([]).result(0) == []
    assert client.sent == []


def test_the_first_error_fails_the_submission_and_aborts_the_rest(client: FakeTransport) -> None:
    future = client.submit([request(name) for name in "abc"])
    a, b, c = client.ids()
    client.answer(a)
    client.fail(b, "unsupported_task", "Unsupported task: 'x'")
    assert isinstance(future.exception(0), UnsupportedTask)
    assert client.sent[-1] == AbortRequests([c])
    client.answer(c)  # too late: nobody waits


def test_cancelling_aborts_what_was_not_answered(client: FakeTransport) -> None:
    future = client.submit([request("a"), request("b")])
    a, b = client.ids()
    client.answer(a)
    assert future.cancel()
    assert client.sent[-1] == AbortRequests([b])
    client.answer(b)
    assert client.stats.waiting == 0


@pytest.mark.parametrize(
    ("settings", "what"),
    [({"max_waiting_requests": 3}, "prompts"), ({"max_waiting_tokens": 5}, "tokens")],
)
def test_a_full_queue_refuses_before_it_enqueues(settings: dict[str, int], what: str) -> None:
    client = FakeTransport(**settings)
    future = client.submit([request("a"), request("b")])
    with pytest.raises(Overloaded, match=what) as caught:
        client.submit([request("c"), request("d")])
    assert caught.value.retry_after >= 1
    assert len(client.sent) == 1
    client.answer(*client.ids())
    assert len(future.result(0)) == 2
    client.submit([request("c"), request("d")])


def test_a_cancelled_submission_frees_its_place() -> None:
    client = FakeTransport(max_waiting_requests=2)
    client.submit([request("a"), request("b")]).cancel()
    client.submit([request("c"), request("d")])


def test_one_submission_larger_than_the_queue_is_taken_when_nothing_waits() -> None:
    client = FakeTransport(max_waiting_requests=2)
    client.submit([request(name) for name in "abc"])
    with pytest.raises(Overloaded):
        client.submit([request("d")])


def test_retry_after_follows_the_measured_rate() -> None:
    client = FakeTransport(max_waiting_tokens=1000)
    client.submit([request("a", 1000)])
    for _ in range(200):
        client.answer(stats=StepStats(batch_tokens=100, step_time=1.0))
    with pytest.raises(Overloaded) as caught:
        client.submit([request("b")])
    assert 9 <= caught.value.retry_after <= 11


def test_every_step_is_told_to_listeners_and_one_that_fails_harms_nobody(
    client: FakeTransport,
) -> None:
    seen: list[int] = []

    def bad(stats: StepStats) -> None:
        raise RuntimeError

    client.on_step(bad)
    client.on_step(lambda stats: seen.append(stats.batch_tokens))
    client.submit([request("a")])
    client._receive(EngineOutputs([], StepStats(running=1, waiting=4, batch_tokens=7)))
    assert seen == [7]
    assert client.stats.waiting == 4
    client.answer(*client.ids())
    assert (client.stats.running, client.stats.waiting, client.stats.batch_tokens) == (0, 0, 7)


def test_an_engine_that_is_gone_is_unavailable_and_leaves_nothing_pending(
    client: FakeTransport,
) -> None:
    client.gone = True
    with pytest.raises(EngineUnavailable):
        client.submit([request("a")])
    with pytest.raises(EngineUnavailable):
        client.control("stats")
    assert len(client._pending) == 0
    assert client._calls == {}


def test_what_no_message_can_carry_is_refused(
    client: FakeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(message: ToEngine) -> None:
        raise TypeError("Encoding objects of type X is unsupported")

    monkeypatch.setattr(client, "_send", send)
    with pytest.raises(InvalidRequest, match="type X"):
        client.submit([request("a")])
    assert len(client._pending) == 0


def test_control_calls_are_answered_by_id(client: FakeTransport) -> None:
    first, second = client.control("stats"), client.control("explode", fast=True)
    one, two = client.sent
    assert isinstance(one, ControlRequest)
    assert isinstance(two, ControlRequest)
    assert two.args == {"fast": True}
    client._receive(ControlReply(two.call_id, error_code="invalid_request", error_message="no"))
    client._receive(ControlReply(one.call_id, {"running": 1}))
    assert first.result(0) == {"running": 1}
    assert isinstance(second.exception(0), InvalidRequest)


def test_an_answered_future_is_freed_without_the_collector(client: FakeTransport) -> None:
    future = client.submit([request("a")])
    client.answer(*client.ids())
    watched = weakref.ref(future)
    gc.disable()
    try:
        del future
        assert watched() is None
    finally:
        gc.enable()


async def test_awaiting_gives_results_errors_and_cancels(client: FakeTransport) -> None:
    import asyncio

    bridge = FutureBridge(asyncio.get_running_loop())
    first, second, third = (client.submit([request(name)]) for name in "abc")
    tasks = [asyncio.create_task(bridge.wait(one)) for one in (first, second, third)]
    await asyncio.sleep(0)
    (a,), (b,), (c,) = client.ids(0), client.ids(1), client.ids(2)
    client.answer(a)
    client.fail(b, "invalid_request", "no")
    tasks[2].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [one.request_id for one in results[0]] == ["a"]
    assert isinstance(results[1], InvalidRequest)
    assert isinstance(results[2], asyncio.CancelledError)
    assert client.sent[-1] == AbortRequests([c])
