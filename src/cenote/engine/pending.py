"""What was submitted and not yet answered: futures by request id, and the bound on the queue.

Both clients count here, before anything is enqueued. Thread-safe. It knows no transport.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from cenote.engine.messages import EngineOutput, EngineRequest, StepStats
from cenote.errors import CenoteError, Overloaded, from_code

# Tokens a second that Retry-After assumes until a step was measured.
_FIRST_GUESS_RATE = 10_000.0
_MAX_RETRY_AFTER = 60


@dataclass(slots=True, eq=False)
class Ticket:
    """One submission: its future and the outputs that have come, in the order of its requests."""

    future: Future[list[EngineOutput]]
    request_ids: list[str]
    engine_ids: list[str]
    tokens: list[int]
    outputs: dict[int, EngineOutput] = field(default_factory=dict)


class PendingRequests:
    """Requests get ids of the engine's own, so callers may repeat theirs.

    `abort` is called, without a lock held, with the engine ids that nobody waits for any more.
    """

    def __init__(
        self, max_requests: int, max_tokens: int, abort: Callable[[list[str]], None]
    ) -> None:
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._abort = abort
        self._lock = threading.Lock()
        self._places: dict[str, tuple[Ticket, int]] = {}
        self._tokens = 0
        self._rate = _FIRST_GUESS_RATE
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._places)

    def add(
        self, requests: list[EngineRequest]
    ) -> tuple[Future[list[EngineOutput]], list[EngineRequest]]:
        """A future, and the requests as the engine is to get them.

        One submission larger than the bound is taken when nothing else waits.

        Raises:
            Overloaded: the queue is full; it says when to come again.
        """
        now = time.monotonic()
        tokens = [len(request.prompt.token_ids) for request in requests]
        with self._lock:
            self._admit(len(requests), sum(tokens))
            renamed = [
                replace(one, request_id=f"{one.request_id}#{next(self._numbers)}", arrival_time=now)
                for one in requests
            ]
            ticket = Ticket(
                Future(),
                [one.request_id for one in requests],
                [one.request_id for one in renamed],
                tokens,
            )
            for index, one in enumerate(renamed):
                self._places[one.request_id] = (ticket, index)
            self._tokens += sum(tokens)
        # Not the ticket: it would hold the future, and the future holds its callbacks.
        ticket.future.add_done_callback(partial(self._done, ticket.engine_ids))
        return ticket.future, renamed

    def _admit(self, requests: int, tokens: int) -> None:
        if not self._places:
            return
        for what, number, waiting, limit in (
            ("prompts", requests, len(self._places), self._max_requests),
            ("tokens", tokens, self._tokens, self._max_tokens),
        ):
            if waiting + number > limit:
                raise Overloaded(
                    f"The queue is full: {waiting} {what} wait, {number} more would exceed the "
                    f"limit of {limit}.",
                    retry_after=self._retry_after(),
                )

    def _retry_after(self) -> int:
        return min(_MAX_RETRY_AFTER, max(1, math.ceil(self._tokens / self._rate)))

    def measure(self, stats: StepStats) -> None:
        """Learns the engine's speed from a step."""
        if stats.step_time > 0:
            self._rate += 0.1 * (stats.batch_tokens / stats.step_time - self._rate)

    def resolve(self, outputs: Iterable[EngineOutput]) -> None:
        """Answers the futures whose last output, or first error, is among these."""
        over: list[tuple[Ticket, CenoteError | None]] = []
        unwanted: list[str] = []
        with self._lock:
            for output in outputs:
                place = self._places.get(output.request_id)
                if place is None:
                    continue
                ticket, index = place
                self._forget(output.request_id)
                if output.error_code is not None:
                    unwanted += self._forget_all(ticket.engine_ids)
                    error = from_code(output.error_code, output.error_message or "")
                    over.append((ticket, error))
                    continue
                output.request_id = ticket.request_ids[index]
                ticket.outputs[index] = output
                if len(ticket.outputs) == len(ticket.request_ids):
                    over.append((ticket, None))
        for ticket, failure in over:
            _answer(ticket, failure)
        if unwanted:
            self._abort(unwanted)

    def fail_all(self, error: CenoteError) -> None:
        """Fails every future, e.g. because the engine died."""
        with self._lock:
            tickets = {id(ticket): ticket for ticket, _ in self._places.values()}
            self._places.clear()
            self._tokens = 0
        for ticket in tickets.values():
            _answer(ticket, error)

    def _done(self, engine_ids: list[str], future: Future[list[EngineOutput]]) -> None:
        if future.cancelled():
            with self._lock:
                unwanted = self._forget_all(engine_ids)
            if unwanted:
                self._abort(unwanted)

    def _forget_all(self, engine_ids: list[str]) -> list[str]:
        """Drops a submission; the engine ids that hadn't been answered."""
        left = [engine_id for engine_id in engine_ids if engine_id in self._places]
        for engine_id in left:
            self._forget(engine_id)
        return left

    def _forget(self, engine_id: str) -> None:
        ticket, index = self._places.pop(engine_id)
        self._tokens -= ticket.tokens[index]


def _answer(ticket: Ticket, error: CenoteError | None) -> None:
    """Sets the future's result, unless it was cancelled in the meantime."""
    if not ticket.future.set_running_or_notify_cancel():
        return
    if error is not None:
        ticket.future.set_exception(error)
    else:
        ticket.future.set_result([ticket.outputs[i] for i in range(len(ticket.request_ids))])
