"""Keys and values that outlive a step, as attention sees them. Built for causal models only.

All tokens of all requests lie in one pool of slots, a block of neighbouring slots at a time. Which
block is whose is decided above; here are only slot numbers. It knows no requests and no blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class KVShape:
    """What a model keeps of each token: `size` numbers of keys and as many of values, in each of
    `layers` attentions."""

    layers: int
    size: int


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Where the keys of N sequences lie in the pool, context and chunk together."""

    slots: Tensor  # [S] int64
    cu_seqlens: Tensor  # [N + 1] int32
    seq_lens: list[int]


@dataclass(frozen=True, slots=True)
class KVView:
    """One step's window on the pool.

    `written[t]` is the slot of the pack's token t. `read` says where each sequence's keys are; None
    where every prompt starts in this step, so that the chunk itself has all keys.
    """

    keys: Tensor  # [layers, slots, size]
    values: Tensor  # [layers, slots, size]
    written: Tensor  # [T] int64
    read: KeyRows | None

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps k and v `[T, size]` of this step's tokens; all keys and values to attend to.

        Without context these are k and v themselves, else `[S, size]` in the order of `read`.
        """
        keys, values = self.keys[layer], self.values[layer]
        keys.index_copy_(0, self.written, k)
        values.index_copy_(0, self.written, v)
        if self.read is None:
            return k, v
        return keys.index_select(0, self.read.slots), values.index_select(0, self.read.slots)
