"""The engine's loop: takes messages from an inbox, steps, gives messages to `emit`.

The same for an engine in a thread and in a process of its own. While nothing is to be done it
blocks on the inbox, so an idle engine uses no CPU. It knows no transport.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from cenote.engine.messages import (
    AbortRequests,
    AddRequests,
    ControlReply,
    ControlRequest,
    FromEngine,
    ToEngine,
)
from cenote.errors import CenoteError

if TYPE_CHECKING:
    from cenote.engine.core import EngineCore

logger = logging.getLogger(__name__)


class Landed:
    """A step that was under way may be ended."""


# None: no more messages come; finish what is there, then stop.
Inbox = SimpleQueue[ToEngine | Landed | None]


def run_engine(core: EngineCore, inbox: Inbox, emit: Callable[[FromEngine], None]) -> None:
    """Runs until the inbox is closed and all work is done."""
    controls: deque[ControlRequest] = deque()
    is_open = True
    while is_open or controls or core.has_work:
        control_is_due = controls and core.ready_for(controls[0].method)
        for message in _take(inbox, wait=not (control_is_due or core.can_step)):
            match message:
                case AddRequests(requests):
                    core.add(requests)
                case AbortRequests(request_ids):
                    core.abort(request_ids)
                case ControlRequest():
                    controls.append(message)
                case None:
                    is_open = False
        if controls and core.ready_for(controls[0].method):
            emit(_control(core, controls.popleft()))
        core.launch()
        if core.can_step:
            outputs = core.land()
            if outputs.outputs or outputs.stats is not None:
                emit(outputs)


def _take(inbox: Inbox, *, wait: bool) -> list[ToEngine | Landed | None]:
    """All messages that are there; at least one if `wait`."""
    messages = [inbox.get()] if wait else []
    try:
        while True:
            messages.append(inbox.get_nowait())
    except Empty:
        return messages


def _control(core: EngineCore, call: ControlRequest) -> ControlReply:
    try:
        return ControlReply(call.call_id, core.control(call.method, call.args))
    except CenoteError as error:
        return ControlReply(call.call_id, error_code=error.code, error_message=error.message)
    except Exception as error:
        logger.exception("control call %s failed", call.method)
        message = f"{call.method} failed: {type(error).__name__}: {error}"
        return ControlReply(call.call_id, error_code=CenoteError.code, error_message=message)
