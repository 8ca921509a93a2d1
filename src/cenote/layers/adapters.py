"""What adapters add to matrix products and to tables, and which rows of a pack each one is for.

An adapter changes a matrix by a product of two narrow ones (LoRA, Hu et al. 2021,
arXiv:2106.09685). The base product runs on all rows together, and each adapter's small one on its
rows. It knows nothing of where adapters come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Generic, TypeVar

import torch
from torch import Tensor

from cenote.layers.packed import PackedBatch


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """Rows of the pack, side by side, whose sequences have the same adapter (by its number)."""

    adapter: int
    rows: slice


def adapter_rows(batch: PackedBatch, numbers: Mapping[str, int]) -> list[AdapterRows]:
    """Where a batch's adapters are; sequences without one, or with one not in `numbers`, aren't
    listed."""
    if batch.adapters is None:
        return []
    ends = list(accumulate(batch.seq_lens))
    found = []
    for name, run in groupby(range(len(ends)), batch.adapters.__getitem__):
        if name is not None and name in numbers:
            sequences = list(run)
            start = ends[sequences[0]] - batch.seq_lens[sequences[0]]
            found.append(AdapterRows(numbers[name], slice(start, ends[sequences[-1]])))
    return found


class ActiveAdapters:
    """The adapters of the rows that a model is running: told for each batch, read by its layers.

    One thread at a time, as the model itself.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.groups: Sequence[AdapterRows] = ()

    def add(self, names: Iterable[str]) -> None:
        """Further adapters, numbered on in their order."""
        for name in names:
            self.numbers.setdefault(name, len(self.numbers))

    def for_batch(self, batch: PackedBatch) -> None:
        """What runs next are the batch's tokens."""
        self.groups = adapter_rows(batch, self.numbers)

    def for_all(self, name: str) -> None:
        """What runs next are rows of sequences that all have the adapter `name` ("": none)."""
        number = self.numbers.get(name)
        self.groups = () if number is None else (AdapterRows(number, slice(None)),)


@dataclass(frozen=True, slots=True)
class Change:
    """What an adapter adds to the outputs `rows` of a product with x: float32.

    `low` is a `[r, in]` and b `[rows, r]`, which has the adapter's scale in it: (x · aᵀ) · bᵀ.
    `matrix` is `[rows, in]`: x · matrixᵀ. `bias` is `[rows]`.
    """

    rows: slice
    low: tuple[Tensor, Tensor] | None = None
    matrix: Tensor | None = None
    bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class TableChange:
    """What an adapter adds to a table's rows: low[id] · out, or low[id] without `out`; float32.

    `low` is `[ids, r]`, and out `[r, width]` with all scales in it.
    """

    low: Tensor
    out: Tensor | None = None


ChangeT = TypeVar("ChangeT", Change, TableChange)


class _Adapters(Generic[ChangeT]):
    """Changes of one parameter by adapter."""

    def __init__(self, active: ActiveAdapters) -> None:
        self._active = active
        self._changes: dict[int, list[ChangeT]] = {}

    def add(self, adapter: int, change: ChangeT) -> None:
        """A further change that `adapter` makes."""
        self._changes.setdefault(adapter, []).append(change)

    @property
    def is_active(self) -> bool:
        """Whether any of the rows that run now has an adapter with a change here."""
        return any(group.adapter in self._changes for group in self._active.groups)

    def _now(self) -> Iterator[tuple[slice, ChangeT]]:
        """The changes of the rows that run now."""
        for group in self._active.groups:
            for change in self._changes.get(group.adapter, ()):
                yield group.rows, change


class LinearAdapters(_Adapters[Change]):
    """The changes of one matrix `[out, in]`."""

    def change(self, x: Tensor, out_features: int) -> Tensor:
        """What is added to the product of `x` `[T, in]`: float32 `[T, out]`, zero in rows without
        an adapter."""
        out = x.new_zeros((x.shape[0], out_features), dtype=torch.float32)
        for rows, change in self._now():
            given, part = x[rows].float(), out[rows, change.rows]
            if change.low is not None:
                part += (given @ change.low[0].T) @ change.low[1].T
            if change.matrix is not None:
                part += given @ change.matrix.T
            if change.bias is not None:
                part += change.bias
        return out


class TableAdapters(_Adapters[TableChange]):
    """The changes of one table `[ids, width]`."""

    def add_to(self, out: Tensor, ids: Tensor) -> None:
        """Adds to out `[T, width]` float32 in place; ids int `[T]`."""
        for rows, change in self._now():
            low = change.low[ids[rows].long()]
            out[rows] += low if change.out is None else low @ change.out
