"""The four similarities of sentence-transformers, pair by pair, in float32.

Distances are negative, so that a greater number is always nearer. It knows no models.
Source: sentence-transformers, `SimilarityFunction`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cenote.config.pooling import Similarity

Floats = NDArray[np.float32]
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


def _unit(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: Floats = rows / np.maximum(norms, _SMALLEST_NORM)
    return unit
