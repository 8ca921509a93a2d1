"""Half of a surrogate pair: a Python string may hold one, no text does. It knows no tokens."""

from __future__ import annotations

from collections.abc import Sequence

from cenote.errors import InvalidRequest


def refuse_surrogates(inputs: Sequence[str | tuple[str, str]], param: str) -> None:
    """Raises `InvalidRequest` if one of the texts, or of the pairs' texts, has one."""
    for item in inputs:
        for text in (item,) if isinstance(item, str) else item:
            at = next((i for i, char in enumerate(text) if "\ud800" <= char <= "\udfff"), None)
            if at is not None:
                raise InvalidRequest(
                    f"A text has half of a surrogate pair, {text[at]!r}, at character {at}, so it "
                    "is not valid Unicode.",
                    param=param,
                )
