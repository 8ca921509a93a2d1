"""How much of a prompt may run in a step: the seam between the scheduler and what a model needs.

A model that reads a whole prompt at once needs nothing but the token budget (`WholePrompts`); one
that can read it in parts also needs room for what it keeps of it (`engine.chunked_prompts`).
"""

from __future__ import annotations

from typing import Protocol

from cenote.engine.request import Request
from cenote.step import KVUse

# How many prompts that don't fit in what is left of a step are passed over to fill it.
LOOK_AHEAD = 32


class Prompts(Protocol):
    """What the scheduler asks. One thread at a time."""

    @property
    def look_ahead(self) -> int:
        """After so many requests that got no tokens the step is full."""

    @property
    def is_retried(self) -> bool:
        """Whether the requests of a failed step must start again, because they share blocks."""

    def check(self, num_tokens: int) -> None:
        """Raises InvalidRequest for a prompt that could never run."""

    def begin_step(self) -> None:
        """A new step is formed."""

    def take(self, request: Request, tokens_left: int, *, first: bool) -> int:
        """How many of its tokens run in this step, with room made for them; 0: not now.

        `first`: the step has no request yet.
        """

    def victim(self) -> Request | None:
        """Who may be preempted to make room; None: nobody has any."""

    def blocks(self, request: Request) -> list[int] | None:
        """A request's blocks, for the runner."""

    def release(self, request: Request, *, spoiled: bool = False) -> None:
        """Gives back what a request holds. `spoiled`: what it has written is not to be trusted."""

    def reset(self) -> None:
        """Forgets what was kept for later prompts."""

    def usage(self) -> KVUse:
        """What is held and kept."""


class WholePrompts:
    """A prompt runs whole; one that is longer than the budget runs alone. Nothing is kept."""

    look_ahead = LOOK_AHEAD
    is_retried = False

    def check(self, num_tokens: int) -> None:
        """Any prompt can run."""

    def begin_step(self) -> None:
        """Steps don't depend on each other."""

    def take(self, request: Request, tokens_left: int, *, first: bool) -> int:
        """All of its tokens, if they fit or nothing else runs."""
        return request.num_left if first or request.num_left <= tokens_left else 0

    def victim(self) -> Request | None:
        """Nobody holds anything."""
        return None

    def blocks(self, request: Request) -> list[int] | None:
        """There are none."""
        return None

    def release(self, request: Request, *, spoiled: bool = False) -> None:
        """Nothing is held."""

    def reset(self) -> None:
        """Nothing is kept."""

    def usage(self) -> KVUse:
        """There is no pool."""
        return KVUse()
