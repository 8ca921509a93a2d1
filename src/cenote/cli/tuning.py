"""How the fastest settings are searched: the best so far against one challenger at a time.

Both run the same texts in turn, so that a busy machine slows both, and the median of the rounds'
ratios decides. It knows no model: `Open` starts whatever runs texts under some settings.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from cenote.config.engine import EngineConfig
from cenote.errors import CenoteError

# A challenger that costs more (accuracy, memory, latency) must win by so much; one that costs less
# wins if it loses no more than the inverse.
CLEARLY = 1.04

ROUNDS = 5

# A first round's ratio after which the others are not worth their time.
HOPELESS = 0.75


class Engine(Protocol):
    """A started engine."""

    def run(self) -> float:
        """Seconds for all texts."""

    def close(self) -> None:
        """Stops it."""


Open = Callable[[EngineConfig], Engine]


@dataclass(frozen=True, slots=True)
class Challenge:
    """Settings to try on top of the best; `cheaper` settings win ties."""

    settings: dict[str, Any]
    cheaper: bool = False

    @property
    def needed(self) -> float:
        """The ratio to the best that it must reach."""
        return 1 / CLEARLY if self.cheaper else CLEARLY


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one challenge: `ratio` is its rate to the best's; None where it can't run."""

    settings: dict[str, Any]
    rate: float
    ratio: float | None
    kept: bool
    note: str = ""


def challenges(best: EngineConfig, dtype: str, step_tokens: int, cores: int) -> list[Challenge]:
    """What is worth trying, what matters most first. `best` starts with `dtype` and `step_tokens`.

    float32 is cheaper than bfloat16 (more exact), small steps than large ones (less waiting), few
    threads than many.
    """
    found = []
    if dtype == "bfloat16":
        found.append(Challenge({"dtype": "float32"}, cheaper=True))
    if best.lanes == 0 and cores > 1:
        found.append(Challenge({"lanes": 1}))
    found += [
        Challenge({"max_num_batched_tokens": step_tokens // 2}, cheaper=True),
        Challenge({"max_num_batched_tokens": step_tokens // 4}, cheaper=True),
        Challenge({"max_num_batched_tokens": step_tokens * 2}),
        Challenge({"max_num_batched_tokens": step_tokens * 4}),
    ]
    counts = {max(1, cores // 2), max(1, cores - 1)} - {cores}
    found += [Challenge({"threads": count}, cheaper=True) for count in sorted(counts)]
    if best.kernels == "auto":
        found.append(Challenge({"kernels": "torch"}))  # Last: where it loses, it takes long.
    return found


@dataclass(slots=True)
class Search:
    """Runs challenges until all are done or `deadline` (of `time.monotonic`) has come.

    `holder` runs the settings `best`; the search closes it. `tokens` are those of its texts.
    """

    best: EngineConfig
    holder: Engine
    open: Open
    tokens: int
    deadline: float
    trials: list[Trial] = field(default_factory=list)
    left_out: list[Challenge] = field(default_factory=list)
    rate: float = 0.0

    def run(self, todo: Sequence[Challenge], report: Callable[[Trial], None]) -> None:
        """Tries everything; `best` and `rate` are what won."""
        try:
            self.rate = self.tokens / min(self.holder.run(), self.holder.run())
            self._note(Trial({}, self.rate, 1.0, kept=True), report)
            for challenge in todo:
                if time.monotonic() > self.deadline:
                    self.left_out.append(challenge)
                else:
                    self._try(challenge, report)
        finally:
            self.holder.close()

    def _try(self, challenge: Challenge, report: Callable[[Trial], None]) -> None:
        """Starts the challenger; whoever loses is closed."""
        config = replace(self.best, **challenge.settings)
        try:
            challenger = self.open(config)
        except CenoteError as error:
            self._note(Trial(challenge.settings, 0.0, None, kept=False, note=str(error)), report)
            return
        loser = challenger
        try:
            ratio, rate = self._compare(self.holder, challenger)
            kept = ratio >= challenge.needed
            if kept:
                loser, self.holder = self.holder, challenger
                self.best, self.rate = config, rate
            self._note(Trial(challenge.settings, rate, ratio, kept=kept), report)
        finally:
            loser.close()

    def _compare(self, holder: Engine, challenger: Engine) -> tuple[float, float]:
        """The challenger's median ratio to the holder, and its rate."""
        challenger.run()
        ratios, seconds = [], []
        for number in range(ROUNDS):
            if number % 2 == 0:
                own, other = challenger.run(), holder.run()
            else:
                other, own = holder.run(), challenger.run()
            ratios.append(other / own)
            seconds.append(own)
            if ratios[0] < HOPELESS:
                break
        return statistics.median(ratios), self.tokens / statistics.median(seconds)

    def _note(self, trial: Trial, report: Callable[[Trial], None]) -> None:
        self.trials.append(trial)
        report(trial)
