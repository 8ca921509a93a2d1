"""The four similarities of sentence-transformers, pair by pair, in float32, dense and sparse.

Distances are negative, so that a greater number is always nearer. It knows no models.
Source: sentence-transformers, `SimilarityFunction`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cenote.config.pooling import Similarity

Floats = NDArray[np.float32]
# Distinct vocabulary ids, and the weight of each.
SparseVector = tuple[NDArray[np.int32], Floats]
_SMALLEST_NORM = np.float32(1e-12)


def similarity(kind: Similarity, left: Floats, right: Floats) -> Floats:
    """Row-wise similarity of `left [n, dim]` and `right [n, dim]`: `[n]` float32."""
    result: Floats
    if kind == "cosine":
        result = (_unit(left) * _unit(right)).sum(axis=1)
    elif kind == "dot":
        result = (left * right).sum(axis=1)
    else:
        order = 1 if kind == "manhattan" else 2
        result = -np.linalg.norm(left - right, ord=order, axis=1)
    return result


def sparse_similarity(kind: Similarity, left: SparseVector, right: SparseVector) -> float:
    """The similarity of two sparse vectors, over the entries that either of them has."""
    entries = np.union1d(left[0], right[0])
    dense = np.zeros((2, len(entries)), dtype=np.float32)
    for row, (ids, weights) in zip(dense, (left, right), strict=True):
        row[np.searchsorted(entries, ids)] = weights
    return float(similarity(kind, dense[:1], dense[1:])[0])


def _unit(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = rows / np.maximum(norms, _SMALLEST_NORM)
    return unit
