"""Relative positions as buckets of distance (Raffel et al. 2019, arXiv:1910.10683, section 2.1).

Near distances have a bucket each, far ones share buckets that widen logarithmically. It knows
nothing of what is done with a bucket's row.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def distance_buckets(distances: Tensor, buckets: int, max_distance: int) -> Tensor:
    """The bucket of each distance (key position - query position), int64, both directions.

    Keys after the query have the upper half of the buckets. Distances from `max_distance` on share
    the last bucket of their half. Computed in float32, as the references do, so that a distance on
    a boundary falls into the same bucket.
    """
    half = buckets // 2
    exact = half // 2
    away = distances.abs()
    far = (away.float() / exact).log() / math.log(max_distance / exact) * (half - exact)
    far = (exact + far.clamp(min=0).long()).clamp(max=half - 1)
    return torch.where(away < exact, away, far) + (distances > 0) * half


# Tables are made for lengths in steps of this.
_SIZE_STEP = 64


class RelativeBias(nn.Module):
    """One number for each head and distance, added to the logits of all layers (T5, MPNet).

    The table for the longest sequence so far is kept: shorter ones are its upper left corner.
    """

    def __init__(self, heads: int, buckets: int, max_distance: int) -> None:
        super().__init__()
        self.buckets = buckets
        self.max_distance = max_distance
        self.weight = nn.Parameter(torch.empty(buckets, heads, dtype=torch.float32))
        self._table: Tensor | None = None

    def forward(self, length: int) -> Tensor:
        """float32 `[heads, n, n]` by query and key position in a sequence, n at least `length`."""
        table = self._table  # other threads may put another one in its place
        if table is None or table.shape[1] < length:
            table = self._table = self._make(-(-length // _SIZE_STEP) * _SIZE_STEP)
        return table

    def _make(self, length: int) -> Tensor:
        distances = torch.arange(1 - length, length, device=self.weight.device)
        rows = self.weight[distance_buckets(distances, self.buckets, self.max_distance)]
        # Row q of a head is the window of its distances that starts at -q: all are views of one
        # line, read backwards.
        windows = rows.T.unfold(1, length, 1)  # [heads, length, length], first window: the last q
        return windows.flip(1).contiguous()
