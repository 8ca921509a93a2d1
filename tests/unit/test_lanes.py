"""Steps side by side: the same results, really at the same time, and errors, documents, new weights
and aborted work as without lanes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cenote.config.engine import EngineConfig
from cenote.engine.core import EngineCore
from cenote.engine.flights import Flight
from cenote.engine.in_process import InProcessClient
from cenote.engine.messages import EngineOutput, EnginePrompt, EngineRequest
from cenote.engine.pace import SHARE_TOKENS
from cenote.errors import InvalidRequest
from cenote.params import LateInteractionParams, PoolingParams
from cenote.runner.model_runner import ModelRunner, StepWork

pytest.importorskip("cenote._native")

EMBED = PoolingParams("embed")
TIMEOUT = 20.0


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def new_core(folder: Path, lanes: int = 2) -> EngineCore:
    return EngineCore(
        EngineConfig(model=str(folder), dtype="float32", threads=2, lanes=lanes, profile=False)
    )


def prompts(count: int, length: int = 60) -> list[EngineRequest]:
    return [
        EngineRequest(
            str(n), EnginePrompt([101, *range(2000 + n, 2000 + n + length - n % 7), 102]), EMBED
        )
        for n in range(count)
    ]


def late(key: str, query: list[int], documents: list[list[int]]) -> list[EngineRequest]:
    asks = LateInteractionParams("cache_query", key, len(documents))
    scores = LateInteractionParams("score_doc", key)
    return [
        EngineRequest(
            key,
            EnginePrompt(query),
            PoolingParams("token_embed", input_type="query", late_interaction=asks),
        )
    ] + [
        EngineRequest(
            f"{key}.{n}",
            EnginePrompt(ids),
            PoolingParams("token_embed", input_type="document", late_interaction=scores),
        )
        for n, ids in enumerate(documents)
    ]


def run(core: EngineCore) -> dict[str, EngineOutput]:
    outputs = {}
    while core.has_work:
        outputs.update({one.request_id: one for one in core.step().outputs})
    assert core.runner.num_entries == 0
    return outputs


def instead_of_forward(
    core: EngineCore, monkeypatch: pytest.MonkeyPatch, before: Callable[[StepWork], None]
) -> None:
    assert isinstance(core.runner, ModelRunner)
    forward = core.runner.forward

    def changed(work: StepWork) -> None:
        before(work)
        forward(work)

    monkeypatch.setattr(core.runner, "forward", changed)


def names(work: StepWork) -> set[str]:
    return {request.request_id for request in work.to_run}


def test_results_are_those_of_one_step_at_a_time(tiny_bert: Path) -> None:
    apart, together = new_core(tiny_bert, 1), new_core(tiny_bert, 2)
    for core in (apart, together):
        core.add(prompts(40))
    expected, found = run(apart), run(together)
    assert found.keys() == expected.keys()
    for name, output in found.items():
        np.testing.assert_allclose(output.array(), expected[name].array(), atol=1e-6)


def test_two_steps_run_at_the_same_time(tiny_bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = new_core(tiny_bert)
    both, have_met = threading.Barrier(2), threading.Event()

    def meet(work: StepWork) -> None:
        if not have_met.is_set():
            both.wait(TIMEOUT)
            have_met.set()

    instead_of_forward(core, monkeypatch, meet)
    core.add(prompts(2 * SHARE_TOKENS // 60 + 2))
    outputs = run(core)
    assert have_met.is_set()
    assert all(output.error_code is None for output in outputs.values())


def test_a_step_that_is_over_is_forgotten_at_once(tiny_colbert: Path) -> None:
    core = new_core(tiny_colbert)
    gc.collect()
    gc.disable()  # which the engine's processes let run rarely
    try:
        for key in ("a", "b", "c"):
            core.add(
                late(key, [101, 2000, 102], [[101, *range(2000, 2000 + n)] for n in range(60)])
            )
        assert all(output.error_code is None for output in run(core).values())
        assert not [one for one in gc.get_objects() if type(one) in (Flight, StepWork)]
    finally:
        gc.enable()


def test_few_tokens_are_not_divided(tiny_bert: Path) -> None:
    core = new_core(tiny_bert)
    core.add(prompts(3))
    core.launch()
    assert len(core.flights) == 1
    assert len(run(core)) == 3


def query(name: str) -> EngineRequest:
    return EngineRequest(name, EnginePrompt([101, 2000 + len(name), 102]), EMBED)


def held(core: EngineCore, monkeypatch: pytest.MonkeyPatch, *, but: set[str]) -> threading.Event:
    """Steps without any of the requests `but` don't run before the event is set."""
    goes_on = threading.Event()

    def wait(work: StepWork) -> None:
        if not names(work) & but:
            assert goes_on.wait(TIMEOUT)

    instead_of_forward(core, monkeypatch, wait)
    return goes_on


