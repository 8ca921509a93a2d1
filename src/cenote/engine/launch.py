"""Which steps start now. Queries go ahead of bulk work under way, where that can pause.

It knows no clients, and leaves it to the scheduler what is in a step.
"""

from __future__ import annotations

import time

from cenote.engine.flights import Flights
from cenote.engine.scheduler import Scheduler


def can_launch(scheduler: Scheduler, flights: Flights) -> bool:
    """Whether `launch` would start a step."""
    return _goes_ahead(scheduler, flights) or (scheduler.can_schedule and flights.has_room)


def launch(scheduler: Scheduler, flights: Flights) -> None:
    """Starts steps while there is room. One that goes ahead is to be ended before others start."""
    while not _goes_ahead(scheduler, flights):
        if not (scheduler.can_schedule and flights.has_room):
            return
        share = flights.share(scheduler.waiting_tokens)
        step = scheduler.schedule(time.monotonic(), share)
        flights.start(step, is_lone=not scheduler.can_schedule)
    flights.start_ahead(scheduler.schedule(time.monotonic(), small_only=True))


def _goes_ahead(scheduler: Scheduler, flights: Flights) -> bool:
    """Whether queries wait that bulk work, on lanes or waiting as well, can let pass. Between two
    of them a step of it may end or start: queries that never end don't keep it from running."""
    if not (flights.can_pause and scheduler.waits(small=True)):
        return False
    is_bulk_waiting = scheduler.waits(small=False)
    if not (flights.has_bulk or is_bulk_waiting):
        return False
    is_its_turn = flights.has_landed or (flights.has_room and is_bulk_waiting)
    return not (flights.has_gone_ahead and is_its_turn)
