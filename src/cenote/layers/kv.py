"""Keys and values that outlive a step, as attention sees them, and inputs of short convolutions.

All tokens of all requests lie in one pool of slots, a block of neighbouring slots at a time. Which
block is whose is decided above; here are only slot numbers. It knows no requests and no blocks.
Built for causal models only.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cenote.kernels.rows import put_rows, take_rows
from cenote.kernels.short_conv import Carry


@dataclass(frozen=True, slots=True)
class KVShape:
    """What a model keeps of each token: `size` numbers of keys and as many of values in each of
    `layers` attentions, and `conv_size` inputs of each of `convs` convolutions, which look at
    `reach` tokens before their own."""

    layers: int
    size: int
    convs: int = 0
    conv_size: int = 0
    reach: int = 0

    @property
    def numbers(self) -> int:
        """All that is kept of a token."""
        return 2 * self.layers * self.size + self.convs * self.conv_size


@dataclass(frozen=True, slots=True)
class KeyRows:
    """Where the keys of N sequences lie in the pool, context and chunk together."""

    slots: Tensor  # [S] int64
    cu_seqlens: Tensor  # [N + 1] int32
    seq_lens: list[int]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Which tokens of the pack have neighbours in earlier parts: `slots[i]` is the place of what
    stands `back[i]` tokens before token `rows[i]`. `places[t]` counts from 0 in each part."""

    rows: Tensor  # [M] int64
    back: Tensor  # [M] int64
    slots: Tensor  # [M] int64
    places: Tensor  # [T] int32


@dataclass(frozen=True, slots=True)
class KVView:
    """One step's window on the pool.

    `written[t]` is the slot of the pack's token t. `read` says where each sequence's keys are; None
    where every prompt starts in this step, so that the chunk itself has all keys. So does
    `neighbours`, of convolutions.
    """

    entries: Tensor  # [layers, slots, 2 · size], keys and values side by side
    inputs: Tensor  # [convs, slots, conv_size]
    written: Tensor  # [T] int64
    read: KeyRows | None
    neighbours: Neighbours | None = None
    # uint8 [N], on the host: 1 where a sequence reads what this step writes for one before it, or
    # stands between the two. None: each sequence could run alone.
    joined: Tensor | None = None

    def extend(self, layer: int, kv: Tensor) -> Tensor:
        """Keeps keys and values `[T, 2 · size]` of this step's tokens; all those to attend to.

        Without context these are `kv` itself, else `[S, 2 · size]` in the order of `read`.
        """
        entries = self.entries[layer]
        put_rows(entries, self.written, kv)
        return kv if self.read is None else take_rows(entries, self.read.slots)

    def carry(self, conv: int, x: Tensor) -> Carry | None:
        """Keeps x `[T, conv_size]`, a convolution's input of this step's tokens; what it needs from
        before their parts, or None where every prompt starts in this step."""
        inputs = self.inputs[conv]
        put_rows(inputs, self.written, x.to(inputs.dtype))
        near = self.neighbours
        if near is None:
            return None
        values = take_rows(inputs, near.slots).to(x.dtype)
        return Carry(near.rows, near.back, values)
