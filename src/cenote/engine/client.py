"""The one interface to an engine, wherever it runs: in this process, in another, or a fake.

It knows no text and no HTTP. Futures are thread-safe; the server awaits them, `LLM` waits on them.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from cenote.config.engine import EngineConfig
from cenote.engine.messages import EngineOutput, EngineReady, EngineRequest, StepStats
from cenote.engine.placement import Placement


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

    def cork(self) -> None:
        """What is submitted from now on may wait for `uncork`, to reach the engine in one piece.

        For whoever submits many times in a row and uncorks at once after that."""

    def uncork(self) -> None:
        """Sends what was kept."""

    def control(self, method: str, **args: Any) -> Future[Any]:
        """An admin call: reset_encoder_cache, reset_mm_cache, reset_prefix_cache, stats, or
        reload_weights (`folder`: default the model's own)."""

    def close(self) -> None:
        """Finishes what runs, then stops the engine."""


def start_engine(config: EngineConfig, *, in_process: bool, niceness: int = 0) -> EngineClient:
    """Starts an engine and waits until it serves.

    `in_process` runs it in a thread of this process (the offline API); else it is a process of its
    own, started again if it dies, and this one never loads torch. Several replicas are always
    processes, each on cores of its own. `niceness` is how far such processes stand back for this
    one.

    Raises:
        ModelLoadError: the model can't be found, read or served.
        InvalidRequest: a setting doesn't fit this machine.
        EngineUnavailable: the process died while it started.
    """
    if config.replicas > 1:
        from cenote.engine.process_client import ProcessClient
        from cenote.engine.replicas import start_replicas

        return start_replicas(
            config, lambda share, cores: ProcessClient(share, Placement(niceness, cores))
        )
    if in_process:
        from cenote.engine.in_process import InProcessClient

        return InProcessClient(config)
    from cenote.engine.process_client import ProcessClient

    return ProcessClient(config, Placement(niceness))
