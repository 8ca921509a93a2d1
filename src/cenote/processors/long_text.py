"""Very long texts, of which a part decides: nobody tokenises 100 MB to keep, or to refuse, 512.

A part decides when it has so many tokens that no effect at its border could matter. It knows no
tokenizer: whoever calls counts tokens.
"""

from __future__ import annotations

from collections.abc import Callable

from cenote.params import TruncationSide

# The part looked at: so many characters for each token in question, and never fewer than this.
_CHARS_PER_TOKEN = 32
_LEAST_CHARS = 1 << 16

# Tokens don't reach over white space, save for a few in some vocabularies; a part ends at one and
# must have twice the tokens in question, so that its border can't change the answer.
_CERTAIN = 2


def deciding_part(
    text: str, tokens: int, side: TruncationSide, count: Callable[[str], int]
) -> tuple[int, int] | None:
    """Start and end of a part at the beginning of `text` that surely has over `tokens` tokens.

    With side `left`, at the end of `text`. None where the text is not long, or no part decides.
    """
    size = max(tokens * _CHARS_PER_TOKEN, _LEAST_CHARS)
    if len(text) <= size:
        return None
    if side == "right":
        start, end = 0, max(text.rfind(" ", 0, size), text.rfind("\n", 0, size))
    else:
        places = [text.find(blank, len(text) - size) for blank in (" ", "\n")]
        start, end = min((place for place in places if place >= 0), default=len(text)), len(text)
    if end <= start or count(text[start:end]) <= _CERTAIN * tokens:
        return None
    return start, end
