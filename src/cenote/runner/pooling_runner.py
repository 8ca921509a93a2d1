"""From hidden states to each request's result: poolers by task, late interaction, then the host.

It knows no model, no scheduling and no processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from torch import Tensor

from cenote.errors import UnsupportedTask
from cenote.layers.packed import PackedBatch
from cenote.params import TASKS, TOKEN_LEVEL_TASKS, LateInteractionParams, PoolingParams, Task
from cenote.poolers.base import LookupPooler, Pooled, Pooler
from cenote.runner.host import joined, to_host
from cenote.runner.input_batch import take_sequences
from cenote.runner.late_interaction_runner import (
    Answer,
    LateInteractionRunner,
    TokenVectors,
    all_finite,
    not_finite,
)
from cenote.runner.partial_prompts import PartialPrompts, reads_last_row
from cenote.runner.query_cache import QueryCache, QueryVectors
from cenote.step import PooledResult, ScheduledRequest

# What this runner can do at all; a model offers those of them that its head supports.
ALLOWED_TASKS: frozenset[Task] = frozenset(TASKS)


def supported_tasks(offered: Iterable[Task], *, causal: bool) -> frozenset[Task]:
    """The tasks to serve: a causal model drops all token-level ones together."""
    tasks = ALLOWED_TASKS & frozenset(offered)
    return tasks - TOKEN_LEVEL_TASKS if causal else tasks


def lookups(poolers: Mapping[Task, Pooler]) -> dict[Task, LookupPooler]:
    """The poolers that may answer a prompt without the model."""
    return {task: pooler for task, pooler in poolers.items() if isinstance(pooler, LookupPooler)}


@dataclass(frozen=True, slots=True)
class Pooling:
    """What a step's rows gave: results, and the token vectors that are still to meet."""

    results: list[PooledResult]
    vectors: list[TokenVectors]


