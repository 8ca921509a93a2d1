"""The one interface to an engine, wherever it runs: in this process, in another, or a fake.

It knows no text and no HTTP. Futures are thread-safe; the server awaits them, `LLM` waits on them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from cenote.engine.messages import EngineOutput, EngineReady, EngineRequest, StepStats


class EngineClient(Protocol):
    """What processors' callers may do with an engine."""

    @property
    def ready(self) -> EngineReady:
        """What the engine serves; known once it has started."""

    @property
    def is_alive(self) -> bool:
        """Whether requests can be answered now."""

    @property
    def stats(self) -> StepStats:
        """The record of the latest step, with running and waiting counts."""

    @property
    def restarts(self) -> int:
        """How often the engine was started again after its death."""

    def on_step(self, listener: Callable[[StepStats], None]) -> None:
        """Calls `listener` with every step's record, from the client's own thread."""

    def submit(self, requests: list[EngineRequest]) -> Future[list[EngineOutput]]:
        """Runs requests that belong together; outputs come in the same order.

        The future fails with the first request's error (the others are then aborted). Cancelling
        it aborts them. Raises `Overloaded` where the queue is full, `EngineUnavailable` where the
        engine is dead or draining.
        """

    def control(self, method: str, **args: Any) -> Future[Any]:
        """An admin call: reset_encoder_cache, reset_mm_cache, reset_prefix_cache, reload_weights."""

    def close(self) -> None:
        """Finishes what runs, then stops the engine."""
