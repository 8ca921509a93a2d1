"""A config field with the help of the command-line flag that is made from it, and its check."""

from __future__ import annotations

from dataclasses import field, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cenote.errors import InvalidRequest


def flag(default: Any, text: str) -> Any:
    """A dataclass field whose metadata's `help` is the flag's help."""
    return field(default=default, metadata={"help": text})


def check_values(config: Any) -> None:
    """Refuses, by name, a field of a dataclass whose value is not of its declared type.

    The command line has checked its flags; keywords of the offline API come as they are.
    """
    hints = get_type_hints(type(config))
    for item in fields(config):
        value, hint = getattr(config, item.name), hints[item.name]
        if not _fits(value, hint):
            raise InvalidRequest(
                f"{item.name} must be {_words(hint)}, not {value!r}.", param=item.name
            )


def _fits(value: Any, hint: Any) -> bool:
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Literal:
        return value in parts
    if kind in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is tuple:
        return isinstance(value, list | tuple) and all(_fits(one, parts[0]) for one in value)
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return isinstance(value, hint)


def _words(hint: Any) -> str:
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if kind in (Union, UnionType):
        return " or ".join(_words(part) for part in parts)
    if kind is tuple:
        return "a list of strings"
    names = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}
    return names.get(hint, "None")
