"""What both clients do: submissions and admin calls become messages, messages answer futures.

A subclass brings the transport: `_send`. It knows no text, no HTTP and no torch.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from msgspec.structs import replace

from cenote.config.engine import EngineConfig
from cenote.engine.messages import (
    AbortRequests,
    AddRequests,
    ControlReply,
    ControlRequest,
    EngineOutput,
    EngineOutputs,
    EngineReady,
    EngineRequest,
    FromEngine,
    StepStats,
    ToEngine,
)
from cenote.engine.pending import PendingRequests
from cenote.errors import CenoteError, EngineUnavailable, InvalidRequest, from_code

logger = logging.getLogger(__name__)

_LOADING = EngineReady([], 0, 0, "", "", "")


class BaseClient(ABC):
    """An `EngineClient` but for its transport. `_unavailable` says why requests are refused now,
    or is None while the engine serves."""

    def __init__(self, config: EngineConfig) -> None:
        self._pending = PendingRequests(
            config.max_waiting_requests, config.max_waiting_tokens, self._abort
        )
        self._calls: dict[str, Future[Any]] = {}
        self._call_numbers = itertools.count()
        self._listeners: list[Callable[[StepStats], None]] = []
        self._stats = StepStats()
        self._ready = _LOADING
        self._unavailable: str | None = "The engine is starting."
        self._restarts = 0

    @abstractmethod
    def _send(self, message: ToEngine) -> None:
        """Hands a message to the engine. Raises OSError if it is not there."""

    @abstractmethod
    def close(self) -> None:
        """See `EngineClient.close`."""

    @property
    def ready(self) -> EngineReady:
        """What the engine serves."""
        return self._ready

    @property
    def is_alive(self) -> bool:
        """Whether requests can be answered now."""
        return self._unavailable is None

    @property
    def stats(self) -> StepStats:
        """The latest step's record; nothing runs or waits once everything is answered."""
        stats = self._stats
        return stats if len(self._pending) else replace(stats, running=0, waiting=0)

    @property
    def restarts(self) -> int:
        """How often the engine was started again after its death."""
        return self._restarts

    def on_step(self, listener: Callable[[StepStats], None]) -> None:
        """Calls `listener` with every step's record, from the client's own thread."""
        self._listeners.append(listener)

    def submit(self, requests: list[EngineRequest]) -> Future[list[EngineOutput]]:
        """See `EngineClient.submit`."""
        self._refuse_if_unavailable()
        if not requests:
            nothing: Future[list[EngineOutput]] = Future()
            nothing.set_result([])
            return nothing
        future, renamed = self._pending.add(requests)
        try:
            self._send(AddRequests(renamed))
        except OSError as error:
            future.cancel()
            raise EngineUnavailable("The engine process is gone; it is being restarted.") from error
        except (TypeError, ValueError, OverflowError) as error:
            future.cancel()
            raise InvalidRequest(f"The request can't be sent to the engine: {error}.") from error
        return future

    def cork(self) -> None:  # noqa: B027 - for transports where sending one by one costs
        """See `EngineClient.cork`."""

    def uncork(self) -> None:  # noqa: B027
        """See `EngineClient.uncork`."""

    def control(self, method: str, **args: Any) -> Future[Any]:
        """See `EngineClient.control`."""
        self._refuse_if_unavailable()
        call = ControlRequest(str(next(self._call_numbers)), method, args)
        future: Future[Any] = Future()
        self._calls[call.call_id] = future
        try:
            self._send(call)
        except OSError as error:
            self._calls.pop(call.call_id, None)
            raise EngineUnavailable("The engine process is gone; it is being restarted.") from error
        return future

    def _refuse_if_unavailable(self) -> None:
        if self._unavailable is not None:
            raise EngineUnavailable(self._unavailable)

    def _abort(self, engine_ids: list[str]) -> None:
        try:
            self._send(AbortRequests(engine_ids))
        except OSError:
            logger.debug("the engine is gone, nothing to abort")

    def _receive(self, message: FromEngine) -> None:
        """Answers what a message from the engine answers."""
        match message:
            case EngineOutputs(outputs, stats):
                if stats is not None:
                    self._observe(stats)
                self._pending.resolve(outputs)
            case ControlReply():
                self._reply(message)
            case EngineReady():
                self._ready = message

    def _observe(self, stats: StepStats) -> None:
        self._stats = stats
        self._pending.measure(stats)
        for listener in self._listeners:
            try:
                listener(stats)
            except Exception:
                logger.exception("a listener to the engine's steps failed")

    def _reply(self, reply: ControlReply) -> None:
        future = self._calls.pop(reply.call_id, None)
        if future is None or not future.set_running_or_notify_cancel():
            return
        if reply.error_code is None:
            future.set_result(reply.result)
        else:
            future.set_exception(from_code(reply.error_code, reply.error_message or ""))

    def _fail_all(self, error: CenoteError) -> None:
        """Fails everything that waits for an answer."""
        self._pending.fail_all(error)
        while self._calls:
            _, future = self._calls.popitem()
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
