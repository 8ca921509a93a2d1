"""An engine in a process of its own, started again when it dies. This process loads no torch.

One thread reads the engine's messages and answers futures; callers' threads write.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from cenote.config.engine import EngineConfig
from cenote.engine.base_client import BaseClient
from cenote.engine.frames import FrameSocket
from cenote.engine.messages import (
    ControlReply,
    EngineReady,
    FromEngine,
    StartEngine,
    ToEngine,
)
from cenote.engine.placement import Placement
from cenote.errors import CenoteError, EngineUnavailable, from_code

logger = logging.getLogger(__name__)

# Back-off between restarts. An engine that lived this long starts the count again.
FIRST_DELAY = 0.1
MAX_DELAY = 10.0
MAX_RESTARTS = 10
LONG_LIFE = 30.0

# How long `close` waits for work to finish before it kills the engine.
DRAIN_SECONDS = 30.0


class EngineProcess:
    """One life of the engine: the process and the socket to it. Returns once it serves.

    Raises:
        CenoteError: what the engine said (ModelLoadError, InvalidRequest).
        EngineUnavailable: it died before it could say anything.
    """

    def __init__(self, config: EngineConfig, weights: str | None, placement: Placement) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cenote.engine.process", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(),
            )
            placement.apply(self.process.pid)
        self.connection: FrameSocket[FromEngine] = FrameSocket(ours, FromEngine)
        self.started = time.monotonic()
        try:
            self.connection.send(StartEngine(config, weights, _log_level()))
            self.ready = self._await_ready()
        except OSError as error:
            self.end()
            raise EngineUnavailable(f"The engine process died: {self.fate()}.") from error
        except BaseException:
            self.end()
            raise

    def _await_ready(self) -> EngineReady:
        answer = self.connection.receive()
        if isinstance(answer, EngineReady):
            return answer
        if isinstance(answer, ControlReply):
            raise from_code(answer.error_code or CenoteError.code, answer.error_message or "")
        self.end()
        raise EngineUnavailable(f"The engine process died while it started: {self.fate()}.")

    def end(self) -> None:
        """Makes sure that the process is no more."""
        self.process.kill()
        self.process.wait()
        self.connection.close()

    def fate(self) -> str:
        """How the process ended, for messages."""
        code = self.process.returncode
        return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"


class ProcessClient(BaseClient):
    """Starts the engine before it returns; see `EngineProcess` for what it raises."""

    def __init__(self, config: EngineConfig, placement: Placement | None = None) -> None:
        super().__init__(config)
        self._placement = placement or Placement()
        self._config = config
        self._weights: str | None = None
        self._closing = threading.Event()
        self._engine = EngineProcess(config, None, self._placement)
        self._ready = self._engine.ready
        self._unavailable = None
        self._thread = threading.Thread(target=self._run, name="cenote-engine-output", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int:
        """The engine's process id."""
        return self._engine.process.pid

    def control(self, method: str, **args: Any) -> Future[Any]:
        """See `EngineClient.control`. New weights are kept by an engine that is started again."""
        future = super().control(method, **args)
        if method == "reload_weights":
            future.add_done_callback(lambda done: self._note_weights(done, args.get("folder")))
        return future

    def _note_weights(self, done: Future[Any], folder: str | None) -> None:
        if not done.cancelled() and done.exception() is None:
            self._weights = folder

    def cork(self) -> None:
        self._engine.connection.cork()

    def uncork(self) -> None:
        try:
            self._engine.connection.uncork()
        except OSError:
            logger.debug("the engine is gone: what was kept fails with all that waits")

    def _send(self, message: ToEngine) -> None:
        self._engine.connection.send(message)

    def _run(self) -> None:
        restarts = 0
        while True:
            while (message := self._engine.connection.receive()) is not None:
                self._receive(message)
            if self._closing.is_set():
                return
            if time.monotonic() - self._engine.started > LONG_LIFE:
                restarts = 0
            restarts = self._recover(restarts)
            if self._unavailable is not None:
                return

    def _recover(self, restarts: int) -> int:
        """Fails what was pending and starts the engine again; how many restarts that makes."""
        self._unavailable = "The engine process died and is being started again."
        self._engine.end()
        logger.error("the engine process died: %s", self._engine.fate())
        self._fail_all(
            EngineUnavailable(f"The engine process died ({self._engine.fate()}); try again.")
        )
        while restarts < MAX_RESTARTS:
            delay = min(MAX_DELAY, FIRST_DELAY * 2.0**restarts)
            restarts += 1
            if self._closing.wait(delay):
                return restarts
            try:
                self._engine = EngineProcess(self._config, self._weights, self._placement)
            except (CenoteError, OSError) as error:
                logger.error("the engine could not be started again: %s", error)
                continue
            if self._closing.is_set():
                return restarts
            self._ready = self._engine.ready
            self._restarts += 1
            self._unavailable = None
            logger.warning("the engine was started again (%d)", self._restarts)
            return restarts
        self._unavailable = f"The engine died {MAX_RESTARTS} times in a row; see the log."
        logger.critical(self._unavailable)
        return restarts

    def close(self, timeout: float = DRAIN_SECONDS) -> None:
        """Finishes what was submitted, then stops the engine; after `timeout` seconds it is killed.
        May be called again."""
        self._unavailable = "The engine is shutting down."
        self._closing.set()
        self._engine.connection.finish_sending()
        self._thread.join(timeout)
        self._engine.end()
        self._thread.join()
        self._engine.end()  # One that was just being started again is another.
        self._fail_all(EngineUnavailable("The engine was closed."))


def _log_level() -> str:
    """What this process logs, in the words of `log.setup`."""
    level = logging.getLogger("cenote").getEffectiveLevel()
    names = ("error", "warning", "info")
    return next((name for name in names if level >= getattr(logging, name.upper())), "debug")


def _environment() -> dict[str, str]:
    """Ours, with this very package importable, from wherever it was imported here."""
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
