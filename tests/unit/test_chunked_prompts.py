"""The scheduler with a causal model: parts, blocks, prefixes, preemption, failed steps."""

from __future__ import annotations

import numpy as np
import pytest

from cenote.engine.chunked_prompts import ChunkedPrompts
from cenote.engine.messages import EnginePrompt, EngineRequest
from cenote.engine.scheduler import Scheduler
from cenote.errors import CenoteError, InvalidRequest
from cenote.params import PoolingParams, Task
from cenote.step import KVSpace, PooledResult, ScheduledStep

ALL: frozenset[Task] = frozenset({"embed"})


def made(
    tokens: int = 100, blocks: int = 100, *, last: frozenset[Task] = ALL, **space: bool
) -> tuple[Scheduler, ChunkedPrompts]:
    """A scheduler with blocks of 4 tokens."""
    prompts = ChunkedPrompts(KVSpace(blocks, 4, "m", last, **space))
    return Scheduler(tokens, 100, prompts), prompts


def request(
    name: str,
    ids: list[int],
    priority: int = 0,
    salt: str | None = None,
    adapter: str | None = None,
) -> EngineRequest:
    prompt = EnginePrompt(ids, cache_salt=salt)
    return EngineRequest(name, prompt, PoolingParams("embed"), priority, 0.0, adapter)


