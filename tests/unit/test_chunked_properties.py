"""Random lives of causal prompts against a simple model: who holds a block, and what lies in it.

The model of the memory is a table: for each slot the salt and the tokens up to its own, which is
all that keys and values depend on. A step writes what it runs and then reads every context, so a
block that is given to two, freed too early or found by the wrong prompt shows at once.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from cenote.engine.chunked_prompts import ChunkedPrompts
from cenote.engine.messages import EnginePrompt, EngineRequest
from cenote.engine.scheduler import Scheduler
from cenote.errors import InvalidRequest
from cenote.params import PoolingParams
from cenote.step import KVSpace, PooledResult, ScheduledStep

SIZE = 3
# Few tokens, so that prompts often begin alike.
PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=20)
# `embed` reads prefixes, `classify` needs all rows.
TASKS = st.sampled_from(["embed", "embed", "classify"])

Memory = dict[int, tuple[str | None, tuple[int, ...]]]


class Lives(RuleBasedStateMachine):
    """`waited` are the requests without an answer; every answer is checked off once."""

    names = Bundle("names")

    @initialize(
        tokens=st.integers(1, 15),
        blocks=st.integers(2, 9),
        chunked=st.booleans(),
        caching=st.booleans(),
    )
    def begin(self, tokens: int, blocks: int, chunked: bool, caching: bool) -> None:
        space = KVSpace(blocks, SIZE, "m", frozenset({"embed"}), caching, chunked)
        self.prompts = ChunkedPrompts(space)
        self.scheduler = Scheduler(tokens, 4, self.prompts)
        self.memory: Memory = {}
        self.waited: dict[str, tuple[list[int], str | None]] = {}
        # How many tokens of each prompt have rows since its last start, to hold chunks together.
        self.rows: dict[str, int] = {}
        self.count = 0
        self.now = 0.0

    @rule(
        target=names,
        ids=PROMPTS,
        task=TASKS,
        salt=st.sampled_from([None, "a", "b"]),
        priority=st.integers(-1, 1),
    )
    def add(self, ids: list[int], task: str, salt: str | None, priority: int) -> object:
        self.count += 1
        self.now += 1.0
        name = f"r{self.count}"
        params = PoolingParams(task, extra_kwargs={"n": self.count})  # type: ignore[arg-type]
        made = EngineRequest(name, EnginePrompt(ids, cache_salt=salt), params, priority)
        fits = -(-len(ids) // SIZE) <= self.prompts.space.num_blocks
        try:
            self.scheduler.add([made], self.now)
        except InvalidRequest:
            assert not fits
            return multiple()
        assert fits
        self.waited[name] = (ids, salt)
        return name

    @rule()
    def step(self) -> None:
        step = self._step()
        self._finish(step)

    @rule()
    def failing_step(self) -> None:
        """Half of what the step should write is written, then it raises."""
        step = self.scheduler.schedule(self.now)
        self._forget(step)
        for one in step.requests[::2]:
            assert one.block_ids is not None
            for block in one.block_ids[one.start // SIZE :]:
                for slot in range(block * SIZE, (block + 1) * SIZE):
                    if self._owners(block) == 1:
                        self.memory[slot] = ("garbage", ())
        assert self.scheduler.retry_alone(step)

    @rule(name=names)
    def abort(self, name: str) -> None:
        self.scheduler.abort([name])
        self.waited.pop(name, None)

    @rule(name=names)
    def preempt(self, name: str) -> None:
        request = self.scheduler.running.get(name)
        if request is not None:
            self.scheduler.preempt(request)

    @rule()
    def reset(self) -> None:
        self.prompts.reset()
        assert self.prompts.pool.num_kept == 0

    @rule()
    def drain(self) -> None:
        # Every step runs a token at least; what runs again after a preemption is bounded too.
        for _ in range(10 + 40 * len(self.waited)):
            if not self.scheduler.is_busy:
                break
            self.step()
        assert not self.waited
        assert not self.scheduler.running
        assert not self.scheduler._runs
        assert self.prompts.pool.num_used == 0

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            self.drain()

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def references_are_the_holdings(self) -> None:
        if not hasattr(self, "prompts"):
            return
        pool = self.prompts.pool
        held = Counter(b for one in self.prompts._held.values() for b in one.blocks)
        assert held == Counter(pool._references)
        assert set(self.prompts._held) == set(self.scheduler.running)
        free = [*pool._empty, *pool._kept]
        assert len(set(free)) == len(free)
        assert not set(free) & set(held)
        assert set(free) | set(held) == set(range(pool._untouched))
        assert pool.num_used + pool.num_free == pool.num_blocks

    @invariant()
    def what_can_be_found_is_what_it_says(self) -> None:
        if not hasattr(self, "prompts"):
            return
        cache, pool = self.prompts.cache, self.prompts.pool
        assert set(pool._kept) <= set(cache._hashes)
        assert {block: one for one, block in cache._blocks.items()} == cache._hashes
        assert not set(cache._hashes) & set(pool._empty)

    # --- inner ------------------------------------------------------------------------------------

    def _owners(self, block: int) -> int:
        return self.prompts.pool.references(block)

    def _forget(self, step: ScheduledStep) -> None:
        for name in step.finished_ids | step.preempted_ids:
            self.rows.pop(name, None)

    def _step(self) -> ScheduledStep:
        step = self.scheduler.schedule(self.now)
        assert step.requests or not self.scheduler.is_busy, "a busy scheduler goes on"
        self._forget(step)
        budget = self.scheduler.max_tokens
        assert step.num_tokens <= budget or len(step.requests) == 1
        for one in step.requests:
            self._write(one.request_id, one.start, one.num_tokens, one.block_ids)
        for one in step.requests:
            ids, salt = self.waited[one.request_id]
            assert one.num_tokens > 0
            assert one.block_ids is not None
            for at in range(one.start + one.num_tokens):
                slot = one.block_ids[at // SIZE] * SIZE + at % SIZE
                assert self.memory[slot] == (salt, tuple(ids[: at + 1]))
        return step

    def _write(self, name: str, start: int, count: int, blocks: list[int] | None) -> None:
        assert blocks is not None
        ids, salt = self.waited[name]
        needs_all = self.scheduler._runs._by_waiter[name].params.task == "classify"
        assert start == self.rows.get(name, start if not needs_all else 0)
        self.rows[name] = start + count
        for at in range(start, start + count):
            block = blocks[at // SIZE]
            assert self._owners(block) >= 1
            self.memory[block * SIZE + at % SIZE] = (salt, tuple(ids[: at + 1]))

    def _finish(self, step: ScheduledStep) -> None:
        results = [
            PooledResult(one.request_id, np.zeros(1, np.float32))
            for one in step.requests
            if one.is_last_chunk
        ]
        for ended in self.scheduler.update(results):
            for name in ended.request.waiters:
                del self.waited[name]


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
