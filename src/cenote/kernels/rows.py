"""Whole rows into a table and out of it, by index.

The native copy isn't there for its speed: torch's own starts torch's threads, which then wait for
more work on the cores that ours need. It knows nothing of what a row means.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cenote.kernels import backend


def put_rows(table: Tensor, indices: Tensor, rows: Tensor) -> None:
    """table[indices] = rows. `table` is `[N, width]`, `rows` `[n, width]` of its dtype, each row in
    one piece; `indices` int64 `[n]`, none of them twice. Raises IndexError where there is no such
    row."""
    if backend.native() is None:
        table.index_copy_(0, indices, rows)
        return
    indices = indices.contiguous()
    _copy(rows, table, len(indices), target_rows=indices.data_ptr(), target_count=len(table))


def take_rows(table: Tensor, indices: Tensor) -> Tensor:
    """table[indices], `[n, width]`, as for `put_rows`."""
    if backend.native() is None:
        return table.index_select(0, indices)
    indices = indices.contiguous()
    rows = torch.empty((len(indices), table.shape[1]), dtype=table.dtype)
    _copy(table, rows, len(indices), source_rows=indices.data_ptr(), source_count=len(table))
    return rows


def _copy(source: Tensor, target: Tensor, count: int, **by_index: int) -> None:
    """`count` rows; `by_index` says which ones, on the side that doesn't take them in turn."""
    backend.compiled().copy_rows(
        source.data_ptr(),
        source.stride(0) * source.itemsize,
        target.data_ptr(),
        target.stride(0) * target.itemsize,
        count,
        source.shape[1] * source.itemsize,
        **by_index,
    )
