"""The keywords and texts of the offline API as the processors take them, refused by name.

It knows no model and no engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, cast

from cenote.config.engine import EngineConfig
from cenote.errors import InvalidRequest
from cenote.processors.inputs import Prompt, PromptOptions


def engine_config(model: str, settings: dict[str, Any]) -> EngineConfig:
    """Settings of an engine by their names. Raises `InvalidRequest`."""
    _refuse_unknown(settings, EngineConfig.names(), "setting")
    return EngineConfig(model=model, **settings)


def prompt_options(options: dict[str, Any]) -> PromptOptions:
    """Options of a request by their names. Raises `InvalidRequest`."""
    _refuse_unknown(options, [item.name for item in fields(PromptOptions)], "option")
    return PromptOptions(**options)


def _refuse_unknown(given: Iterable[str], known: Iterable[str], word: str) -> None:
    allowed = sorted(known)
    for name in given:
        if name not in allowed:
            near = get_close_matches(name, allowed, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InvalidRequest(
                f"Unknown {word} {name!r}.{hint} Known: {', '.join(allowed)}.", param=name
            )


def as_prompts(texts: Prompt | Iterable[Prompt]) -> Iterable[Prompt]:
    """One text, or one list of token ids, is a list of one prompt."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, Sequence) and texts and isinstance(texts[0], int):
        return [cast("Sequence[int]", texts)]
    if not isinstance(texts, Iterable):
        raise InvalidRequest(
            f"texts must be a text or a list of texts, not {type(texts).__name__}.", param="input"
        )
    return cast("Iterable[Prompt]", texts)


def as_texts(texts: str | Sequence[str]) -> list[str]:
    """One text is a list of one text."""
    return [texts] if isinstance(texts, str) else list(texts)