class PoolingRunner:
    """Per-request state, and one `pool` and `conclude` per step.

    One thread at a time, but for `pool`: with whole prompts it changes nothing here.
    """

    def __init__(
        self, poolers: Mapping[Task, Pooler], *, causal: bool, query_cache_bytes: int
    ) -> None:
        self.supported_tasks = supported_tasks(poolers, causal=causal)
        self.late_interaction = LateInteractionRunner()
        self.query_cache = QueryCache(query_cache_bytes)
        self._poolers = dict(poolers)
        self._lookups = lookups(poolers)
        self._params: dict[str, PoolingParams] = {}
        self._partial = PartialPrompts()

    @property
    def num_entries(self) -> int:
        """Entries of per-request state, which must all go when their requests do."""
        return len(self._params) + len(self._partial) + self.late_interaction.num_entries

    @property
    def last_row_tasks(self) -> frozenset[Task]:
        """Tasks whose results don't need the rows of a prompt's beginning."""
        tasks = self.supported_tasks
        return frozenset(task for task in tasks if reads_last_row(self._poolers[task]))

    def add_request(self, request_id: str, params: PoolingParams) -> None:
        """Takes a request in; again for a known one changes nothing.

        Raises:
            UnsupportedTask: the model can't do it.
            InvalidRequest: its late-interaction part is not valid.
        """
        if request_id in self._params:
            return
        task = self._task(params)
        for further in params.also:
            if further not in self.supported_tasks:
                raise UnsupportedTask(further, self.supported_tasks)
        if params.late_interaction is not None and task != "token_embed":
            raise UnsupportedTask(f"{task} with late interaction", self.supported_tasks)
        self.late_interaction.add_request(request_id, params.late_interaction)
        self._params[request_id] = params

    def remove_request(self, request_id: str) -> None:
        """Drops a finished or preempted request's state (but not a document's reservation)."""
        self._params.pop(request_id, None)
        self._partial.remove(request_id)

    def on_requests_finished(self, request_ids: Iterable[str]) -> None:
        """Told of requests that are over for good, before any is removed."""
        self.late_interaction.on_requests_finished(request_ids)

    def clear(self) -> None:
        """Forgets all requests, kept queries and cached queries."""
        self._params.clear()
        self._partial.clear()
        self.late_interaction.clear()
        self.query_cache.clear()

    def replace_poolers(self, poolers: Mapping[Task, Pooler]) -> None:
        """New heads after a reload of weights; all state of the old ones is dropped."""
        self._poolers = dict(poolers)
        self._lookups = lookups(poolers)
        self.clear()

    def _task(self, params: PoolingParams) -> Task:
        if params.task is None or params.task not in self.supported_tasks:
            raise UnsupportedTask(str(params.task), self.supported_tasks)
        return params.task

    # --- one step -------------------------------------------------------------------------------

    def answer_from_cache(
        self, requests: Sequence[ScheduledRequest]
    ) -> tuple[list[PooledResult], list[ScheduledRequest]]:
        """Results of queries whose vectors are cached, and the requests that must run."""
        if self.query_cache.capacity == 0:
            return [], list(requests)
        answered: list[tuple[str, Answer]] = []
        to_run: list[ScheduledRequest] = []
        for request in requests:
            part = request.params.late_interaction
            entry = None
            if part is not None and part.mode == "cache_query" and part.content_key is not None:
                entry = self.query_cache.get(part.content_key)
            if part is None or entry is None:
                to_run.append(request)
            else:
                answered.append((request.request_id, self.late_interaction.keep(part, entry)))
        return to_host(answered), to_run

    def answer_by_lookup(
        self, requests: Sequence[ScheduledRequest]
    ) -> tuple[list[PooledResult], list[ScheduledRequest]]:
        """Results of inference-free prompts, and the requests that must run."""
        if not self._lookups:
            return [], list(requests)
        answered: list[tuple[str, Answer]] = []
        to_run: list[ScheduledRequest] = []
        for request in requests:
            pooler = self._lookups.get(self._task(request.params))
            found = None
            if pooler is not None and not request.params.also:
                found = pooler.lookup(request.token_ids, request.params)
            if found is None:
                to_run.append(request)
            else:
                answered.append((request.request_id, Answer(found.data, found.indices)))
        return to_host(answered), to_run

    def pool(
        self,
        hidden: Tensor,
        batch: PackedBatch,
        requests: Sequence[ScheduledRequest],
        use_adapter: Callable[[str], None] | None = None,
    ) -> Pooling:
        """What the requests whose prompt is complete give. `hidden` is `[T, H]` float32.

        Requests stand in the batch's order, those of one task side by side, and in these those of
        one adapter; `use_adapter` tells the model's heads whose rows come next.
        """
        answers: list[tuple[str, Answer]] = []
        vectors: list[TokenVectors] = []
        first = 0
        for (tasks, complete, later, adapter), group in groupby(requests, key=batch_order):
            members = list(group)
            if use_adapter is not None:
                use_adapter(adapter)
            end = first + len(members)
            rows, part = take_sequences(hidden, batch, first, end)
            poolers = [self._poolers[task] for task in tasks]
            if (later or not complete) and not all(map(reads_last_row, poolers)):
                pooled = self._pool_parts(rows, part, members, poolers)
            else:
                pooled = _pool_whole(rows, part, members, poolers) if complete else []
            for request, one in pooled:
                role = request.params.late_interaction
                if role is None:
                    answers.append(
                        (request.request_id, Answer(one.source, one.indices, row=one.row))
                    )
                else:
                    vectors.append(TokenVectors(request.request_id, role, one.data, one.indices))
            first = end
        return Pooling(to_host(answers), vectors)

    def conclude(self, pooling: Pooling) -> list[PooledResult]:
        """A pooled step's results. Queries must be concluded before their documents."""
        return joined(pooling.results + to_host(self._interact(pooling.vectors)))

    def _pool_parts(
        self,
        hidden: Tensor,
        batch: PackedBatch,
        requests: Sequence[ScheduledRequest],
        poolers: Sequence[Pooler],
    ) -> list[tuple[ScheduledRequest, Pooled]]:
        """Prompts of which these are not all rows, one by one: a step has few of them."""
        pooled = []
        for request, rows in zip(requests, hidden.split_with_sizes(batch.seq_lens), strict=True):
            found = self._partial.add(request, rows, poolers)
            pooled += [(request, one) for one in found or ()]
        return pooled

    def _interact(self, vectors: Sequence[TokenVectors]) -> list[tuple[str, Answer]]:
        """Queries first, whatever their place in the batch, then the documents."""
        queries = [one for one in vectors if one.part.mode == "cache_query"]
        documents = [one for one in vectors if one.part.mode == "score_doc"]
        answers = [(one.request_id, self._keep(one.part, one)) for one in queries]
        scores = self.late_interaction.score(documents)
        return answers + [
            (one.request_id, score) for one, score in zip(documents, scores, strict=True)
        ]

    def _keep(self, part: LateInteractionParams, one: TokenVectors) -> Answer:
        """Clones a query's rows out of the batch's buffer, which the next step reuses."""
        if not all_finite(one.vectors):
            return Answer(error=not_finite())
        positions = None if one.positions is None else one.positions.clone()
        query = QueryVectors(one.vectors.clone(), positions)
        if part.content_key is not None:
            self.query_cache.put(part.content_key, query)
        return self.late_interaction.keep(part, query)


def _pool_whole(
    hidden: Tensor,
    batch: PackedBatch,
    requests: Sequence[ScheduledRequest],
    poolers: Sequence[Pooler],
) -> list[tuple[ScheduledRequest, Pooled]]:
    """Prompts of which all the rows that the poolers read are here."""
    params = [request.params for request in requests]
    return [
        item
        for pooler in poolers
        for item in zip(requests, pooler(hidden, batch, params), strict=True)
    ]


def batch_order(request: ScheduledRequest) -> tuple[tuple[Task, ...], bool, bool, str]:
    """Requests with the same tasks lie side by side in a batch, so that heads work on views.

    Of those, the ones whose prompt this step completes, and that began before it; of those, the
    ones with the same adapter ("": none), so that each one runs once.
    """
    params = request.params
    first: tuple[Task, ...] = () if params.task is None else (params.task,)
    return first + params.also, request.is_last_chunk, request.start > 0, request.adapter or ""
