"""When a request is due, and how long a step may get while both bulk work and queries are there.

A step can't be stopped, so whoever comes while one runs waits for its end. Work that isn't due yet
is therefore not added to a step with a small submission, and, as long as those keep coming, fills
others only as far as products need to run at their full rate: unless steps can pause for it, which
leaves bulk work its full steps. It knows no requests and no clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# One step of priority is worth this many seconds of waiting; more than 30 steps count as 30.
AGEING_SECONDS = 10.0
MAX_PRIORITY = 30

# A bulk job's items are due at a quarter of the engine's rate: the share that is left to it while
# others keep the engine busy.
BULK_SLOWNESS = 4.0

# A submission of so many tokens is a small one: somebody waits for it.
SMALL_TOKENS = 256

# Small submissions are expected to come again within so many seconds.
LATELY_SECONDS = 1.0

# What a step filled with bulk work is to take.
STEP_SECONDS = 0.008

# Matrix products of so many rows run at four fifths of their rate; shorter steps would cost more.
LEAST_TOKENS = 128


# Weight of the newest step in the measured speed.
_SMOOTHING = 0.1

# So many rows keep a thread's products near their full rate; fewer aren't shared out.
SHARE_TOKENS = 256


def budget(most: int, waiting: int, share: int) -> int:
    """Tokens of a step, where `waiting` tokens are to be run by `share` steps side by side, and
    all of these may have `most`."""
    if share == 1:
        return most
    return min(most, max(min(most, waiting) // share, SHARE_TOKENS))


def due(since: float, priority: int, seconds_before: float) -> float:
    """A request's rank: when it should run. `seconds_before` is the run time of what the same
    submission has asked for before it."""
    steps = max(-MAX_PRIORITY, min(MAX_PRIORITY, priority))
    return since + steps * AGEING_SECONDS + seconds_before * BULK_SLOWNESS


@dataclass(slots=True)
class Pace:
    """The fill of steps. Times are seconds of one clock; `seconds_per_token` is the engine's
    measured speed."""

    seconds_per_token: float = 1e-4
    can_pause: bool = False
    last_small: float = -math.inf

    def arrived(self, tokens: int, now: float) -> bool:
        """A submission of so many tokens has come; whether it is a small one."""
        is_small = tokens <= SMALL_TOKENS
        if is_small:
            self.last_small = now
        return is_small

    def ran(self, tokens: int, seconds: float) -> None:
        """So many tokens took the engine so long."""
        self.seconds_per_token += _SMOOTHING * (seconds / tokens - self.seconds_per_token)

    def fill(self, most: int, now: float) -> int:
        """Tokens in a step after which only what is due is added to it; `most` is its budget."""
        if self.can_pause or now - self.last_small > LATELY_SECONDS:
            return most
        due_in_time = int(STEP_SECONDS / self.seconds_per_token)
        return min(most, max(LEAST_TOKENS, due_in_time))
