"""Long texts, of which a part decides: nobody tokenises 100 MB to keep, or to refuse, 512.

A part decides when it has so many tokens that no effect at its border could matter. Tokens don't
reach over white space, save for a few in some vocabularies, so a part ends at one. It knows no
tokenizer: whoever calls encodes or counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tokenizers import Encoding

from cenote.params import TruncationSide

# A text, or a pair of them.
Input = str | tuple[str, str]

# The part looked at for a count: so many characters for each token in question, and never fewer
# than this. It must have twice the tokens in question.
_CHARS_PER_TOKEN = 32
_LEAST_CHARS = 1 << 16
_CERTAIN = 2

# A beginning: mostly enough characters for the tokens in question and a border's, else all is
# encoded after all.
_LIKELY_CHARS_PER_TOKEN = 8
_LEAST_LIKELY_CHARS = 1 << 10
_BORDER_TOKENS = 64


def encode_for_cut(
    inputs: Sequence[Input],
    tokens: int,
    side: TruncationSide,
    encode: Callable[[Sequence[Input]], list[Encoding]],
    count: Callable[[str], int],
) -> tuple[list[Encoding], list[int]]:
    """Encodings of texts, or of pairs, that will be cut to `tokens` tokens, without what is surely
    cut away of a text, or of a pair's second one; and where in its text each begins.

    `count` tells how many tokens a text has, without special ones.
    """
    if side == "right":
        return _encode_beginnings(inputs, tokens, encode, count), [0] * len(inputs)
    parts, starts = _decided(inputs, tokens, side, count)
    return encode(parts), starts


def _encode_beginnings(
    inputs: Sequence[Input],
    tokens: int,
    encode: Callable[[Sequence[Input]], list[Encoding]],
    count: Callable[[str], int],
) -> list[Encoding]:
    shorter = [_beginning(one, tokens) for one in inputs]
    encodings = encode(shorter)
    unsure = [
        at
        for at, (one, part) in enumerate(zip(inputs, shorter, strict=True))
        if part is not one and not _decides(encodings[at], tokens, isinstance(one, tuple))
    ]
    if unsure:
        longer, _ = _decided([inputs[at] for at in unsure], tokens, "right", count)
        for at, encoding in zip(unsure, encode(longer), strict=True):
            encodings[at] = encoding
    return encodings


def _decided(
    inputs: Sequence[Input], tokens: int, side: TruncationSide, count: Callable[[str], int]
) -> tuple[list[Input], list[int]]:
    """Very long texts' deciding parts, all else as it is; and their starts."""
    shorter, starts = list(inputs), [0] * len(inputs)
    for at, one in enumerate(inputs):
        if isinstance(one, tuple):
            continue
        part = deciding_part(one, tokens, side, count)
        if part is not None:
            shorter[at], starts[at] = one[part[0] : part[1]], part[0]
    return shorter, starts


def _beginning(one: Input, tokens: int) -> Input:
    """`one` itself where it is short or nowhere to be parted."""
    text = one if isinstance(one, str) else one[1]
    size = max(tokens * _LIKELY_CHARS_PER_TOKEN, _LEAST_LIKELY_CHARS)
    end = _last_blank(text, size) if len(text) > size else 0
    if end <= 0:
        return one
    return text[:end] if isinstance(one, str) else (one[0], text[:end])


def _decides(encoding: Encoding, tokens: int, is_pair: bool) -> bool:
    if not is_pair:
        return len(encoding.ids) > tokens + _BORDER_TOKENS
    # Which of two texts is the longer one matters as well.
    sequences = encoding.sequence_ids
    return sequences.count(1) > max(tokens + _BORDER_TOKENS, sequences.count(0))


def _last_blank(text: str, end: int) -> int:
    return max(text.rfind(" ", 0, end), text.rfind("\n", 0, end))


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
        start, end = 0, _last_blank(text, size)
    else:
        places = [text.find(blank, len(text) - size) for blank in (" ", "\n")]
        start, end = min((place for place in places if place >= 0), default=len(text)), len(text)
    if end <= start or count(text[start:end]) <= _CERTAIN * tokens:
        return None
    return start, end
