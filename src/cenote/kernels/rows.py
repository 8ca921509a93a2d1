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
    module = backend.native()
    if module is None:
        table.index_copy_(0, indices, rows)
        return
    indices = indices.contiguous()
    module.copy_rows(
        rows.data_ptr(),
        rows.stride(0) * rows.itemsize,
        table.data_ptr(),
        table.stride(0) * table.itemsize,
        rows.shape[0],
        rows.shape[1] * rows.itemsize,
        target_rows=indices.data_ptr(),
        target_count=table.shape[0],
    )


def take_rows(table: Tensor, indices: Tensor) -> Tensor:
    """table[indices], `[n, width]`, as for `put_rows`."""
    module = backend.native()
    if module is None:
        return table.index_select(0, indices)
    indices = indices.contiguous()
    rows = torch.empty((indices.shape[0], table.shape[1]), dtype=table.dtype)
    module.copy_rows(
        table.data_ptr(),
        table.stride(0) * table.itemsize,
        rows.data_ptr(),
        rows.stride(0) * rows.itemsize,
        rows.shape[0],
        rows.shape[1] * rows.itemsize,
        source_rows=indices.data_ptr(),
        source_count=table.shape[0],
    )
    return rows
