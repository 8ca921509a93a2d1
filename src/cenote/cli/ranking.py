"""Whether two sets of vectors of the same texts rank them alike. It knows no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Ranking:
    """Shares of texts, 0 to 1: whose nearest neighbour stays, and of ten neighbours that stay."""

    top1: float
    top10: float
    median_cosine: float


def agreement(
    ours: Sequence[NDArray[np.float32]], theirs: Sequence[NDArray[np.float32]]
) -> Ranking:
    """Every text asks for its neighbours among the others, in both sets of vectors (length one)."""
    left, right = np.stack(ours).astype(float), np.stack(theirs).astype(float)
    first, second = _neighbours(left), _neighbours(right)
    shared = [len(set(a) & set(b)) for a, b in zip(first, second, strict=True)]
    return Ranking(
        top1=float((first[:, 0] == second[:, 0]).mean()),
        top10=float(np.mean(shared)) / first.shape[1],
        median_cosine=float(np.median((left * right).sum(axis=1))),
    )


def _neighbours(vectors: NDArray[np.float64]) -> NDArray[np.intp]:
    """The nearest others of each row, nearest first."""
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    nearest: NDArray[np.intp] = np.argsort(-cosines, axis=1)[:, :NEIGHBOURS]
    return nearest
