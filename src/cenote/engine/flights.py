"""Steps under way: one on all threads, or several side by side, each on a lane of its own.

Steps may end in another order than they started in, but one with documents of late interaction
ends after all that started before it, since its queries may be in those. It knows no queue and no
clients.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cenote.engine.pace import SHARE_TOKENS
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

    @property
    def has_documents(self) -> bool:
        """Whether it needs the vectors of queries."""
        parts = (request.params.late_interaction for request in self.step.requests)
        return any(part is not None and part.mode == "score_doc" for part in parts)


class Flights:
    """At most `count` at a time. `landed` is called, on any thread, when one may have become ready;
    all else happens on the engine's thread."""

    def __init__(self, runner: StepRunner, count: int, landed: Callable[[], None]) -> None:
        self._runner = runner
        self._count = count
        self._landed = landed
        self._lanes = Lanes(count) if count > 1 else None
        self._flying: list[Flight] = []

    def __len__(self) -> int:
        return len(self._flying)

    def has_room(self, *, at_once: bool) -> bool:
        """Whether another step may start; `at_once`: on all threads. Of those that are over some
        may still wait for others."""
        if self._lanes is None or at_once:
            return not self._flying
        running = sum(not flight.forward.done() for flight in self._flying)
        return running < self._count and len(self._flying) < 2 * self._count

    def share(self, waiting: int, *, at_once: bool) -> int:
        """Into how many steps the engine's threads are divided, where so many tokens wait."""
        few = waiting <= self._count * SHARE_TOKENS
        return 1 if at_once or (few and not self._flying) else self._count

    def start(self, step: ScheduledStep, *, at_once: bool) -> None:
        """Starts a step on a lane, or gives it all threads `at_once` if they are free."""
        if self._lanes is None or (at_once and not self._flying):
            self._flying.append(self.at_once(step))
            return
        try:
            work = self._runner.begin(step)
        except Exception:  # which comes again when it is ended
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
        return flight

    def _ready(self) -> Flight | None:
        for place, flight in enumerate(self._flying):
            if flight.forward.done() and (place == 0 or not flight.has_documents):
                return flight
        return None
