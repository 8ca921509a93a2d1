"""One vector per sequence from its rows in the pack, always in float32.

It knows nothing of heads, tasks or requests.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from cenote.config.pooling import PoolingMode
from cenote.kernels import backend

_NATIVE_NAMES: dict[PoolingMode, str] = {
    "cls": "cls",
    "last": "last",
    "mean": "mean",
    "max": "max",
    "mean_sqrt_len": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
}


def pool(
    hidden: Tensor, cu_seqlens: Tensor, mode: PoolingMode, *, skip: Tensor | None = None
) -> Tensor:
    """Pools rows `[T, H]` float32 by sequence → `[N, H]` float32.

    `skip` (int32 `[N]`) leaves out leading rows (a prompt); at least a sequence's last row stays.
    `cls` is then the first row that stays. `weightedmean` weighs by the position in the whole
    sequence, from 1. Means and sums of one sequence don't depend on the rest of the pack.
    """
    if mode == "last":
        return hidden[cu_seqlens[1:] - 1]
    if skip is not None:
        skip = torch.minimum(skip, cu_seqlens.diff() - 1)
    if mode == "cls":
        return hidden[cu_seqlens[:-1] if skip is None else cu_seqlens[:-1] + skip]
    module = backend.native()
    if module is None or hidden.dtype != torch.float32:
        return pool_torch(hidden, cu_seqlens, mode, skip=skip)
    count = cu_seqlens.shape[0] - 1
    out = torch.empty((count, hidden.shape[1]), dtype=torch.float32)
    module.pool(
        _NATIVE_NAMES[mode],
        hidden.data_ptr(),
        backend.DTYPE_CODES[hidden.dtype],
        hidden.stride(0),
        hidden.shape[1],
        cu_seqlens.data_ptr(),
        count,
        out.data_ptr(),
        skip=0 if skip is None else skip.data_ptr(),
    )
    return out


def pool_torch(
    hidden: Tensor, cu_seqlens: Tensor, mode: PoolingMode, *, skip: Tensor | None = None
) -> Tensor:
    """The oracle of `pool` for the modes that read every row."""
    lengths = cu_seqlens.diff()
    count = lengths.shape[0]
    numbers = torch.arange(count, device=hidden.device)
    owner = numbers.repeat_interleave(lengths, output_size=hidden.shape[0])  # [T] sequence of a row
    place = torch.arange(hidden.shape[0], device=hidden.device) - cu_seqlens[owner]
    if skip is not None:
        kept = place >= skip[owner]
        hidden, owner, place = hidden[kept], owner[kept], place[kept]
        lengths = lengths - skip
    out = hidden.new_zeros((count, hidden.shape[1]))
    if mode == "max":
        index = owner.unsqueeze(1).expand_as(hidden)
        return out.scatter_reduce_(0, index, hidden, reduce="amax", include_self=False)
    if mode == "weightedmean":
        weights = (place + 1).float()
        total = weights.new_zeros(count).index_add_(0, owner, weights)
        return out.index_add_(0, owner, hidden * weights.unsqueeze(1)) / total.unsqueeze(1)
    divisor = lengths.unsqueeze(1).float()
    return out.index_add_(0, owner, hidden) / (
        divisor.sqrt() if mode == "mean_sqrt_len" else divisor
    )


def normalize(x: Tensor) -> Tensor:
    """Rows `[n, d]` float32 divided by their length (at least 1e-12)."""
    module = backend.native()
    if module is None or not x.is_cpu or not x.is_contiguous():
        return F.normalize(x, dim=-1)
    out = torch.empty_like(x)
    module.l2_normalize(x.data_ptr(), out.data_ptr(), x.shape[0], x.shape[1])
    return out
