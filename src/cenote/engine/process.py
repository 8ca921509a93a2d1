"""`python -m cenote.engine.process FD`: an engine in its own process, talking over socket FD.

The first message in is `StartEngine`; the first one out is `EngineReady`, or a `ControlReply` with
the error that kept it from starting. When the other side stops sending, the engine finishes its
work and ends; when the other side is gone, it ends after the step that runs. So it outlives its
parent by no more than a step, and SIGTERM and SIGINT, which a terminal or a supervisor sends to
all, are left to the parent.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from queue import SimpleQueue

from cenote import garbage, log
from cenote.engine.frames import FrameSocket
from cenote.engine.loop import Inbox, Landed, run_engine
from cenote.engine.messages import ControlReply, FromEngine, StartEngine, ToEngine
from cenote.errors import CenoteError

logger = logging.getLogger(__name__)

# The call id of the reply that says why an engine could not start.
START = "start"


def main(arguments: list[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    connection: FrameSocket[ToEngine] = FrameSocket(
        socket.socket(fileno=int(arguments[0])), ToEngine
    )
    start = connection.receive()
    if not isinstance(start, StartEngine):
        return 1
    log.setup(start.log_level)
    try:
        _serve(start, connection)
    except OSError as error:
        logger.info("the other side is gone: %s", error)
    return 0


def _serve(start: StartEngine, connection: FrameSocket[ToEngine]) -> None:
    inbox: Inbox = SimpleQueue()
    try:
        from cenote.engine.core import EngineCore

        core = EngineCore(start.config, landed=lambda: inbox.put(Landed()))
        if start.weights is not None:
            core.control("reload_weights", {"folder": start.weights})
    except CenoteError as error:
        connection.send(_refusal(error.code, error.message))
        return
    except Exception as error:
        logger.exception("the engine could not start")
        connection.send(_refusal(CenoteError.code, f"{type(error).__name__}: {error}"))
        return
    garbage.settle()
    connection.send(core.ready)
    threading.Thread(
        target=_read, args=(connection, inbox), name="cenote-engine-input", daemon=True
    ).start()

    def emit(message: FromEngine) -> None:
        connection.send(message)

    run_engine(core, inbox, emit)


def _read(connection: FrameSocket[ToEngine], inbox: Inbox) -> None:
    """Decodes messages while the model computes; the end of the stream closes the inbox."""
    while (message := connection.receive()) is not None:
        inbox.put(message)
    inbox.put(None)


def _refusal(code: str, message: str) -> ControlReply:
    return ControlReply(START, error_code=code, error_message=message)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