def ids(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def parts(step: ScheduledStep) -> list[tuple[str, int, int]]:
    return [(one.request_id, one.start, one.num_tokens) for one in step.requests]


def run(scheduler: Scheduler) -> list[tuple[str, int, int]]:
    """One step, in which complete prompts get a result."""
    step = scheduler.schedule(0.0)
    scheduler.update(
        PooledResult(one.request_id, np.zeros(1, np.float32))
        for one in step.requests
        if one.is_last_chunk
    )
    return parts(step)


def blocks_of(step: ScheduledStep, name: str) -> list[int]:
    found = next(one.block_ids for one in step.requests if one.request_id == name)
    assert found is not None
    return found


# --- parts --------------------------------------------------------------------------------------


def test_a_long_prompt_runs_in_parts_and_others_fill_what_is_left() -> None:
    scheduler, prompts = made(tokens=10)
    scheduler.add([request("long", ids(0, 23)), request("b", ids(100, 5))], 0.0)
    assert run(scheduler) == [("long", 0, 10)]
    assert run(scheduler) == [("long", 10, 10)]
    assert scheduler.num_waiting == 1
    assert run(scheduler) == [("long", 20, 3), ("b", 0, 5)]
    assert not scheduler.is_busy
    assert prompts.pool.num_used == 0


def test_blocks_grow_with_the_parts() -> None:
    scheduler, _ = made(tokens=6)
    scheduler.add([request("a", ids(0, 15))], 0.0)
    counts = [len(blocks_of(scheduler.schedule(0.0), "a")) for _ in range(3)]
    assert counts == [2, 3, 4]


def test_without_chunks_prompts_run_whole() -> None:
    scheduler, _ = made(tokens=10, chunked=False)
    scheduler.add([request("long", ids(0, 23))], 0.0)
    scheduler.add([request(name, ids(at, 6)) for name, at in (("b", 100), ("c", 200))], 0.0)
    scheduler.add([request("d", ids(300, 4))], 0.0)
    assert [run(scheduler) for _ in range(3)] == [
        [("long", 0, 23)],
        [("b", 0, 6), ("d", 0, 4)],
        [("c", 0, 6)],
    ]


def test_a_better_priority_overtakes_between_parts() -> None:
    scheduler, _ = made(tokens=10)
    scheduler.add([request("long", ids(0, 25))], 0.0)
    run(scheduler)
    scheduler.add([request("urgent", ids(100, 8), priority=-1)], 0.0)
    assert run(scheduler) == [("urgent", 0, 8), ("long", 10, 2)]
    assert scheduler.preemptions == 0


def test_what_has_begun_ends_before_a_quiet_moment() -> None:
    scheduler, _ = made(tokens=10)
    scheduler.add([request("long", ids(0, 25))], 0.0)
    scheduler.add([request("b", ids(100, 8))], 0.0)
    run(scheduler)
    scheduler.park()
    assert [run(scheduler), run(scheduler)] == [[("long", 10, 10)], [("long", 20, 5)]]
    assert not scheduler.is_busy
    scheduler.unpark()
    assert run(scheduler) == [("b", 0, 8)]


# --- prefixes -----------------------------------------------------------------------------------


def test_a_prefix_that_ran_before_is_not_run_again() -> None:
    scheduler, prompts = made()
    scheduler.add([request("a", ids(0, 10))], 0.0)
    run(scheduler)
    scheduler.add([request("b", [*ids(0, 9), 77])], 0.0)
    assert run(scheduler) == [("b", 8, 2)]
    assert (prompts.cache.hits, prompts.cache.queries) == (8, 20)


def test_at_least_one_token_runs() -> None:
    scheduler, _ = made()
    scheduler.add([request("a", ids(0, 8))], 0.0)
    run(scheduler)
    scheduler.add([request("b", ids(0, 8))], 0.0)
    assert run(scheduler) == [("b", 4, 4)]


def test_a_common_prefix_runs_once_within_one_step() -> None:
    scheduler, prompts = made()
    scheduler.add([request(name, [*ids(0, 12), at]) for at, name in enumerate("abc")], 0.0)
    step = scheduler.schedule(0.0)
    assert parts(step) == [("a", 0, 13), ("b", 12, 1), ("c", 12, 1)]
    assert blocks_of(step, "b")[:3] == blocks_of(step, "a")[:3]
    assert [prompts.pool.references(block) for block in blocks_of(step, "a")] == [3, 3, 3, 1]


@pytest.mark.parametrize("field", ["salt", "adapter"])
def test_another_salt_or_adapter_shares_no_block(field: str) -> None:
    scheduler, _ = made()
    same = ids(0, 13)
    owners = {"a": "x", "b": "y", "c": None}
    scheduler.add([request(name, same, **{field: of}) for name, of in owners.items()], 0.0)
    step = scheduler.schedule(0.0)
    assert [part[1] for part in parts(step)] == [0, 0, 0]
    taken = [block for name in owners for block in blocks_of(step, name)]
    assert len(set(taken)) == len(taken)


def test_the_same_salt_shares_and_no_salt_is_a_world_of_its_own() -> None:
    scheduler, _ = made()
    for name, salt in (("a", "x"), ("b", None)):
        scheduler.add([request(name, ids(0, 13), salt=salt)], 0.0)
        run(scheduler)
    kept: dict[str, list[int]] = {}
    for name, salt in (("c", "x"), ("d", None)):
        scheduler.add([request(name, [*ids(0, 12), 99], salt=salt)], 0.0)
        step = scheduler.schedule(0.0)
        assert parts(step) == [(name, 12, 1)]
        kept[name] = blocks_of(step, name)[:3]
    assert not set(kept["c"]) & set(kept["d"])


def test_a_task_that_needs_all_rows_reads_no_prefix_but_leaves_one() -> None:
    scheduler, prompts = made(last=frozenset())
    scheduler.add([request("a", ids(0, 13))], 0.0)
    run(scheduler)
    scheduler.add([request("b", [*ids(0, 12), 99])], 0.0)
    assert run(scheduler) == [("b", 0, 13)]
    assert prompts.cache.queries == 0
    assert len(prompts.cache) == 3


def test_without_prefix_caching_nothing_is_kept() -> None:
    scheduler, prompts = made(prefix_caching=False)
    scheduler.add([request("a", ids(0, 13))], 0.0)
    run(scheduler)
    assert (prompts.pool.num_kept, len(prompts.cache)) == (0, 0)
    scheduler.add([request("b", [*ids(0, 12), 99])], 0.0)
    assert run(scheduler) == [("b", 0, 13)]


def test_a_reset_forgets_what_is_kept_and_what_runs_goes_on() -> None:
    scheduler, prompts = made(tokens=8)
    scheduler.add([request("a", ids(0, 13))], 0.0)
    run(scheduler)
    prompts.reset()
    assert run(scheduler) == [("a", 8, 5)]
    scheduler.add([request("b", [*ids(0, 12), 99])], 0.0)
    assert run(scheduler) == [("b", 0, 8)]


def test_the_prefix_let_go_longest_ago_makes_room() -> None:
    scheduler, _ = made(blocks=6)
    for start in (0, 100):
        scheduler.add([request(f"r{start}", ids(start, 9))], 0.0)
        run(scheduler)
    scheduler.add([request("new", ids(200, 12))], 0.0)
    run(scheduler)
    scheduler.add([request("again", [*ids(100, 8), 7])], 0.0)
    assert run(scheduler) == [("again", 8, 1)]
    scheduler.add([request("first", [*ids(0, 8), 7])], 0.0)
    assert run(scheduler)[0][1] < 8


# --- too few blocks -----------------------------------------------------------------------------


def test_a_prompt_that_can_never_fit_is_refused_with_the_numbers() -> None:
    scheduler, _ = made(blocks=3)
    with pytest.raises(InvalidRequest, match=r"13 tokens need 4 blocks.*3 blocks.*12 tokens"):
        scheduler.add([request("a", ids(0, 13))], 0.0)
    assert not scheduler.is_busy
    scheduler.add([request("b", ids(0, 12))], 0.0)
    assert run(scheduler) == [("b", 0, 12)]


def test_who_gets_no_blocks_waits_until_there_are_some() -> None:
    scheduler, _ = made(blocks=4)
    scheduler.add([request("a", ids(0, 12))], 0.0)
    scheduler.add([request("b", ids(100, 12))], 0.0)
    assert [run(scheduler), run(scheduler)] == [[("a", 0, 12)], [("b", 0, 12)]]
    assert scheduler.preemptions == 0


def test_the_worst_rank_is_preempted_and_finds_its_prefix_again() -> None:
    scheduler, prompts = made(tokens=10, blocks=8)
    scheduler.add([request("long", ids(0, 30), priority=2)], 0.0)
    run(scheduler)
    scheduler.add([request("young", ids(100, 6), priority=3)], 0.0)
    scheduler.add([request("urgent", ids(200, 24))], 0.0)
    assert run(scheduler) == [("urgent", 0, 10)]
    assert scheduler.preemptions == 0
    assert run(scheduler) == [("urgent", 10, 10)]
    assert scheduler.preemptions == 0
    step = scheduler.schedule(0.0)
    assert parts(step)[0] == ("urgent", 20, 4)
    assert step.preempted_ids == {"long"}
    assert scheduler.preemptions == 1
    scheduler.update([PooledResult("urgent", np.zeros(1, np.float32))])
    done = [part for _ in range(9) if scheduler.is_busy for part in run(scheduler)]
    assert {name for name, _, _ in done} == {"long", "young"}
    assert prompts.pool.num_used == 0


def test_a_preempted_request_starts_at_what_is_still_kept_and_counts_no_saving() -> None:
    scheduler, prompts = made(tokens=8)
    scheduler.add([request("a", ids(0, 20))], 0.0)
    run(scheduler)
    scheduler.preempt(scheduler.running["a"])
    assert prompts.pool.num_used == 0
    step = scheduler.schedule(0.0)
    assert step.preempted_ids == {"a"}
    assert parts(step) == [("a", 8, 8)]
    assert scheduler.running["a"].num_cached_tokens == 0
    assert prompts.cache.hits == 0


def test_an_aborted_request_gives_its_blocks_back() -> None:
    scheduler, prompts = made(tokens=8)
    scheduler.add([request("a", ids(0, 20))], 0.0)
    run(scheduler)
    assert prompts.pool.num_used == 2
    scheduler.abort(["a"])
    assert prompts.pool.num_used == 0
    assert not scheduler.is_busy


# --- failed steps -------------------------------------------------------------------------------


def test_the_requests_of_a_failed_step_start_again_each_alone() -> None:
    scheduler, prompts = made()
    scheduler.add([request(name, [*ids(0, 12), at]) for at, name in enumerate("abc")], 0.0)
    assert scheduler.retry_alone(scheduler.schedule(0.0))
    assert (prompts.pool.num_used, prompts.pool.num_kept) == (0, 0)
    scheduler.add([request("d", ids(100, 4), priority=1)], 0.0)
    assert [run(scheduler) for _ in range(4)] == [
        [("a", 0, 13)],
        [("b", 12, 1)],
        [("c", 12, 1)],
        [("d", 0, 4)],
    ]


def test_what_a_failed_request_wrote_is_used_by_nobody() -> None:
    scheduler, prompts = made()
    scheduler.add([request("a", ids(0, 13))], 0.0)
    scheduler.schedule(0.0)
    scheduler.update([PooledResult("a", error=CenoteError("no"))])
    assert (prompts.pool.num_used, prompts.pool.num_kept, len(prompts.cache)) == (0, 0, 0)
