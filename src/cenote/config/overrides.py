"""Settings of one model among several: `MODEL:FIELD=VALUE` on top of what all models share.

It knows the fields of `EngineConfig` and their types, and nothing of what they mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cenote.config.engine import EngineConfig
from cenote.errors import InvalidRequest

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def engines_for(
    models: Iterable[str], shared: EngineConfig, overrides: Iterable[str]
) -> list[EngineConfig]:
    """A config for each model: the shared one with the model's own settings in it.

    Raises `InvalidRequest` for an override of a model or field that isn't there, or whose value is
    not of the field's type.
    """
    names = list(models)
    if len(set(names)) < len(names):
        raise InvalidRequest("A model is named twice; give it an alias instead.", param="model")
    own: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in overrides:
        head, equals, value = text.partition("=")
        model, _, field = head.rpartition(":")
        if not equals or model not in own:
            raise InvalidRequest(
                f"override must be MODEL:FIELD=VALUE with one of the models {names}, not {text!r}.",
                param="override",
            )
        own[model][field] = _value(field, value)
    return [replace(shared, model=name, **own[name]) for name in names]


def _value(field: str, text: str) -> Any:
    known = [name for name in EngineConfig.names() if name != "model"]
    if field not in known:
        raise InvalidRequest(
            f"override names an unknown setting {field!r}. Known: {', '.join(known)}.",
            param="override",
        )
    for kind in _kinds(get_type_hints(EngineConfig)[field]):
        try:
            return _parsed(kind, text)
        except ValueError:
            continue
    raise InvalidRequest(f"override: {text!r} is no value for {field}.", param="override")


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The types that a field may have, None among them first."""
    if get_origin(hint) in (Literal, tuple):
        return (hint,)
    return tuple(sorted(get_args(hint), key=lambda kind: kind is not type(None))) or (hint,)


def _parsed(kind: Any, text: str) -> Any:
    """`text` as one type; raises ValueError."""
    if kind is type(None):
        if text.lower() in ("", "none", "null"):
            return None
        raise ValueError
    if kind is bool:
        if text.lower() in _WORDS:
            return _WORDS[text.lower()]
        raise ValueError
    if get_origin(kind) is Literal:
        if text in get_args(kind):
            return text
        raise ValueError
    if get_origin(kind) is tuple:
        return tuple(part for part in text.split(",") if part)
    return kind(text)
