"""Pools a prompt whose rows come in parts, so that none of them has to be kept.

It gives what `kernels.pooling.pool` gives for all rows at once. It knows no heads and no requests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from cenote.config.pooling import PoolingMode


class RunningPool:
    """The rows so far of one prompt of `length` tokens, by several modes; float32.

    `skip` leading rows take no part; at least the last one does.
    """

    def __init__(self, modes: Sequence[PoolingMode], length: int, skip: int = 0) -> None:
        self.modes = modes
        self.skip = min(skip, length - 1)
        self.count = 0  # rows that took part
        self._states: list[Tensor] = []

    def add(self, rows: Tensor, start: int) -> None:
        """Rows `[n, H]` of the tokens from `start` on."""
        rows = rows[max(self.skip - start, 0) :]
        if not len(rows):
            return
        place = max(self.skip, start)
        new = [_reduce(mode, rows, place) for mode in self.modes]
        if self.count:
            new = [_merge(*of) for of in zip(self.modes, self._states, new, strict=True)]
        self._states = new
        self.count += len(rows)

    def result(self) -> Tensor:
        """`[modes · H]` of all rows."""
        finished = [_finish(*of, self) for of in zip(self.modes, self._states, strict=True)]
        return torch.cat(finished)


def _reduce(mode: PoolingMode, rows: Tensor, place: int) -> Tensor:
    """One new row out of rows of which the first is token `place`."""
    match mode:
        case "cls":
            return rows[0].clone()
        case "last":
            return rows[-1].clone()
        case "max":
            return rows.amax(dim=0)
        case "weightedmean":
            weights = torch.arange(place + 1, place + 1 + len(rows), device=rows.device)
            weighted: Tensor = weights.to(rows.dtype) @ rows
            return weighted
        case "mean" | "mean_sqrt_len":
            return rows.sum(dim=0)


def _merge(mode: PoolingMode, before: Tensor, new: Tensor) -> Tensor:
    match mode:
        case "cls":
            return before
        case "last":
            return new
        case "max":
            return torch.maximum(before, new)
        case _:
            return before + new


def _finish(mode: PoolingMode, state: Tensor, pool: RunningPool) -> Tensor:
    count = float(pool.count)
    match mode:
        case "mean":
            return state / count
        case "mean_sqrt_len":
            return state / math.sqrt(count)
        case "weightedmean":  # the sum of the weights skip + 1 … skip + count
            return state / (count * (2 * pool.skip + count + 1) / 2)
        case _:
            return state
