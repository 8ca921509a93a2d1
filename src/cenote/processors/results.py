"""Engine outputs to results: one builder for each task, the same for one prompt and for many.

It knows nothing of text, routes or how the prompts were made.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cenote.engine.messages import EngineOutput
from cenote.outputs import (
    Classification,
    Embedding,
    SparseEmbedding,
    TokenClassification,
    TokenEmbeddings,
)
from cenote.processors.prepare import TokenPrompt
from cenote.processors.tokenizer import Tokenizer


def embedding(prompt: TokenPrompt, output: EngineOutput) -> Embedding:
    """A vector `[dim]`."""
    return Embedding(
        embedding=_flat(output),
        prompt_tokens=len(prompt.token_ids),
        truncated=prompt.truncated,
        num_cached_tokens=output.num_cached_tokens,
    )


def classification(
    prompt: TokenPrompt, output: EngineOutput, labels: Sequence[str]
) -> Classification:
    """Class scores `[labels]` and the name of the highest, where the model has names."""
    probs = _flat(output)
    names = tuple(labels) if len(labels) == len(probs) else ()
    return Classification(
        probs=probs,
        label=names[int(probs.argmax())] if names else None,
        labels=names,
        prompt_tokens=len(prompt.token_ids),
        truncated=prompt.truncated,
    )


def token_embeddings(prompt: TokenPrompt, output: EngineOutput) -> TokenEmbeddings:
    """Vectors `[rows, dim]` with the prompt position of each row."""
    return TokenEmbeddings(
        embeddings=_floats(output),
        positions=positions(output),
        token_ids=prompt.token_ids,
        prompt_tokens=len(prompt.token_ids),
        truncated=prompt.truncated,
    )


def token_classification(
    prompt: TokenPrompt, output: EngineOutput, labels: Sequence[str]
) -> TokenClassification:
    """Class scores `[rows, labels]` with each row's token and its characters in the text."""
    rows = positions(output).tolist()
    return TokenClassification(
        probs=_floats(output),
        labels=tuple(labels),
        token_ids=[prompt.token_ids[row] for row in rows],
        offsets=[prompt.offsets[row] for row in rows],
        prompt_tokens=len(prompt.token_ids),
        truncated=prompt.truncated,
    )


def sparse_embedding(
    prompt: TokenPrompt, output: EngineOutput, tokenizer: Tokenizer | None = None
) -> SparseEmbedding:
    """Vocabulary ids and weights, heaviest first (equal weights by id), no zeros.

    With a `tokenizer` the result has the token strings as well.
    """
    weights = _flat(output)
    ids = positions(output)
    order = np.lexsort((ids, -weights))
    order = order[weights[order] != 0]
    return SparseEmbedding(
        token_ids=ids[order],
        weights=weights[order],
        prompt_tokens=len(prompt.token_ids),
        truncated=prompt.truncated,
        tokens=None if tokenizer is None else tokenizer.tokens(ids[order].tolist()),
    )


def _floats(output: EngineOutput) -> NDArray[np.float32]:
    """The numbers in their shape, see `_flat`."""
    return _flat(output).reshape(output.shape)


def _flat(output: EngineOutput) -> NDArray[np.float32]:
    """A writable float32 copy `[n]`, so that results outlive the message and may be changed."""
    return np.frombuffer(output.data, output.dtype).astype(np.float32)


def positions(output: EngineOutput) -> NDArray[np.int32]:
    """The output's indices; without any, its rows stand for the prompt's tokens in order."""
    indices = output.index_array()
    rows = output.shape[0] if output.shape else 0
    return np.arange(rows, dtype=np.int32) if indices is None else indices.copy()
