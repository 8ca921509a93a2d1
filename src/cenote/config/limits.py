"""How long a prompt may be: the positions', sentence-transformers' and the tokenizer's limits.

Lengths are in tokens and count special tokens. It knows no requests.
"""

from __future__ import annotations

from pathlib import Path

from cenote.config import fields
from cenote.config.files import read_object
from cenote.errors import ModelLoadError

# Where neither positions nor tokenizer nor sentence-transformers name a limit.
DEFAULT_LENGTH = 512

# Hugging Face writes "no limit" as 10**30; anything beyond this is no real limit.
_SANE_TOKENIZER_LENGTH = 10_000_000

# Their position ids start at pad_token_id + 1, so so many rows of the table are never reached.
_OFFSET_POSITIONS = frozenset(
    {
        "roberta",
        "xlm-roberta",
        "xlm-roberta-xl",
        "roberta-prelayernorm",
        "camembert",
        "mpnet",
        "longformer",
        "data2vec-text",
        "ibert",
        "luke",
        "xmod",
    }
)


def position_limit(hf: fields.Raw, model_type: str) -> int | None:
    """The most tokens that have a position, or None where the model has no such limit."""
    value = fields.first(hf, fields.POSITIONS)
    if value is None or value == -1:
        return None
    limit = fields.positive_int(hf, fields.POSITIONS)
    if model_type in _OFFSET_POSITIONS:
        padding = int(hf.get("pad_token_id", 1))
        if limit <= padding + 1:
            raise ModelLoadError(
                f"config.json: positions count from pad_token_id + 1, and {fields.POSITIONS[0]} "
                f"{limit} leaves none after pad_token_id {padding}."
            )
        limit -= padding + 1
    return limit


def tokenizer_limit(folder: Path) -> int | None:
    """`model_max_length` of tokenizer_config.json where it is a real limit."""
    value = read_object(folder / "tokenizer_config.json").get("model_max_length")
    if isinstance(value, int | float) and 1 <= value < _SANE_TOKENIZER_LENGTH:
        return int(value)
    return None


def max_model_len(
    *, positions: int | None, declared: int | None, tokenizer: int | None, wanted: int | None
) -> int:
    """The longest prompt. `wanted` (the user's) may pass all limits but the positions'.

    `declared` is sentence-transformers' `max_seq_length`. Raises `ModelLoadError` where `wanted`
    is more than the model has positions for.
    """
    if wanted is not None:
        if positions is not None and wanted > positions:
            raise ModelLoadError(
                f"max_model_len={wanted} is more than the model's positions allow ({positions}).",
                param="max_model_len",
            )
        return wanted
    limits = [limit for limit in (positions, declared, tokenizer) if limit is not None]
    return min(limits, default=DEFAULT_LENGTH)
