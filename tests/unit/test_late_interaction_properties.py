"""Random lives of score groups against a simple model of them: no leak, no early release, no stale
vector, whatever comes in whatever order. What is drawn doesn't depend on what has happened: ranks
go by the clock, so that a life may take other turns when it is lived again.

The real scheduler, core, pooling runner and late-interaction runner run; the neural network is a
table of vectors that changes with each reload, so that a score tells which weights made it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from torch import Tensor

from cenote.config.engine import EngineConfig
from cenote.engine.core import EngineCore
from cenote.engine.messages import EnginePrompt, EngineRequest
from cenote.layers.packed import PackedBatch
from cenote.params import LateInteractionParams, PoolingParams
from cenote.poolers.base import Pooled
from cenote.runner.input_batch import make_batch
from cenote.runner.model_runner import RunnerInfo, StepWork
from cenote.runner.pooling_runner import PoolingRunner, batch_order
from cenote.runner.query_cache import QueryCache
from cenote.step import PooledResult, ScheduledStep

VOCABULARY = 50
DIM = 4
STEP_TOKENS = 12


def table(generation: int) -> Tensor:
    """The "weights": a vector for each token id."""
    generator = torch.Generator().manual_seed(generation)
    return torch.randn(VOCABULARY, DIM, generator=generator)


def rows(hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]) -> list[Pooled]:
    return [Pooled(one) for one in hidden.split(batch.seq_lens)]


class TableRunner:
    """A model runner without a network. `victims` says which of a step's requests are preempted
    before it runs, as a scheduler short of memory would."""

    def __init__(self, lanes: int) -> None:
        self.generation = 0
        self.victims = 0
        self.core: EngineCore | None = None
        self.pooling = PoolingRunner({"token_embed": rows}, causal=False, query_cache_bytes=400)
        self.ready_info = RunnerInfo(
            ("token_embed",),
            DIM,
            100,
            VOCABULARY,
            STEP_TOKENS,
            "float32",
            "cpu",
            "none",
            0.0,
            lanes,
        )

    @property
    def query_cache(self) -> QueryCache:
        return self.pooling.query_cache

    @property
    def num_entries(self) -> int:
        return self.pooling.num_entries

    def add_request(self, request_id: str, params: PoolingParams) -> None:
        self.pooling.add_request(request_id, params)

    def execute(self, step: ScheduledStep) -> list[PooledResult]:
        work = self.begin(step)
        self.forward(work)
        return self.end(work)

    def begin(self, step: ScheduledStep) -> StepWork:
        self.pooling.on_requests_finished(sorted(step.finished_ids))
        for name in sorted(step.finished_ids | step.preempted_ids):
            self.pooling.remove_request(name)
        for request in step.requests:
            self.pooling.add_request(request.request_id, request.params)
        self._preempt(step)
        results, to_run = self.pooling.answer_from_cache(step.requests)
        to_run.sort(key=batch_order)
        return StepWork(results, to_run)

    def forward(self, work: StepWork) -> None:
        batch = make_batch(work.to_run, torch.device("cpu"))
        hidden = table(self.generation)[batch.input_ids]
        work.pooling = self.pooling.pool(hidden, batch, work.to_run)

    def end(self, work: StepWork) -> list[PooledResult]:
        return work.results + self.pooling.conclude(work.pooling) if work.pooling else work.results

    def _preempt(self, step: ScheduledStep) -> None:
        """The last ones go back to waiting, as a scheduler chooses its victims."""
        assert self.core is not None
        for _ in range(min(self.victims, len(step.requests))):
            victim = step.requests.pop()
            self.core.scheduler.preempt(self.core.scheduler.running[victim.request_id])

    def reset_encoder_cache(self) -> None:
        self.pooling.clear()

    def reset_mm_cache(self) -> None:
        pass

    def reload_weights(self, folder: str | None = None) -> None:
        self.generation += 1
        self.pooling.clear()


@dataclass
class Turns:
    """Lanes without threads: tasks end in the order that is asked for."""

    tasks: list[tuple[Callable[[], None], Future[None]]] = field(default_factory=list)

    def run(self, task: Callable[[], None]) -> Future[None]:
        self.tasks.append((task, Future()))
        return self.tasks[-1][1]

    def end(self, which: int) -> None:
        task, future = self.tasks.pop(which % len(self.tasks))
        task()
        future.set_result(None)


@dataclass
class Group:
    """The simple model: what a score group must have to show for itself."""

    key: str
    query: list[int]
    documents: dict[str, list[int]]
    live: set[str] = field(default_factory=set)
    query_done: bool = False


class Lives(RuleBasedStateMachine):
    """`groups` are those with anything unfinished; every finished score is checked at once."""

    lanes = 1
    submitted = Bundle("submitted")

    def __init__(self) -> None:
        super().__init__()
        self.runner = TableRunner(self.lanes)
        self.core = EngineCore(EngineConfig(), self.runner)
        self.turns = Turns()
        if self.lanes > 1:
            self.core.flights._lanes = self.turns  # type: ignore[assignment]
        self.runner.core = self.core
        self.groups: dict[str, Group] = {}
        self.count = 0

    # --- what may happen ------------------------------------------------------------------------

    @rule(
        target=submitted,
        query=st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5),
        documents=st.lists(
            st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=8),
            min_size=1,
            max_size=5,
        ),
        salt=st.sampled_from(["", "a", "b", None]),
    )
    def add(self, query: list[int], documents: list[list[int]], salt: str | None) -> str:
        self.count += 1
        key = f"k{self.count}"
        content = None if salt is None else f"{salt}:{query}"
        group = Group(key, query, {f"{key}.{i}": ids for i, ids in enumerate(documents)})
        group.live = {key, *group.documents}
        self.groups[key] = group
        asks = LateInteractionParams("cache_query", key, len(documents), content_key=content)
        scores = LateInteractionParams("score_doc", key)
        self.core.add(
            [_request(key, query, asks)]
            + [_request(name, ids, scores) for name, ids in group.documents.items()]
        )
        return key

    @rule(victims=st.sampled_from([0, 0, 0, 1, 2, 99]), which=st.integers(0, 3))
    def step(self, victims: int, which: int) -> None:
        self.runner.victims = victims
        self._step(which)

    @rule(key=submitted, which=st.integers(0, 4))
    def abort_document(self, key: str, which: int) -> None:
        name = f"{key}.{which}"
        self.core.abort([name])
        self._forget(key, {name})

    @rule(key=consumes(submitted))
    def abort_group(self, key: str) -> None:
        group = self.groups.get(key)
        names = {key} if group is None else {key, *group.documents}
        self.core.abort(sorted(names))
        self._forget(key, names)

    @rule(method=st.sampled_from(["reload_weights", "reset_encoder_cache"]))
    def quiet_method(self, method: str) -> None:
        self.runner.victims = 0
        while not self.core.ready_for(method):
            self._step()
        self.core.control(method, {})
        assert len(self.runner.query_cache) == 0

    @rule()
    def reset_mm_cache(self) -> None:
        before = self.runner.pooling.num_entries
        self.core.control("reset_mm_cache", {})
        assert self.runner.pooling.num_entries == before

    @rule()
    def drain(self) -> None:
        self.runner.victims = 0
        while self.core.has_work:
            self._step()
        assert not any(group.live for group in self.groups.values())
        assert self.runner.pooling.num_entries == 0
        assert self.core.scheduler.num_groups == 0
        assert not self.core.scheduler._runs

    def teardown(self) -> None:
        self.drain()

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def uses_are_the_documents_left(self) -> None:
        """Once the ended have been told to the runner, its state is exactly the model's."""
        if self.core.scheduler._finished_ids:
            return
        state = self.runner.pooling.late_interaction
        expected = {}
        for group in self.groups.values():
            left = len(group.live - {group.key})
            if left:
                expected[group.key] = left
        assert expected == state._uses

    @invariant()
    def vectors_are_kept_while_needed_and_are_of_these_weights(self) -> None:
        state = self.runner.pooling.late_interaction
        weights = table(self.runner.generation)
        for group in self.groups.values():
            if group.query_done and group.live:
                kept = state._queries[group.key].vectors
                np.testing.assert_array_equal(kept.numpy(), weights[group.query].numpy())

    def _step(self, which: int = 0) -> None:
        generation = self.runner.generation
        self.core.launch()
        while self.turns.tasks and not self.core.flights.has_landed:
            self.turns.end(which)
        for output in self.core.land().outputs:
            key = output.request_id.split(".")[0]
            group = self.groups[key]
            assert output.request_id in group.live, "a result for what was aborted or had one"
            assert output.error_code is None, output.error_message
            group.live.discard(output.request_id)
            if output.request_id == key:
                group.query_done = True
                assert output.array().tolist() == [0.0]
                continue
            weights = table(generation).double()
            document = weights[group.documents[output.request_id]]
            score = (weights[group.query] @ document.T).max(dim=1).values.sum()
            assert output.array()[0] == pytest.approx(float(score), rel=1e-4, abs=1e-5)

    def _forget(self, key: str, names: set[str]) -> None:
        group = self.groups.get(key)
        if group is not None:
            group.live -= names


def _request(name: str, ids: list[int], part: LateInteractionParams) -> EngineRequest:
    params = PoolingParams("token_embed", late_interaction=part)
    return EngineRequest(name, EnginePrompt(ids), params)


class LivesOnLanes(Lives):
    """The same with steps side by side, which end in any order."""

    lanes = 2


SETTINGS = settings(
    max_examples=50,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestLives = Lives.TestCase
TestLives.settings = SETTINGS
TestLivesOnLanes = LivesOnLanes.TestCase
TestLivesOnLanes.settings = SETTINGS
