"""The product of rows with a vector for each vocabulary entry, a run of entries at a time.

All logits of a few hundred rows would be tens of megabytes, written once and read once; a run of
them stays in the cache for whoever reduces them. It knows nothing of where rows come from.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from cenote.kernels.linear import LinearWeight, linear

# Entries in a run: with some hundred rows, logits that fit the cache beside the weights.
RUN = 1024


class VocabularyProduct:
    """rows · Wᵀ + b for W `[vocab, width]`, prepared once, computed in `dtype`."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self.runs = [
            LinearWeight.prepare(
                weight[first : first + RUN],
                None if bias is None else bias[first : first + RUN],
                dtype,
            )
            for first in range(0, weight.shape[0], RUN)
        ]

    def __call__(self, rows: Tensor) -> Iterator[Tensor]:
        """Logits `[n, entries]` float32 of rows `[n, width]`, run by run of the vocabulary."""
        return (linear(rows, run, out_dtype=torch.float32) for run in self.runs)
