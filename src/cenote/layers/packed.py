"""The one batch type: sequences concatenated without padding, passed as an argument.

It knows nothing of requests, pooling or where the numbers came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from cenote.layers.kv import KVView


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

    @property
    def num_tokens(self) -> int:
        return int(self.input_ids.shape[0])

    @property
    def max_seqlen(self) -> int:
        return max(self.seq_lens, default=0)
