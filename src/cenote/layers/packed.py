"""The one batch type: sequences concatenated without padding, passed as an argument.

It knows nothing of requests, pooling or where the numbers came from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import Tensor

from cenote.kernels.rows import take_rows

if TYPE_CHECKING:
    from cenote.layers.kv import KVView


@dataclass(frozen=True, slots=True)
class ReadRows:
    """The `R` rows of a pack that anyone reads when its model is done, with bounds as the pack has
    them. A sequence may have none.

    `trailing`: each sequence's are the last ones it has in the pack, side by side.
    """

    rows: Tensor  # [R] int64, ascending
    cu_seqlens: Tensor  # [N + 1] int32
    seq_lens: list[int]
    trailing: bool


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """`T` tokens of `N` sequences.

    `positions` count from 0 in each sequence (a later chunk of a causal prompt starts higher).
    `cu_seqlens` are the running sums of the lengths, `[0, n0, n0+n1, …]`; `seq_lens` is the same
    on the host, so that nobody has to copy it back from a device.
    """

    input_ids: Tensor  # [T] int32
    positions: Tensor  # [T] int32
    cu_seqlens: Tensor  # [N + 1] int32
    seq_lens: list[int]
    token_type_ids: Tensor | None = None  # [T] int32; None: all zero
    key_mask: Tensor | None = None  # [T] uint8, 0 = not attended to as a key; None: all attended
    adapters: list[str | None] | None = None  # each sequence's LoRA; None: no sequence has one
    kv: KVView | None = None  # paged keys and values; causal models only
    read: ReadRows | None = None  # rows that the last layer has to make; None: all

    @property
    def num_tokens(self) -> int:
        return int(self.input_ids.shape[0])

    @property
    def max_seqlen(self) -> int:
        return max(self.seq_lens, default=0)

    def whole(self) -> PackedBatch:
        """The same where every row is read, as every layer's rows but the last one's are."""
        return self if self.read is None else replace(self, read=None)

    def take_read(self, rows: Tensor) -> Tensor:
        """Those of `rows` `[T, width]` that are read, `[R, width]`."""
        return rows if self.read is None else take_rows(rows, self.read.rows)
