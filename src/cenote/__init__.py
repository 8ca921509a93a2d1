"""Cenote: an engine and server for pooling models.

The public names. They are loaded on first use, so that `import cenote` (and with it the command
line and the API process) loads neither torch nor a tokenizer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cenote.config.engine import EngineConfig
    from cenote.errors import (
        CenoteError,
        InputTooLong,
        InvalidRequest,
        ModelLoadError,
        Overloaded,
        UnsupportedInput,
        UnsupportedTask,
    )
    from cenote.llm import LLM
    from cenote.outputs import (
        Classification,
        Embedding,
        Entities,
        Entity,
        RankedDocument,
        Ranking,
        Score,
        SparseEmbedding,
        TaskResults,
        TokenClassification,
        TokenEmbeddings,
        TokenMatch,
    )
    from cenote.params import PoolingParams

__version__ = "0.1.0"

_HOMES = {
    "cenote.config.engine": ("EngineConfig",),
    "cenote.errors": (
        "CenoteError",
        "InputTooLong",
        "InvalidRequest",
        "ModelLoadError",
        "Overloaded",
        "UnsupportedInput",
        "UnsupportedTask",
    ),
    "cenote.llm": ("LLM",),
    "cenote.outputs": (
        "Classification",
        "Embedding",
        "Entities",
        "Entity",
        "RankedDocument",
        "Ranking",
        "Score",
        "SparseEmbedding",
        "TaskResults",
        "TokenClassification",
        "TokenEmbeddings",
        "TokenMatch",
    ),
    "cenote.params": ("PoolingParams",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "LLM",
    "CenoteError",
    "Classification",
    "Embedding",
    "EngineConfig",
    "Entities",
    "Entity",
    "InputTooLong",
    "InvalidRequest",
    "ModelLoadError",
    "Overloaded",
    "PoolingParams",
    "RankedDocument",
    "Ranking",
    "Score",
    "SparseEmbedding",
    "TaskResults",
    "TokenClassification",
    "TokenEmbeddings",
    "TokenMatch",
    "UnsupportedInput",
    "UnsupportedTask",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'cenote' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
