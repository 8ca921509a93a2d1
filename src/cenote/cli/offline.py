"""What the offline commands share: opening a model, and running texts in chunks.

It knows the public API only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from cenote.cli.console import stderr
from cenote.cli.texts import Text
from cenote.config.engine import EngineConfig
from cenote.errors import InvalidRequest

if TYPE_CHECKING:
    from cenote.llm import LLM

# Many of the chunks that LLM pipelines; small enough to show progress and to bound memory.
CHUNK = 8192

ResultT = TypeVar("ResultT")


def open_model(config: EngineConfig) -> AbstractContextManager[LLM]:
    """The offline engine for a config; raises `ModelLoadError` with what to do."""
    with stderr.status(f"Loading {config.model}…"):
        from cenote.llm import LLM

        return LLM(**{name: getattr(config, name) for name in EngineConfig.names()})


def run_naming_lines(
    texts: Sequence[Text], run: Callable[[list[str]], Sequence[ResultT]]
) -> list[ResultT]:
    """Results of a chunk; a text that is refused is found by halving, and the error names its line.

    Raises `InvalidRequest` with the place of the first text that was refused, or as it is where it
    is not about a text (a task that the model can't do).
    """
    try:
        return list(run([item.text for item in texts]))
    except InvalidRequest as error:
        if not (error.param or "").startswith("input"):
            raise
        if len(texts) == 1:
            raise InvalidRequest(f"{texts[0].place}: {error.message}", param=error.param) from error
        half = len(texts) // 2
        return run_naming_lines(texts[:half], run) + run_naming_lines(texts[half:], run)
