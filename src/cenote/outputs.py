"""What a caller gets: one result type for each task, the same for one input and for many.

NumPy arrays in, NumPy arrays out; it knows nothing of HTTP, torch or the engine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cenote.params import Task


@dataclass(frozen=True, slots=True)
class Embedding:
    """A text's vector `[dim]`; `truncated` says whether tokens were cut from the prompt.

    It is float32 unless a precision was asked for (int8 or uint8; `[dim / 8]` for bits).

    `sparse` is its sparse vector, where that was asked for; a model without dense vectors then has
    an empty `embedding`. `span` is the vector's characters `[start, end)`, of late chunking.
    """

    embedding: NDArray[Any]
    prompt_tokens: int
    truncated: bool = False
    num_cached_tokens: int = 0
    sparse: SparseEmbedding | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TokenEmbeddings:
    """A text's token vectors `[rows, dim]` float32.

    `positions[i]` is the prompt position of row i (rows may be left out by a skip list) and
    `token_ids` the whole prompt.
    """

    embeddings: NDArray[np.float32]
    positions: NDArray[np.int32]
    token_ids: list[int]
    prompt_tokens: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SparseEmbedding:
    """A text's sparse vector: vocabulary ids and weights, heaviest first, no zeros.

    `tokens` are the vocabulary's own strings of the ids, where they were asked for.
    """

    token_ids: NDArray[np.int32]
    weights: NDArray[np.float32]
    prompt_tokens: int
    truncated: bool = False
    tokens: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Classification:
    """A text's class scores `[labels]` float32: probabilities, or logits if asked for.

    `label` is the name of the highest score, or None where the model has no names.
    """

    probs: NDArray[np.float32]
    label: str | None
    labels: tuple[str, ...]
    prompt_tokens: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class TokenClassification:
    """Class scores of each token `[tokens, labels]`, with the tokens' character offsets.

    `offsets[i]` is (start, end) in the text; (0, 0) for special tokens.
    """

    probs: NDArray[np.float32]
    labels: tuple[str, ...]
    token_ids: list[int]
    offsets: list[tuple[int, int]]
    prompt_tokens: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Entity:
    """A span of a text under one label: its characters `[start, end)`, its words, its score."""

    label: str
    score: float
    word: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Entities:
    """A text's entities in its order."""

    entities: list[Entity]
    prompt_tokens: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class TaskResults:
    """A text's results of several tasks, made in one forward pass, by task."""

    results: dict[Task, Embedding | Classification | TokenEmbeddings | SparseEmbedding]
    prompt_tokens: int
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class TokenMatch:
    """Why a document ranked: a query token, its best document token, and their similarity."""

    query_token: str
    query_offset: tuple[int, int]
    document_token: str
    document_offset: tuple[int, int]
    similarity: float


@dataclass(frozen=True, slots=True)
class Score:
    """One pair's score; `matches` only from late interaction, and only on request."""

    score: float
    prompt_tokens: int
    truncated: bool = False
    matches: list[TokenMatch] | None = None


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """One document of a rerank: its index in the request, its text, and its score."""

    index: int
    document: str
    relevance_score: float
    truncated: bool = False
    matches: list[TokenMatch] | None = None


@dataclass(frozen=True, slots=True)
class Ranking:
    """A rerank's documents, best first, and the tokens that ran (the query counted once)."""

    results: list[RankedDocument] = field(default_factory=list)
    prompt_tokens: int = 0