def test_a_query_goes_ahead_of_bulk_work_under_way(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = new_core(tiny_bert)
    goes_on = held(core, monkeypatch, but={"query"})
    core.add(prompts(60))
    core.launch()
    assert len(core.flights) == 2
    core.add([query("query")])
    assert [output.request_id for output in core.step().outputs] == ["query"]
    assert len(core.flights) == 2  # nothing of the bulk work has ended, and nothing was lost
    goes_on.set()
    assert len(run(core)) == 60


def test_a_query_passes_bulk_work_that_began_long_ago(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = new_core(tiny_bert)
    goes_on = held(core, monkeypatch, but={"query"})
    core.add(prompts(8, length=100))
    core.launch()
    begun = set(core.scheduler.running)
    core.abort([str(n) for n in range(8) if str(n) not in begun])  # nothing of it is left to wait
    core.add([query("query")])
    assert [output.request_id for output in core.step().outputs] == ["query"]
    goes_on.set()
    assert run(core).keys() == begun


def test_queries_that_never_end_leave_room_for_bulk_work(tiny_bert: Path) -> None:
    core = new_core(tiny_bert)
    core.add(prompts(200))
    core.launch()
    left, asked, until = 200, 0, time.monotonic() + TIMEOUT
    while left:
        asked += 1
        assert time.monotonic() < until
        core.add([query("q" * asked)])
        left -= sum(output.request_id.isdigit() for output in core.step().outputs)
    run(core)
    assert not core.has_work


def test_a_small_rerank_goes_ahead_as_a_whole(
    tiny_colbert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = new_core(tiny_colbert)
    goes_on = held(core, monkeypatch, but={"small", "small.0"})
    core.add(late("large", [101, 2000, 102], [[101, *range(2000, 2000 + n)] for n in range(60)]))
    core.launch()
    core.add(late("small", [101, 2001, 102], [[101, 2002, 2003]]))
    answered: list[str] = []
    while "small.0" not in answered:
        answered += [output.request_id for output in core.step().outputs]
    assert answered == ["small", "small.0"]
    goes_on.set()
    run(core)
    assert not core.has_work


def test_a_request_that_raises_on_a_lane_fails_alone(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = new_core(tiny_bert)

    def poisoned(work: StepWork) -> None:
        if "7" in names(work):
            raise RuntimeError("boom")

    instead_of_forward(core, monkeypatch, poisoned)
    core.add(prompts(30))
    outputs = run(core)
    assert "boom" in str(outputs["7"].error_message)
    assert [name for name, one in outputs.items() if one.error_code is not None] == ["7"]


def test_documents_end_after_the_step_with_their_query(
    tiny_colbert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [[101, *range(3000 + n, 3060 + n), 102] for n in range(20)]
    expected = new_core(tiny_colbert, 1)
    expected.add(late("q", [101, 2000, 2001, 102], documents))
    core = new_core(tiny_colbert)
    others_are_done = threading.Event()

    def query_is_slow(work: StepWork) -> None:
        if "q" in names(work):
            assert others_are_done.wait(TIMEOUT)

    instead_of_forward(core, monkeypatch, query_is_slow)
    core.add(late("q", [101, 2000, 2001, 102], documents))
    core.launch()
    assert len(core.flights) == 2
    core.flights._flying[1].forward.result(TIMEOUT)
    assert not core.flights.has_landed
    others_are_done.set()
    found = run(core)
    for name, output in run(expected).items():
        assert found[name].error_code is None
        np.testing.assert_allclose(found[name].array(), output.array(), rtol=1e-5)


def test_new_weights_wait_for_steps_whose_clients_left(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = new_core(tiny_bert)
    may_end = threading.Event()

    def wait_for_leave(work: StepWork) -> None:
        may_end.wait(TIMEOUT)

    instead_of_forward(core, monkeypatch, wait_for_leave)
    core.add(prompts(30))
    core.launch()
    core.abort([str(n) for n in range(30)])
    assert core.has_work
    assert not core.ready_for("reload_weights")
    may_end.set()
    while not core.ready_for("reload_weights"):
        assert core.step().outputs == []
    core.control("reload_weights", {})
    core.add(prompts(1))
    assert run(core)["0"].error_code is None


def test_a_closed_engine_answers_what_is_under_way(tiny_bert: Path) -> None:
    client = InProcessClient(EngineConfig(model=str(tiny_bert), threads=2, lanes=2, profile=False))
    future = client.submit(prompts(40))
    client.close()
    assert len(future.result(TIMEOUT)) == 40


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lanes": 3}, "at most 2"),
        ({"lanes": 2, "kernels": "torch"}, "the kernels are torch"),
        ({"lanes": -1}, "at least 0"),
    ],
)
def test_lanes_that_cannot_be(tiny_bert: Path, settings: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        EngineCore(EngineConfig(model=str(tiny_bert), threads=2, profile=False, **settings))  # type: ignore[arg-type]
    assert caught.value.param == "lanes"


@pytest.mark.parametrize(("lanes", "expected"), [(0, 2), (1, 1), (2, 2)])
def test_a_lane_for_each_thread_unless_told(tiny_bert: Path, lanes: int, expected: int) -> None:
    assert new_core(tiny_bert, lanes).runner.ready_info.lanes == expected
