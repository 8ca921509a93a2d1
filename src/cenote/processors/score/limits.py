"""Limits on one side's text: its first n tokens, cut by their character offsets before pairing.

It knows nothing of pairs, templates or models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cenote.errors import InvalidRequest
from cenote.processors.tokenizer import Tokenizer
from cenote.processors.validation import check_integer


@dataclass(frozen=True, slots=True)
class LimitedText:
    """A text after the limit, and whether anything was cut from it."""

    text: str
    truncated: bool = False


def check_limit(limit: int, param: str, max_model_len: int) -> None:
    """Refuses a negative limit, or one that is not below the model's; 0 means no limit."""
    check_integer(limit, param, least=0)
    if limit >= max_model_len:
        raise InvalidRequest(
            f"{param} must be below the model's maximum of {max_model_len} tokens, not {limit}.",
            param=param,
        )


def limit_texts(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[LimitedText]:
    """Each text's first `limit` tokens as text (special tokens don't count); 0: all of it."""
    if not limit:
        return [LimitedText(text) for text in texts]
    encoded = tokenizer.encode(
        list(texts), add_special_tokens=False, max_tokens=limit, side="right"
    )
    return [
        LimitedText(text[: item.offsets[-1][1]] if item.truncated else text, item.truncated)
        for text, item in zip(texts, encoded, strict=True)
    ]
