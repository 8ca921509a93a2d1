"""A config field with the help text of the command-line flag that is made from it."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def flag(default: Any, text: str) -> Any:
    """A dataclass field whose metadata's `help` is the flag's help."""
    return field(default=default, metadata={"help": text})
