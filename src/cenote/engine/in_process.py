"""An engine in a thread of this process, for the offline API and for tests.

Messages are handed over as they are. The core, and torch with it, is imported when one is made.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from queue import SimpleQueue

from cenote.config.engine import EngineConfig
from cenote.engine.base_client import BaseClient
from cenote.engine.loop import Inbox, Landed, run_engine
from cenote.engine.messages import EngineReady, ToEngine
from cenote.errors import EngineUnavailable

logger = logging.getLogger(__name__)


class InProcessClient(BaseClient):
    """Loads the model before it returns.

    Raises:
        ModelLoadError: the model can't be found, read or served.
    """

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self._inbox: Inbox = SimpleQueue()
        started: Future[EngineReady] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(config, started), name="cenote-engine", daemon=True
        )
        self._thread.start()
        self._ready = started.result()
        self._unavailable = None

    def _send(self, message: ToEngine) -> None:
        self._inbox.put(message)

    def _run(self, config: EngineConfig, started: Future[EngineReady]) -> None:
        """The engine's thread: it alone touches the model."""
        try:
            from cenote.engine.core import EngineCore

            core = EngineCore(config, landed=lambda: self._inbox.put(Landed()))
        except BaseException as error:
            started.set_exception(error)
            return
        started.set_result(core.ready)
        try:
            run_engine(core, self._inbox, self._receive)
        except Exception:
            logger.exception("the engine died")
            self._unavailable = "The engine died; see the log."
            self._fail_all(EngineUnavailable(self._unavailable))

    def close(self) -> None:
        """Finishes what was submitted, then stops the engine. May be called again."""
        if self._unavailable is None:
            self._unavailable = "The engine was closed."
            self._inbox.put(None)
        if self._thread is not threading.current_thread():  # collected as garbage, anywhere
            self._thread.join()
        self._fail_all(EngineUnavailable("The engine was closed."))
