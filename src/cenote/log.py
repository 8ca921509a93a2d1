"""Logging: who starts a process sets it up once; a library user who doesn't hears warnings only.

Lines go to standard error, for people or as one JSON object each. Nothing is logged, and no handler
is made, at import. It knows nothing of requests.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from cenote.config import env

ROOT = "cenote"

# What every record has; anything else was given by `extra=` and belongs into the JSON line.
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def get_logger(name: str) -> logging.Logger:
    """The logger of a module; give it `__name__`."""
    return logging.getLogger(name if name.startswith(ROOT) else f"{ROOT}.{name}")


def setup(level: str | None = None, format: str | None = None) -> None:
    """Sends Cenote's log to standard error. None: CENOTE_LOG_LEVEL, CENOTE_LOG_FORMAT.

    A second call replaces the first. Raises `InvalidRequest` for an unknown level or format.
    """
    chosen = level or env.LOG_LEVEL.read()
    env.LOG_LEVEL.read({env.LOG_LEVEL.name: chosen or ""})
    style = format or env.LOG_FORMAT.read()
    env.LOG_FORMAT.read({env.LOG_FORMAT.name: style or ""})
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger(ROOT)
    root.handlers[:] = [handler]
    root.setLevel(str(chosen).upper())
    root.propagate = False


class TextFormatter(logging.Formatter):
    """`12:34:56 INFO engine.core: message`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(short)s: %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record.short = record.name.removeprefix(f"{ROOT}.")
        return super().format(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, `extra` fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({key: value for key, value in record.__dict__.items() if key not in _STANDARD})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)
