"""What the offline commands share: opening a model, and running texts in chunks.

It knows the public API only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from cenote.cli.console import stderr
from cenote.cli.texts import Pair, Text
from cenote.config.engine import EngineConfig
from cenote.errors import InvalidRequest

if TYPE_CHECKING:
    from cenote.llm import LLM

# Many of the chunks that LLM pipelines; small enough to show progress and to bound memory.
CHUNK = 8192

# Fields whose errors are one item's: its text, or one of a pair's.
_ABOUT_ITEMS = ("input", "queries", "documents")

ResultT = TypeVar("ResultT")
PlacedT = TypeVar("PlacedT", Text, Pair)


def open_model(config: EngineConfig) -> AbstractContextManager[LLM]:
    """The offline engine for a config; raises `ModelLoadError` with what to do."""
    with stderr.status(f"Loading {config.model}…"):
        from cenote.llm import LLM

        return LLM(**{name: getattr(config, name) for name in EngineConfig.names()})


def run_naming_lines(
    items: Sequence[PlacedT], run: Callable[[Sequence[PlacedT]], Sequence[ResultT]]
) -> list[ResultT]:
    """Results of a chunk; an item that is refused is found by halving, and the error names its
    line.

    Raises `InvalidRequest` with the place of the first item that was refused, or as it is where it
    is not about an item (a task that the model can't do).
    """
    try:
        return list(run(items))
    except InvalidRequest as error:
        if not (error.param or "").startswith(_ABOUT_ITEMS):
            raise
        if len(items) == 1:
            raise InvalidRequest(f"{items[0].place}: {error.message}", param=error.param) from error
        half = len(items) // 2
        return run_naming_lines(items[:half], run) + run_naming_lines(items[half:], run)


def strings(texts: Sequence[Text]) -> list[str]:
    """The texts alone."""
    return [item.text for item in texts]
