"""Steps under way: one on all threads, or several side by side, each on a lane of its own.

A step may also go ahead of those on lanes: they pause between two kernels, and it gets all threads.
Steps may end in another order than they started in, but documents of late interaction end after the
step that their query is in. It knows no queue and no clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cenote.engine.pace import SHARE_TOKENS
from cenote.kernels import backend
from cenote.runner.lanes import Lanes
from cenote.step import PooledResult, ScheduledStep

if TYPE_CHECKING:
    from cenote.runner.model_runner import StepWork


class StepRunner(Protocol):
    """What runs a step: at once, or in three parts of which `forward` may run beside another's."""

    def execute(self, step: ScheduledStep) -> list[PooledResult]: ...
    def begin(self, step: ScheduledStep) -> StepWork: ...
    def forward(self, work: StepWork) -> None: ...
    def end(self, work: StepWork) -> list[PooledResult]: ...


@dataclass(slots=True, eq=False)
class Flight:
    """A step under way. `end` gives its results, or raises what went wrong, once `forward` is done.

    `seconds` is what `forward` has taken on one of `lanes` shares of the threads.
    """

    step: ScheduledStep
    lanes: int
    forward: Future[None] = field(default_factory=Future)
    end: Callable[[], list[PooledResult]] = list
    seconds: float = 0.0

    def keys(self, mode: str) -> set[str]:
        """Names of the queries that are in it, or that documents in it need."""
        parts = (request.params.late_interaction for request in self.step.requests)
        return {part.query_key for part in parts if part is not None and part.mode == mode}


class Flights:
    """At most `count` at a time. `landed` is called, on any thread, when one may have become ready;
    all else happens on the engine's thread."""

    def __init__(self, runner: StepRunner, count: int, landed: Callable[[], None]) -> None:
        self._runner = runner
        self._count = count
        self._landed = landed
        self._lanes = Lanes(count) if count > 1 else None
        self._flying: list[Flight] = []
        self.has_gone_ahead = False  # since another was last started or ended

    def __len__(self) -> int:
        return len(self._flying)

    @property
    def can_pause(self) -> bool:
        """Whether a step may go ahead of others."""
        return self._lanes is not None

    @property
    def has_room(self) -> bool:
        """Whether another step may start. Of those that are over some may still wait for others."""
        if self._lanes is None:
            return not self._flying
        running = sum(not flight.forward.done() for flight in self._flying)
        return running < self._count and len(self._flying) < 2 * self._count

    @property
    def has_bulk(self) -> bool:
        """Whether bulk work is running on lanes."""
        return any(one.step.is_bulk and not one.forward.done() for one in self._flying)

    def share(self, waiting: int) -> int:
        """Into how many steps the engine's threads are divided, where so many tokens wait."""
        few = waiting <= self._count * SHARE_TOKENS
        return 1 if few and not self._flying else self._count

    def start_ahead(self, step: ScheduledStep) -> None:
        """Gives a step all threads: what is on lanes pauses while it runs, which is next."""
        self.has_gone_ahead = True
        flight, work = self.at_once(step), self._begin(step)
        if work is not None:
            flight.end = partial(self._ahead, work)
        self._flying.insert(0, flight)

    def start(self, step: ScheduledStep, *, is_lone: bool) -> None:
        """Starts a step on a lane, or gives a lone one all threads if they are free."""
        self.has_gone_ahead = False
        alone = self._lanes is None or (is_lone and not self._flying)
        work = None if alone else self._begin(step)
        if self._lanes is None or work is None:
            self._flying.append(self.at_once(step))
            return
        flight = Flight(step, self._count)
        self._flying.append(flight)
        flight.forward = self._lanes.run(partial(self._fly, flight, work))
        # Not of the flight itself: a circle would keep the step's tensors until the collector runs.
        flight.end = partial(self._end, flight.forward, work)
        flight.forward.add_done_callback(lambda _: self._landed())

    def at_once(self, step: ScheduledStep) -> Flight:
        """A flight that runs on all threads, when it is ended."""
        flight = Flight(step, 1, end=partial(self._runner.execute, step))
        flight.forward.set_result(None)
        return flight

    def _begin(self, step: ScheduledStep) -> StepWork | None:
        """Tells the runner of a step, in the order in which steps were made; None where that
        raised, which it will again when the step is run at once."""
        try:
            return self._runner.begin(step)
        except Exception:
            return None

    def _ahead(self, work: StepWork) -> list[PooledResult]:
        with backend.ahead_of_others():
            self._runner.forward(work)
            return self._runner.end(work)

    def _fly(self, flight: Flight, work: StepWork) -> None:
        started = time.perf_counter()
        self._runner.forward(work)
        flight.seconds = time.perf_counter() - started

    def _end(self, forward: Future[None], work: StepWork) -> list[PooledResult]:
        forward.result()
        return self._runner.end(work)

    @property
    def has_landed(self) -> bool:
        """Whether `land` would not wait."""
        return self._ready() is not None

    def land(self) -> Flight:
        """The next flight that may end; waits for it."""
        flight = self._ready()
        while flight is None:
            flying = [one.forward for one in self._flying if not one.forward.done()]
            wait(flying, return_when=FIRST_COMPLETED)
            flight = self._ready()
        self._flying.remove(flight)
        self.has_gone_ahead &= flight.lanes == 1
        return flight

    def _ready(self) -> Flight | None:
        return next((flight for flight in self._flying if self._may_end(flight)), None)

    def _may_end(self, flight: Flight) -> bool:
        if not flight.forward.done():
            return False
        needed = flight.keys("score_doc")
        others = (other for other in self._flying if other is not flight)
        return not needed or all(needed.isdisjoint(one.keys("cache_query")) for one in others)
