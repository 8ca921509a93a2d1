"""Which waiting requests make up the next step. It knows no tensors, no processes and no clock.

Order: rank = arrival + priority · AGEING + what the same submission has asked for before it. So a
smaller priority runs earlier but nothing starves (a priority is worth a fixed number of seconds),
and the items of a bulk job rank where they would be due, so that a single query that comes later
doesn't wait behind all of them. How much of a prompt runs, and whether there is room for it, is
asked of `prompts`: a request whose prompt is not complete yet stays in `running` and in the queue,
at its rank. `preempt` takes back what it holds; it then starts anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cenote.engine.messages import EngineRequest
from cenote.engine.pace import Pace, budget, due
from cenote.engine.prompts import Prompts, WholePrompts
from cenote.engine.request import Ended, Request, RequestState, Submission, Waiter, spread_begun
from cenote.engine.runs import Runs
from cenote.engine.score_groups import ScoreGroups
from cenote.engine.waiting import WaitingQueue
from cenote.errors import InvalidRequest
from cenote.params import PoolingParams
from cenote.step import PooledResult, ScheduledRequest, ScheduledStep


@dataclass(slots=True)
class Scheduler:
    """Budgets: `max_tokens` and `max_requests` per step. One thread at a time."""

    max_tokens: int
    max_requests: int
    prompts: Prompts = field(default_factory=WholePrompts)
    pace: Pace = field(default_factory=Pace)
    running: dict[str, Request] = field(default_factory=dict)
    preemptions: int = 0
    _waiting: WaitingQueue = field(default_factory=WaitingQueue)
    _parked: dict[str, Request] | None = None
    _groups: ScoreGroups = field(default_factory=ScoreGroups)
    _runs: Runs = field(default_factory=Runs)
    _finished_ids: set[str] = field(default_factory=set)
    _preempted_ids: set[str] = field(default_factory=set)
    _failed: list[Ended] = field(default_factory=list)

    # --- coming and going -------------------------------------------------------------------------

    def add(self, requests: Sequence[EngineRequest], now: float) -> None:
        """Queues a submission.

        Raises:
            InvalidRequest: an id is in use, a score group is not whole, or a prompt can never
                run; nothing was queued.
        """
        self._check(requests)
        tokens = sum(len(request.prompt.token_ids) for request in requests)
        gives_way = any(request.priority > 0 for request in requests)
        submission = Submission(is_small=not gives_way and self.pace.arrived(tokens, now))
        tokens_before = 0
        for request in requests:
            since = min(request.arrival_time or now, now)
            rank = due(since, request.priority, tokens_before * self.pace.seconds_per_token)
            tokens_before += len(request.prompt.token_ids)
            self._add(request, rank, Waiter(request.request_id, since, submission))

    def _check(self, requests: Sequence[EngineRequest]) -> None:
        ids = {request.request_id for request in requests}
        if len(ids) < len(requests) or any(one in self._runs for one in ids):
            raise InvalidRequest("A request id is in use twice.", param="request_id")
        self._groups.check(requests)
        for request in requests:
            self.prompts.check(len(request.prompt.token_ids))

    def _add(self, request: EngineRequest, rank: float, waiter: Waiter) -> None:
        run, is_new = self._runs.join(request, rank, waiter, alone=self._parked is not None)
        if is_new:
            if self._groups.add(run):
                self._enqueue(run)
        elif rank < run.rank or run.is_small != run.queued_as_small:
            run.rank = min(rank, run.rank)
            self._waiting.push(run)

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forgets requests; unknown ids are fine. A run goes on while anybody waits for it."""
        for run in self._runs.leave(request_ids):
            self._end(run, RequestState.ABORTED)

    # --- one step ---------------------------------------------------------------------------------

    def schedule(self, now: float, share: int = 1, *, small_only: bool = False) -> ScheduledStep:
        """The next step, and the ids that ended since the step before. May have no requests.

        `share`: how many such steps divide the engine's threads and what waits among them.
        `small_only`: bulk work waits, even if it is due.
        """
        chosen: list[ScheduledRequest] = []
        unfinished: list[Request] = []
        passed_over: list[Request] = []
        is_bulk = False
        most = tokens_left = budget(self.max_tokens, self.waiting_tokens, share)
        fill = self.pace.fill(most, now)
        self.prompts.begin_step()
        while len(chosen) < self.max_requests and tokens_left > 0:
            request = self._waiting.pop(small_only=small_only)
            if request is None:
                break
            used = most - tokens_left
            is_small = request.is_small
            is_full = used > 0 and used + request.num_left > fill
            if request.rank > now and is_full and not is_small:
                passed_over.append(request)
                break
            # One that a failed step has left behind runs in a step of its own.
            must_wait = request.alone and chosen
            tokens = 0 if must_wait else self._room(request, tokens_left, first=not chosen)
            if tokens == 0:
                passed_over.append(request)
                if len(passed_over) == self.prompts.look_ahead:
                    break
                continue
            tokens_left -= tokens
            fill = 0 if is_small else fill
            is_bulk |= not is_small
            chosen.append(self._start(request, tokens, now))
            if request.num_left:
                unfinished.append(request)
            if request.alone:
                break
        for request in passed_over + unfinished:
            self._waiting.push(request)
        step = ScheduledStep(chosen, self._finished_ids, self._preempted_ids, is_bulk)
        self._finished_ids, self._preempted_ids = set(), set()
        return step

    def _room(self, request: Request, tokens_left: int, *, first: bool) -> int:
        """How many of its tokens run; others are preempted for it where that helps."""
        while True:
            tokens = self.prompts.take(request, tokens_left, first=first)
            victim = None if tokens else self.prompts.victim()
            if victim is None:
                return tokens
            self.preempt(victim)

    def _start(self, request: Request, tokens: int, now: float) -> ScheduledRequest:
        if request.state is RequestState.WAITING:
            request.state = RequestState.RUNNING
            request.started = now
            self.running[request.request_id] = request
            self._runs.close(request)
            for submission in request.submissions:
                submission.begun = True
            for document in self._groups.open_for(request):
                self._enqueue(document)
        return request.run_part(tokens, self.prompts.blocks(request))

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

    def preempt(self, request: Request, *, spoiled: bool = False) -> None:
        """Sends a running request back to waiting; it starts anew when it is scheduled again.

        `spoiled`: what it has kept is not to be used by anybody.
        """
        del self.running[request.request_id]
        self._waiting.discard(request)
        self.prompts.release(request, spoiled=spoiled)
        request.state = RequestState.WAITING
        request.num_computed_tokens = 0
        self._preempted_ids.add(request.request_id)
        self.preemptions += 1
        for document in self._groups.close_for(request):
            self._waiting.discard(document)
        if self._groups.may_run(request):
            self._enqueue(request)

    def retry_alone(self, step: ScheduledStep) -> bool:
        """After a step that raised: its requests start again, each in a step of its own.

        False where they can as well be run one by one by the caller, since they share nothing.
        """
        if self.prompts.is_retried:
            for one in step.requests:
                request = self.running.get(one.request_id)
                if request is not None:
                    request.alone = True
                    self.preempt(request, spoiled=True)
        return self.prompts.is_retried

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
        spread_begun(waiting)
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
        """Whether something runs, may be scheduled, or is to be told to the runner."""
        return bool(self.running) or self.can_schedule

    @property
    def can_schedule(self) -> bool:
        """Whether `schedule` would give a step that runs something or tells the runner."""
        return bool(self._waiting or self._failed or self._finished_ids or self._preempted_ids)

    def waits(self, *, small: bool) -> bool:
        """Whether a small request, or one of bulk work, may be scheduled."""
        return self._waiting.has(small=small)

    @property
    def is_busy(self) -> bool:
        """Whether anything runs or may be scheduled now."""
        return bool(self._waiting or self.running)

    @property
    def num_waiting(self) -> int:
        """Requests of which nothing has run; between steps."""
        begun = sum(request.num_left > 0 for request in self.running.values())
        return len(self._waiting) - begun + len(self._parked or ()) + self._groups.num_held

    @property
    def waiting_tokens(self) -> int:
        """Tokens of requests that wait, for their turn or for their query; between steps."""
        return self._waiting.num_tokens + self._groups.held_tokens

    @property
    def shared_runs(self) -> int:
        """Requests that were answered by another's run, since the start."""
        return self._runs.shared

    @property
    def num_groups(self) -> int:
        """Score groups with unfinished members."""
        return len(self._groups)

    def registrations(self) -> Iterator[tuple[str, PoolingParams]]:
        """Members of score groups as the runner must know them from now on: a query's uses are the
        documents that are left."""
        for run in self._runs:
            if run.late_interaction is not None:
                self._groups.recount(run)
                yield run.request_id, run.params

    # --- inner ----------------------------------------------------------------------------------

    def _enqueue(self, request: Request) -> None:
        if self._parked is None or request.has_begun:
            self._waiting.push(request)
        else:
            self._parked[request.request_id] = request

    def _end(self, request: Request, state: RequestState) -> None:
        request.state = state
        self.running.pop(request.request_id, None)
        self._waiting.discard(request)
        self.prompts.release(request, spoiled=state is RequestState.FAILED)
        if self._parked is not None:
            self._parked.pop(request.request_id, None)
        self._runs.end(request)
        self._finished_ids.add(request.request_id)
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
