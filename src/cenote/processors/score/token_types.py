"""The token types of a pair as one number, which is how they travel to the model runner.

Types of a pair are 0…01…1, so the position of the first 1 says all. It knows no text.
"""

from __future__ import annotations

from collections.abc import Sequence

from cenote.errors import CenoteError

KEY = "compressed_token_type_ids"


def compress(type_ids: Sequence[int]) -> int:
    """The position of the first 1, or the length where there is none.

    Raises `CenoteError` for any other shape than 0…01…1: such a tokenizer can't be served so.
    """
    length = len(type_ids)
    first = next((index for index, kind in enumerate(type_ids) if kind != 0), length)
    if any(kind != 1 for kind in type_ids[first:]):
        raise CenoteError(
            "The tokenizer's token types are not zeros followed by ones; pairs can't be encoded."
        )
    return first
