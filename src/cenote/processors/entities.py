"""From class scores of tokens to named entities: the strategies of transformers' pipeline.

`none` is one entity a token; `simple` joins neighbours of one label; `first`, `average` and `max`
let a word's tokens agree before that. It knows no model and no request. Source: transformers,
`TokenClassificationPipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from cenote.outputs import Entity, TokenClassification
from cenote.processors.tokenizer import Tokenizer

Strategy = Literal["none", "simple", "first", "average", "max"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

# The label of tokens outside of all entities.
OUTSIDE = "O"

Join = Callable[[list[str]], str]
Scores = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """A token of the text: its string, class scores `[labels]`, characters, and whether it goes on
    with the word before it."""

    word: str
    scores: Scores
    start: int
    end: int
    is_subword: bool


def find_entities(
    strategy: Strategy, found: TokenClassification, text: str, tokenizer: Tokenizer
) -> list[Entity]:
    """The entities of one text in its order, those of label O left out."""
    pieces = _pieces(found, text, tokenizer)
    labels, join = found.labels, tokenizer.join
    if strategy in ("none", "simple"):
        entities = [_entity([piece], piece.scores, labels, piece.word) for piece in pieces]
    else:
        entities = [_word(strategy, word, labels, join) for word in _words(pieces)]
    if strategy != "none":
        entities = [_joined(group, join) for group in _groups(entities)]
    return [entity for entity in entities if entity.label != OUTSIDE]


def _pieces(found: TokenClassification, text: str, tokenizer: Tokenizer) -> list[Piece]:
    """The rows that stand for characters of the text; special tokens and prompts do not."""
    words = tokenizer.tokens(found.token_ids)
    pieces = []
    rows = zip(found.probs, found.token_ids, words, found.offsets, strict=True)
    for scores, token_id, word, (start, end) in rows:
        if start == end:
            continue
        own = text[start:end]
        if token_id == tokenizer.unk_token_id:
            pieces.append(Piece(own, scores, start, end, False))
            continue
        if tokenizer.marks_subwords:
            is_subword = len(word) != len(own)
        else:
            is_subword = start > 0 and " " not in text[start - 1 : start + 1]
        pieces.append(Piece(word, scores, start, end, is_subword))
    return pieces


def _words(pieces: Sequence[Piece]) -> list[list[Piece]]:
    words: list[list[Piece]] = []
    for piece in pieces:
        if words and piece.is_subword:
            words[-1].append(piece)
        else:
            words.append([piece])
    return words


def _word(strategy: Strategy, word: list[Piece], labels: Sequence[str], join: Join) -> Entity:
    """A word's label, by its first token, its surest token or the mean of all."""
    if strategy == "first":
        scores = word[0].scores
    elif strategy == "max":
        scores = max(word, key=lambda piece: float(piece.scores.max())).scores
    else:
        scores = np.mean([piece.scores for piece in word], axis=0)
    return _entity(word, scores, labels, join([piece.word for piece in word]))


def _entity(pieces: list[Piece], scores: Scores, labels: Sequence[str], word: str) -> Entity:
    best = int(scores.argmax())
    return Entity(labels[best], float(scores[best]), word, pieces[0].start, pieces[-1].end)


def _groups(entities: list[Entity]) -> list[list[Entity]]:
    """Neighbours of one tag; a B- label begins anew."""
    if not entities:
        return []
    groups = [[entities[0]]]
    for before, entity in pairwise(entities):
        if _tag(entity.label) == _tag(before.label) and not entity.label.startswith("B-"):
            groups[-1].append(entity)
        else:
            groups.append([entity])
    return groups


def _joined(group: list[Entity], join: Join) -> Entity:
    """One entity of a group; its score is the mean."""
    return Entity(
        label=group[0].label.split("-", 1)[-1],
        score=float(np.mean([entity.score for entity in group])),
        word=join([entity.word for entity in group]),
        start=group[0].start,
        end=group[-1].end,
    )


def _tag(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label
