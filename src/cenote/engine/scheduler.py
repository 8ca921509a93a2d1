"""Which waiting requests make up the next step. It knows no tensors, no processes and no clock.

Order: rank = arrival + priority · AGEING + what the same submission has asked for before it. So a
smaller priority runs earlier but nothing starves (a priority is worth a fixed number of seconds),
and the items of a bulk job rank where they would be due, so that a single query that comes later
doesn't wait behind all of them. Bidirectional prompts run whole: every request of a step ends with
it. A causal model's chunks will stay in `running`, and `preempt` sends them back to waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from cenote.engine.messages import EngineRequest
from cenote.engine.request import Ended, Request, RequestState, Submission, Waiter, share_key
from cenote.engine.score_groups import ScoreGroups
from cenote.engine.waiting import WaitingQueue
from cenote.errors import InvalidRequest
from cenote.params import PoolingParams
from cenote.step import PooledResult, ScheduledRequest, ScheduledStep

# One step of priority is worth this many seconds of waiting; more than 30 steps count as 30.
AGEING_SECONDS = 10.0
MAX_PRIORITY = 30

# A bulk job's items are due at a quarter of the engine's rate: the share that is left to it while
# others keep the engine busy.
BULK_SLOWNESS = 4.0

# How many prompts that don't fit in what is left of a step are passed over to fill it.
LOOK_AHEAD = 32


@dataclass(slots=True)
class Scheduler:
    """Budgets: `max_tokens` and `max_requests` per step. One thread at a time.

    A prompt longer than the budget runs alone. `seconds_per_token` is the engine's measured speed.
    """

    max_tokens: int
    max_requests: int
    seconds_per_token: float = 1e-4
    running: dict[str, Request] = field(default_factory=dict)
    preemptions: int = 0
    shared_runs: int = 0
    _waiting: WaitingQueue = field(default_factory=WaitingQueue)
    _parked: dict[str, Request] | None = None
    _groups: ScoreGroups = field(default_factory=ScoreGroups)
    _by_waiter: dict[str, Request] = field(default_factory=dict)
    _by_input: dict[bytes, Request] = field(default_factory=dict)
    _finished_ids: set[str] = field(default_factory=set)
    _preempted_ids: set[str] = field(default_factory=set)
    _failed: list[Ended] = field(default_factory=list)

    # --- coming and going -------------------------------------------------------------------------

    def add(self, requests: Sequence[EngineRequest], now: float) -> None:
        """Queues a submission.

        Raises:
            InvalidRequest: an id is in use, or a score group is not whole; nothing was queued.
        """
        self._check(requests)
        submission = Submission()
        tokens_before = 0
        for request in requests:
            since = min(request.arrival_time or now, now)
            priority = max(-MAX_PRIORITY, min(MAX_PRIORITY, request.priority))
            rank = (
                since
                + priority * AGEING_SECONDS
                + tokens_before * self.seconds_per_token * BULK_SLOWNESS
            )
            tokens_before += len(request.prompt.token_ids)
            self._add(request, rank, Waiter(request.request_id, since, submission))

    def _check(self, requests: Sequence[EngineRequest]) -> None:
        ids = {request.request_id for request in requests}
        if len(ids) < len(requests) or not ids.isdisjoint(self._by_waiter):
            raise InvalidRequest("A request id is in use twice.", param="request_id")
        self._groups.check(requests)

    def _add(self, request: EngineRequest, rank: float, waiter: Waiter) -> None:
        key = share_key(request)
        run = None if key is None or self._parked is not None else self._by_input.get(key)
        if run is not None:
            run.waiters[waiter.request_id] = waiter
            self._by_waiter[waiter.request_id] = run
            self.shared_runs += 1
            if rank < run.rank:
                run.rank = rank
                self._waiting.push(run)
            return
        run = Request(
            request.request_id,
            request.prompt.token_ids,
            request.params,
            rank,
            {waiter.request_id: waiter},
            request.adapter,
            key,
        )
        self._by_waiter[waiter.request_id] = run
        if key is not None:
            self._by_input.setdefault(key, run)
        if self._groups.add(run):
            self._enqueue(run)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forgets requests; unknown ids are fine. A run goes on while anybody waits for it."""
        unwanted: list[Request] = []
        for request_id in request_ids:
            run = self._by_waiter.pop(request_id, None)
            if run is not None:
                del run.waiters[request_id]
                if not run.waiters:
                    unwanted.append(run)
        for run in unwanted:
            self._end(run, RequestState.ABORTED)

    # --- one step ---------------------------------------------------------------------------------

    def schedule(self, now: float) -> ScheduledStep:
        """The next step, and the ids that ended since the step before. May have no requests."""
        chosen: list[ScheduledRequest] = []
        passed_over: list[Request] = []
        tokens_left = self.max_tokens
        while len(chosen) < self.max_requests and tokens_left > 0:
            request = self._waiting.pop()
            if request is None:
                break
            if request.num_left > tokens_left and chosen:
                passed_over.append(request)
                if len(passed_over) == LOOK_AHEAD:
                    break
                continue
            tokens_left -= request.num_left
            chosen.append(self._start(request, now))
        for request in passed_over:
            self._waiting.push(request)
        step = ScheduledStep(chosen, self._finished_ids, self._preempted_ids)
        self._finished_ids, self._preempted_ids = set(), set()
        return step

    def _start(self, request: Request, now: float) -> ScheduledRequest:
        request.state = RequestState.RUNNING
        request.started = now
        self.running[request.request_id] = request
        self._unshare(request)
        for submission in request.submissions:
            submission.begun = True
        for document in self._groups.open_for(request):
            self._enqueue(document)
        return ScheduledRequest(
            request.request_id,
            request.token_ids,
            request.params,
            request.num_computed_tokens,
            request.num_left,
            request.adapter,
        )

    def update(self, results: Iterable[PooledResult]) -> list[Ended]:
        """Ends the runs that have a result. Results of aborted and preempted runs are dropped."""
        ended = []
        for result in results:
            request = self.running.get(result.request_id)
            if request is None:
                continue
            ended.append(Ended(request, result))
            failed = result.error is not None
            self._end(request, RequestState.FAILED if failed else RequestState.FINISHED)
        return ended + self.take_failed()

    def preempt(self, request: Request) -> None:
        """Sends a running request back to waiting; it starts anew when it is scheduled again."""
        del self.running[request.request_id]
        request.state = RequestState.WAITING
        request.num_computed_tokens = 0
        self._preempted_ids.add(request.request_id)
        self.preemptions += 1
        for document in self._groups.close_for(request):
            self._waiting.discard(document)
        if self._groups.may_run(request):
            self._enqueue(request)

    def take_failed(self) -> list[Ended]:
        """Runs that failed without running: documents whose query failed or was aborted."""
        failed, self._failed = self._failed, []
        return failed

    # --- a quiet moment (new weights) ------------------------------------------------------------

    def park(self) -> None:
        """From now on only submissions that have begun are scheduled, to their end; others wait."""
        if self._parked is not None:
            return
        waiting = list(self._waiting)
        _spread_begun(waiting)
        self._parked = {}
        for request in waiting:
            if not request.has_begun:
                self._waiting.discard(request)
                self._parked[request.request_id] = request

    def unpark(self) -> None:
        """All may be scheduled again."""
        parked, self._parked = self._parked or {}, None
        for request in parked.values():
            self._waiting.push(request)

    # --- what is there ----------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a step now would run something, or has something to tell the runner."""
        return bool(self.is_busy or self._failed or self._finished_ids or self._preempted_ids)

    @property
    def is_busy(self) -> bool:
        """Whether anything runs or may be scheduled now."""
        return bool(self._waiting or self.running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting) + len(self._parked or ()) + self._groups.num_held

    @property
    def num_groups(self) -> int:
        """Score groups with unfinished members."""
        return len(self._groups)

    def registrations(self) -> Iterator[tuple[str, PoolingParams]]:
        """Members of score groups as the runner must know them: a query's uses are the documents
        that are left. A query whose documents are all gone needs no place there."""
        for run in self._by_waiter.values():
            part = run.late_interaction
            if part is None:
                continue
            if part.mode == "cache_query":
                part = replace(part, query_uses=self._groups.num_documents(run))
            if part.query_uses != 0:
                yield run.request_id, replace(run.params, late_interaction=part)

    # --- inner ----------------------------------------------------------------------------------

    def _enqueue(self, request: Request) -> None:
        if self._parked is None or request.has_begun:
            self._waiting.push(request)
        else:
            self._parked[request.request_id] = request

    def _unshare(self, request: Request) -> None:
        if request.share_key is not None and self._by_input.get(request.share_key) is request:
            del self._by_input[request.share_key]

    def _end(self, request: Request, state: RequestState) -> None:
        request.state = state
        self.running.pop(request.request_id, None)
        self._waiting.discard(request)
        if self._parked is not None:
            self._parked.pop(request.request_id, None)
        self._unshare(request)
        self._finished_ids.add(request.request_id)
        for request_id in request.waiters:
            del self._by_waiter[request_id]
        if state is not RequestState.FINISHED:
            self._fail_documents(request)
        self._groups.ended(request)

    def _fail_documents(self, query: Request) -> None:
        """Documents can't be scored once their query has failed or was aborted."""
        for document in self._groups.close_for(query):
            if document.state is RequestState.WAITING and document.waiters:
                error = InvalidRequest("The query of this document failed or was aborted.")
                self._failed.append(Ended(document, PooledResult(document.request_id, error=error)))
                self._end(document, RequestState.FAILED)


def _spread_begun(requests: Sequence[Request]) -> None:
    """Marks submissions as begun that share a run with one that has, until there are no more."""
    spreading = True
    while spreading:
        spreading = False
        for request in requests:
            if request.has_begun and not all(one.begun for one in request.submissions):
                spreading = True
                for submission in request.submissions:
                    submission.begun = True
