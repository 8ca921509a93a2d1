"""The scheduler: budgets, order, ageing, score groups, shared runs, aborts, preemption, parking."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from cenote.engine.messages import EnginePrompt, EngineRequest
from cenote.engine.pace import AGEING_SECONDS, LATELY_SECONDS, LEAST_TOKENS, STEP_SECONDS, Pace
from cenote.engine.request import RequestState
from cenote.engine.scheduler import Scheduler
from cenote.errors import CenoteError, InvalidRequest
from cenote.params import LateInteractionParams, PoolingParams
from cenote.step import PooledResult, ScheduledStep

EMBED = PoolingParams(task="embed")


def request(
    name: str,
    length: int = 4,
    *,
    priority: int = 0,
    at: float = 0.0,
    ids: list[int] | None = None,
    params: PoolingParams = EMBED,
    salt: str | None = None,
    adapter: str | None = None,
) -> EngineRequest:
    # Names make different prompts, so that only equal `ids` can share a run.
    tokens = ids or [crc32(name.encode()), *([1] * (length - 1))]
    prompt = EnginePrompt(tokens, cache_salt=salt)
    return EngineRequest(name, prompt, params, priority, at, adapter)


def group(key: str, documents: int, length: int = 4) -> list[EngineRequest]:
    """A query named `key` and its documents `key.0`, `key.1`…"""
    query = LateInteractionParams(mode="cache_query", query_key=key, query_uses=documents)
    document = LateInteractionParams(mode="score_doc", query_key=key)
    return [
        request(key, length, params=PoolingParams("token_embed", late_interaction=query)),
        *(
            request(
                f"{key}.{i}",
                length,
                params=PoolingParams("token_embed", late_interaction=document),
            )
            for i in range(documents)
        ),
    ]


def scheduler(tokens: int = 100, requests: int = 100) -> Scheduler:
    return Scheduler(tokens, requests)


def names(step: ScheduledStep) -> list[str]:
    return [one.request_id for one in step.requests]


def finish(made: Scheduler, step: ScheduledStep) -> list[str]:
    """Gives every request of a step a result; the ids of the waiters that get one."""
    results = [PooledResult(one.request_id, np.zeros(1, np.float32)) for one in step.requests]
    return [name for ended in made.update(results) for name in ended.request.waiters]


def run(made: Scheduler, now: float = 0.0) -> list[str]:
    step = made.schedule(now)
    finish(made, step)
    return names(step)


# --- budgets ------------------------------------------------------------------------------------


def test_a_step_keeps_the_token_budget() -> None:
    made = scheduler(tokens=10)
    made.add([request(name) for name in "abcd"], 0.0)
    assert [run(made), run(made), run(made)] == [["a", "b"], ["c", "d"], []]


def test_a_step_keeps_the_request_limit() -> None:
    made = scheduler(requests=3)
    made.add([request(name) for name in "abcd"], 0.0)
    assert [run(made), run(made)] == [["a", "b", "c"], ["d"]]


def test_a_prompt_longer_than_the_budget_runs_alone_and_whole() -> None:
    made = scheduler(tokens=10)
    made.add([request("long", 30), request("b")], 0.0)
    step = made.schedule(0.0)
    assert names(step) == ["long"]
    assert step.requests[0].is_last_chunk
    finish(made, step)
    assert run(made) == ["b"]


def test_a_shorter_prompt_fills_the_step_and_the_passed_over_one_is_next() -> None:
    made = scheduler(tokens=10)
    for name, length in (("a", 6), ("b", 8), ("c", 4)):
        made.add([request(name, length)], 0.0)
    assert [run(made), run(made)] == [["a", "c"], ["b"]]


# --- order --------------------------------------------------------------------------------------


def test_smaller_priority_first_then_arrival() -> None:
    made = scheduler(tokens=4)
    made.add([request("late", priority=1)], 0.0)
    made.add([request("second")], 1.0)
    made.add([request("first", priority=-1)], 2.0)
    assert [run(made), run(made), run(made)] == [["first"], ["second"], ["late"]]


def test_no_request_starves_under_a_stream_of_better_priority() -> None:
    made = scheduler(tokens=4)
    made.add([request("patient", priority=3)], 0.0)
    served = []
    for second in range(60):
        made.add([request(f"urgent-{second:02}")], float(second))
        served += run(made, float(second))
    position = served.index("patient")
    assert position <= 3 * AGEING_SECONDS + 1


def test_a_late_single_query_does_not_wait_behind_a_bulk_job() -> None:
    made = scheduler(tokens=40)
    made.add([request(f"bulk-{i:03}", ids=[i + 5, 1, 1, 1]) for i in range(500)], 0.0)
    run(made, 0.0)
    made.add([request("query")], 0.001)
    step = made.schedule(0.001)
    assert names(step) == ["query"]  # the bulk job goes on in the next step


def test_two_bulk_jobs_share_the_engine() -> None:
    made = scheduler(tokens=40)
    for job in "ab":
        made.add([request(f"{job}{i}", ids=[ord(job), i]) for i in range(100)], 0.0)
    first = run(made)
    assert {name[0] for name in first} == {"a", "b"}


# --- score groups -------------------------------------------------------------------------------


def test_a_query_is_ahead_of_its_documents_in_the_same_step() -> None:
    made = scheduler()
    made.add(group("q", 3), 0.0)
    assert run(made) == ["q", "q.0", "q.1", "q.2"]
    assert made.num_groups == 0


def test_documents_wait_while_their_query_has_no_place() -> None:
    made = scheduler(tokens=4)
    made.add([request("first")], 0.0)
    made.add(group("q", 2), 0.0)
    assert [run(made) for _ in range(4)] == [["first"], ["q"], ["q.0"], ["q.1"]]


def test_a_document_never_overtakes_its_query_even_if_it_would_fit() -> None:
    made = scheduler(tokens=10)
    made.add([request("first", 6)], 0.0)
    long_query, *documents = group("q", 2)
    long_query.prompt.token_ids = [1] * 8
    made.add([long_query, *documents], 0.0)
    assert [run(made), run(made), run(made)] == [["first"], ["q"], ["q.0", "q.1"]]


@pytest.mark.parametrize(
    ("members", "what"),
    [
        (group("q", 2)[1:], "no query came before"),
        (group("q", 2)[:2], "query_uses is 2"),
        (list(reversed(group("q", 1))), "no query came before"),
        ([*group("q", 1), request("z", params=group("q", 1)[0].params)], "already in use"),
        (group("", 1), "empty or already in use"),
    ],
)
def test_a_score_group_that_is_not_whole_is_refused(
    members: list[EngineRequest], what: str
) -> None:
    made = scheduler()
    with pytest.raises(InvalidRequest, match=what):
        made.add(members, 0.0)
    assert not made.has_work
    assert made.num_groups == 0


def test_documents_of_a_failed_query_fail_too() -> None:
    made = scheduler(tokens=4)
    made.add(group("q", 2), 0.0)
    step = made.schedule(0.0)
    assert names(step) == ["q"]
    ended = made.update([PooledResult("q", error=CenoteError("no"))])
    assert [one.request.request_id for one in ended] == ["q", "q.0", "q.1"]
    assert all(one.result.error is not None for one in ended)
    assert made.num_groups == 0
    assert made.schedule(0.0).finished_ids == {"q", "q.0", "q.1"}


def test_an_aborted_query_takes_its_documents_with_it() -> None:
    made = scheduler()
    made.add(group("q", 2), 0.0)
    made.abort(["q"])
    assert [one.request.request_id for one in made.take_failed()] == ["q.0", "q.1"]
    assert made.num_groups == 0
    assert not made.schedule(0.0).requests


def test_documents_aborted_before_their_query_ran_leave_the_others() -> None:
    made = scheduler()
    made.add(group("q", 3), 0.0)
    made.abort(["q.1"])
    step = made.schedule(0.0)
    assert names(step) == ["q", "q.0", "q.2"]
    assert step.finished_ids == {"q.1"}


# --- shared runs --------------------------------------------------------------------------------


def test_identical_waiting_inputs_share_one_run() -> None:
    made = scheduler()
    made.add([request("a", ids=[1, 2]), request("b", ids=[1, 2])], 0.0)
    made.add([request("c", ids=[1, 2])], 0.0)
    step = made.schedule(0.0)
    assert names(step) == ["a"]
    assert finish(made, step) == ["a", "b", "c"]
    assert made.shared_runs == 2


@pytest.mark.parametrize(
    "other",
    [
        request("b", ids=[1, 3]),
        request("b", ids=[1, 2], salt="pepper"),
        request("b", ids=[1, 2], adapter="lora"),
        request("b", ids=[1, 2], params=PoolingParams("embed", dimensions=8)),
        request("b", ids=[1, 2], params=EMBED.with_extra(compressed_token_type_ids=1)),
    ],
)
def test_inputs_that_differ_in_anything_run_apart(other: EngineRequest) -> None:
    made = scheduler()
    made.add([request("a", ids=[1, 2]), other], 0.0)
    assert run(made) == ["a", "b"]


def test_params_that_no_message_could_carry_just_do_not_share() -> None:
    made = scheduler()
    odd = EMBED.with_extra(callback=object())
    made.add([request("a", ids=[1], params=odd), request("b", ids=[1], params=odd)], 0.0)
    assert run(made) == ["a", "b"]


def test_late_interaction_prompts_never_share() -> None:
    made = scheduler()
    made.add(group("q", 1) + group("r", 1), 0.0)
    for one in made._waiting:
        one.token_ids[:] = [1, 2]
    assert len(run(made)) == 4


@pytest.mark.parametrize("gone", ["a", "b"])
def test_abort_of_one_sharer_leaves_the_other_its_result(gone: str) -> None:
    made = scheduler()
    made.add([request("a", ids=[1, 2]), request("b", ids=[1, 2])], 0.0)
    made.abort([gone])
    step = made.schedule(0.0)
    assert len(step.requests) == 1
    assert finish(made, step) == [{"a": "b", "b": "a"}[gone]]


def test_a_run_ends_when_all_sharers_are_gone() -> None:
    made = scheduler()
    made.add([request("a", ids=[1, 2]), request("b", ids=[1, 2])], 0.0)
    made.abort(["a", "b"])
    step = made.schedule(0.0)
    assert not step.requests
    assert step.finished_ids == {"a"}
    assert not made.has_work


def test_an_urgent_sharer_pulls_the_run_forward() -> None:
    made = scheduler(tokens=4)
    made.add([request("slow", priority=5, ids=[1, 2, 3, 4]), request("other")], 0.0)
    made.add([request("fast", priority=-5, ids=[1, 2, 3, 4])], 0.0)
    assert run(made) == ["slow"]


def test_a_running_input_is_not_joined() -> None:
    made = scheduler()
    made.add([request("a", ids=[1, 2])], 0.0)
    step = made.schedule(0.0)
    made.add([request("b", ids=[1, 2])], 0.0)
    assert finish(made, step) == ["a"]
    assert run(made) == ["b"]


# --- ends ---------------------------------------------------------------------------------------


def test_finished_ids_are_told_once_with_the_next_step() -> None:
    made = scheduler()
    made.add([request("a")], 0.0)
    run(made)
    assert made.has_work
    assert made.schedule(0.0).finished_ids == {"a"}
    assert not made.has_work
    assert made.schedule(0.0).finished_ids == set()


def test_results_of_a_request_aborted_while_it_ran_are_dropped() -> None:
    made = scheduler()
    made.add([request("a"), request("b")], 0.0)
    step = made.schedule(0.0)
    made.abort(["a"])
    assert finish(made, step) == ["b"]
    assert made.schedule(0.0).finished_ids == {"a", "b"}


def test_unknown_ids_may_be_aborted() -> None:
    made = scheduler()
    made.abort(["nobody"])
    assert not made.has_work


def test_an_id_in_use_is_refused() -> None:
    made = scheduler()
    made.add([request("a")], 0.0)
    with pytest.raises(InvalidRequest, match="in use"):
        made.add([request("a", ids=[9])], 0.0)


def test_mass_aborts_leave_nothing_behind() -> None:
    made = scheduler()
    made.add([request(str(i), ids=[i, 1]) for i in range(1000)], 0.0)
    made.abort([str(i) for i in range(1000)])
    assert sum(map(len, made._waiting._heaps.values())) <= 64
    assert made._waiting.num_tokens == 0
    assert not made._runs._by_input
    assert not made._runs


# --- preemption ---------------------------------------------------------------------------------


def test_a_preempted_request_runs_again_from_its_start() -> None:
    made = scheduler()
    made.add([request("a"), request("b")], 0.0)
    step = made.schedule(0.0)
    made.preempt(made.running["a"])
    assert finish(made, step) == ["b"]
    again = made.schedule(0.0)
    assert names(again) == ["a"]
    assert again.preempted_ids == {"a"}
    assert again.finished_ids == {"b"}
    assert again.requests[0].start == 0
    assert made.preemptions == 1


def test_a_preempted_query_holds_its_waiting_documents() -> None:
    made = scheduler(tokens=8)
    made.add(group("q", 3), 0.0)
    step = made.schedule(0.0)
    assert names(step) == ["q", "q.0"]
    for name in ("q", "q.0"):
        made.preempt(made.running[name])
    assert [run(made), run(made)] == [["q", "q.0"], ["q.1", "q.2"]]
    assert made.num_groups == 0


def test_a_preempted_request_may_be_aborted() -> None:
    made = scheduler()
    made.add([request("a")], 0.0)
    made.schedule(0.0)
    run_of_a = made.running["a"]
    made.preempt(run_of_a)
    made.abort(["a"])
    step = made.schedule(0.0)
    assert (step.finished_ids, step.preempted_ids, step.requests) == ({"a"}, {"a"}, [])
    assert run_of_a.state is RequestState.ABORTED


# --- parking ------------------------------------------------------------------------------------


def test_parked_only_submissions_that_have_begun_go_on() -> None:
    made = scheduler(tokens=4)
    made.add([request(name) for name in ("a", "b")], 0.0)
    made.add([request("other")], 0.0)
    first = run(made)
    made.park()
    made.add([request("new")], 0.0)
    rest = {"a", "b"} - set(first)
    assert run(made) == list(rest)
    assert run(made) == []
    assert not made.is_busy
    made.unpark()
    assert {*run(made), *run(made)} == {"other", "new"}


def test_a_submission_that_shares_a_run_with_a_begun_one_goes_on_too() -> None:
    made = scheduler(tokens=4)
    made.add([request("a"), request("b", ids=[1, 2, 3, 4])], 0.0)
    assert run(made) == ["a"]
    made.add([request("c", ids=[1, 2, 3, 4]), request("d")], 0.0)
    made.park()
    assert {*run(made), *run(made), *run(made)} == {"b", "d"}
    assert not made.is_busy


def test_new_requests_do_not_join_old_runs_while_parked() -> None:
    made = scheduler(tokens=4)
    made.add([request("a"), request("b", ids=[1, 2, 3, 4])], 0.0)
    run(made)
    made.park()
    made.add([request("c", ids=[1, 2, 3, 4])], 0.0)
    assert [run(made), run(made)] == [["b"], []]
    made.unpark()
    assert run(made) == ["c"]


def test_parked_requests_may_be_aborted() -> None:
    made = scheduler()
    made.add([request("a")], 0.0)
    made.add(group("q", 2), 0.0)
    made.park()
    assert made.num_waiting == 4
    made.abort(["a", "q", "q.0", "q.1"])
    assert made.num_waiting == 0
    made.unpark()
    assert not made.is_busy


# --- the length of steps ------------------------------------------------------------------------


def bulk(count: int = 40) -> list[EngineRequest]:
    return [request(f"bulk{i}", 64) for i in range(count)]


def busy(tokens: int = 1024) -> Scheduler:
    """An engine that needs a second for 1000 tokens, so that steps should be short."""
    return Scheduler(tokens, 100, pace=Pace(1e-3))


def test_bulk_work_alone_fills_whole_steps() -> None:
    made = busy()
    made.add(bulk(), 0.0)
    assert made.schedule(0.0).num_tokens == 1024


def test_a_query_runs_without_bulk_work_which_then_runs_in_short_steps_while_queries_come() -> None:
    made = busy()
    made.add(bulk(), 0.0)
    made.add([request("query"), request("query's other text")], 0.1)
    step = made.schedule(0.1)
    assert {"query", "query's other text"} <= set(names(step))
    assert step.num_tokens < LEAST_TOKENS
    finish(made, step)
    assert run_tokens(made, 0.2) == LEAST_TOKENS
    assert run_tokens(made, 0.2 + LATELY_SECONDS) == 1024


def test_where_steps_can_pause_bulk_work_has_whole_steps_beside_queries() -> None:
    made = Scheduler(1024, 100, pace=Pace(1e-3, can_pause=True))
    made.add(bulk(), 0.0)
    made.add([request("query")], 0.1)
    assert made.schedule(0.1, small_only=True).num_tokens == 4
    assert not made.waits(small=True)
    assert made.schedule(0.1).num_tokens == 1024


def test_small_requests_are_taken_past_bulk_work_that_is_due() -> None:
    made = busy()
    made.add(bulk(), 0.0)
    made.add([request("query"), request("second")], 5.0)
    made.add([request("third", priority=-1)], 6.0)
    assert names(made.schedule(9.0, small_only=True)) == ["third", "query", "second"]
    assert names(made.schedule(9.0, small_only=True)) == []
    assert made.waits(small=False)


def test_a_query_of_low_priority_passes_nobody() -> None:
    made = busy()
    made.add(bulk(), 0.0)
    made.add([request("query", priority=1)], 5.0)
    assert not made.waits(small=True)


def test_bulk_work_that_a_query_waits_for_as_well_is_small() -> None:
    made = busy()
    made.add(bulk(), 0.0)
    made.add([request("query", ids=bulk()[30].prompt.token_ids)], 0.1)
    assert made.waits(small=True)
    step = made.schedule(0.1, small_only=True)
    assert finish(made, step) == ["bulk30", "query"]


def run_tokens(made: Scheduler, now: float) -> int:
    step = made.schedule(now)
    finish(made, step)
    return step.num_tokens


def test_queries_that_are_due_fill_whole_steps() -> None:
    made = busy()
    for number in range(60):
        made.add([request(f"query{number}", 16)], 0.0)
    assert made.schedule(0.0).num_tokens == 60 * 16


def test_a_fast_engine_puts_more_into_a_short_step() -> None:
    made = Scheduler(1024, 100, pace=Pace(STEP_SECONDS / 600))
    made.add(bulk(), 0.0)
    made.add([request("query")], 0.0)
    made.schedule(0.0)
    assert 600 - 64 < made.schedule(0.0).num_tokens <= 600


def test_a_prompt_longer_than_a_short_step_runs_by_itself() -> None:
    made = busy()
    lengths = (16, 500, 16)
    made.add([request(f"bulk{i}", length) for i, length in enumerate(lengths)], 0.0)
    made.add([request("query")], 0.0)
    finish(made, made.schedule(0.0))
    assert run_tokens(made, 0.01) == 500
