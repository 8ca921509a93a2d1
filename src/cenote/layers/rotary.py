"""Rotary positions as a layer: one set of tables, shared by all attentions that use it."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from cenote.config.rope import RopeConfig
from cenote.kernels.rotary import rotary_tables, rotate
from cenote.layers.frequencies import frequencies
from cenote.layers.packed import PackedBatch


class Rotary(nn.Module):
    """Turns the first columns of every head (`rope.fraction` of them) by the token's position.

    `max_positions` bounds the tables; a position beyond it raises InvalidRequest.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self, head_dim: int, max_positions: int, rope: RopeConfig, *, interleaved: bool = False
    ) -> None:
        super().__init__()
        self.rope = rope
        self.rotary_dim = int(head_dim * rope.fraction)
        self.rotate = partial(rotate, head_dim=head_dim, interleaved=interleaved)
        # The last batch's tables where some sequence has its own; every layer asks for the same.
        self.stretched: tuple[list[int], tuple[Tensor, Tensor, Tensor]] | None = None
        # Not from the checkpoint, so made for real even while parameters are on the meta device.
        cos, sin = self._tables(max_positions, 0)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor, batch: PackedBatch) -> None:
        """Turns x `[T, heads · head_dim]` in place."""
        if self.rope.kind == "dynamic" and batch.max_seqlen > self.rope.original:
            positions, cos, sin = self._stretched(batch)
            self.rotate(x, positions, cos, sin)
        else:
            self.rotate(x, batch.positions, self.cos, self.sin)

    def _tables(self, rows: int, length: int) -> tuple[Tensor, Tensor]:
        turns, scale = frequencies(self.rope, self.rotary_dim, length)
        return rotary_tables(turns, rows, scale)

    def _stretched(self, batch: PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Positions and tables of a batch in which some sequences are longer than was trained.

        Each such length has frequencies of its own, so its table is put after the common one and
        its positions start there: no sequence depends on what else is in the batch.
        """
        if self.stretched is not None and self.stretched[0] == batch.seq_lens:
            return self.stretched[1]
        long = sorted({length for length in batch.seq_lens if length > self.rope.original})
        device, rows = batch.positions.device, self.cos.shape[0]
        tables, offsets = [(self.cos, self.sin)], {}
        for length in long:
            offsets[length] = rows
            cos, sin = self._tables(length, length)
            tables.append((cos.to(device), sin.to(device)))
            rows += length
        shift = torch.tensor([offsets.get(n, 0) for n in batch.seq_lens], dtype=torch.int32)
        shifts = shift.repeat_interleave(torch.tensor(batch.seq_lens)).to(device)
        cos, sin = (torch.cat(parts) for parts in zip(*tables, strict=True))
        made = (batch.positions + shifts, cos, sin)
        self.stretched = (batch.seq_lens, made)
        return made
