"""Which tokens of an encoded prompt stay when it is cut; the only place where prompts are cut.

Special tokens always stay: the content is cut so that all fits. The rules are those of Hugging
Face's tokenizers, so that a cut prompt has the reference's very tokens. It knows no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cenote.errors import InvalidRequest
from cenote.params import TruncationSide

Strategy = Literal["longest_first", "only_first", "only_second"]


def kept_lengths(first: int, second: int, room: int, strategy: Strategy) -> tuple[int, int]:
    """Content tokens that each of a pair's texts keeps so that both fit into `room`.

    `longest_first` takes from the longer text; where that doesn't suffice both get half, and the
    odd token goes to the longer one (to the second of two equal ones). `only_first` and
    `only_second` leave the other text whole: they raise `InvalidRequest` where nothing fits then.
    """
    if first + second <= room:
        return first, second
    if strategy != "longest_first":
        kept = first if strategy == "only_second" else second
        if kept > room:
            name, other = ("first", "second") if strategy == "only_second" else ("second", "first")
            raise InvalidRequest(
                f"The {name} text has {kept} tokens, which leaves no room for the {other} within "
                f"{room} tokens."
            )
        return (first, room - first) if strategy == "only_second" else (room - second, second)
    shorter = min(first, second)
    longer = shorter if shorter > room else max(shorter, room - shorter)
    if shorter + longer > room:
        shorter, longer = room // 2, room // 2 + room % 2
    return (longer, shorter) if first > second else (shorter, longer)


def kept_positions(
    sequence_ids: Sequence[int | None], room: int, side: TruncationSide, strategy: Strategy
) -> list[int]:
    """Positions that stay of a prompt whose tokens are special (None) or of text 0 or 1.

    `room` is what special tokens leave for content.
    """
    places: tuple[list[int], list[int]] = ([], [])
    for position, sequence in enumerate(sequence_ids):
        if sequence is not None:
            places[sequence].append(position)
    if places[1]:
        lengths = kept_lengths(len(places[0]), len(places[1]), room, strategy)
    else:
        lengths = (min(len(places[0]), room), 0)
    kept = {i for i, sequence in enumerate(sequence_ids) if sequence is None}
    for own, length in zip(places, lengths, strict=True):
        kept.update(cut(own, length, side))
    return sorted(kept)


def cut(items: list[int], length: int, side: TruncationSide) -> list[int]:
    """The first `length` items, or the last ones for a cut on the left."""
    return items[:length] if side == "right" else items[max(len(items) - length, 0) :]
