"""Rotary positions as a layer: one set of tables, shared by all attentions that use it."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from cenote.config.rope import RopeConfig
from cenote.errors import ModelLoadError
from cenote.kernels.layers import RotaryTables
from cenote.kernels.rotary import rotary_tables, rotate
from cenote.layers.frequencies import frequencies
from cenote.layers.packed import PackedBatch

# cos and sin of two million positions of a head of 128.
MAX_TABLE_BYTES = 1 << 30


class Rotary(nn.Module):
    """Turns the first columns of every head (`rope.fraction` of them) by the token's position.

    `max_positions` bounds the tables; a position beyond it raises InvalidRequest. Raises
    ModelLoadError for a fraction that leaves no pairs of columns, and for tables beyond all bounds.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self, head_dim: int, max_positions: int, rope: RopeConfig, *, interleaved: bool = False
    ) -> None:
        super().__init__()
        self.rope = rope
        self.rotary_dim = _rotary_dim(head_dim, rope)
        self.interleaved = interleaved
        if 4 * self.rotary_dim * max_positions > MAX_TABLE_BYTES:
            raise ModelLoadError(
                f"Rotary tables of {max_positions} positions take more than {MAX_TABLE_BYTES} "
                "bytes. Give a smaller max_model_len.",
                param="max_model_len",
            )
        self.rotate = partial(rotate, head_dim=head_dim, interleaved=interleaved)
        # Where a long sequence has frequencies of its own, the common table is for the others.
        self.varies = rope.varies(max_positions)
        # The last batch's tables where some sequence has its own; every layer asks for the same.
        self.stretched: tuple[list[int], tuple[Tensor, Tensor, Tensor]] | None = None
        # Not from the checkpoint, so made for real even while parameters are on the meta device.
        cos, sin = self._tables(rope.original if self.varies else max_positions, 0)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor, batch: PackedBatch) -> None:
        """Turns x `[T, heads · head_dim]` in place."""
        if self.is_stretched(batch):
            positions, cos, sin = self._stretched(batch)
            self.rotate(x, positions, cos, sin)
        else:
            self.rotate(x, batch.positions, self.cos, self.sin)

    def is_stretched(self, batch: PackedBatch) -> bool:
        """Whether a sequence of the batch has tables of its own."""
        return self.varies and batch.max_seqlen > self.rope.original

    @property
    def common(self) -> RotaryTables:
        """The tables of all other sequences."""
        return RotaryTables(self.cos, self.sin, self.interleaved)

    def _tables(self, rows: int, length: int) -> tuple[Tensor, Tensor]:
        turns, scale = frequencies(self.rope, self.rotary_dim, length)
        return rotary_tables(turns, rows, scale)

    def _stretched(self, batch: PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Positions and tables of a batch in which some sequences are longer than was trained.

        Such a sequence's frequencies go by its own length alone, so that it doesn't depend on what
        else is in the batch: its table is put after the common one, and its positions start there.
        """
        stretched = self.stretched  # other threads put their batches' in its place
        if stretched is not None and stretched[0] == batch.seq_lens:
            return stretched[1]
        long = {length for length in batch.seq_lens if length > self.rope.original}
        # Dynamic: a table for each length; longrope: one for all of them.
        table_of = {n: n if self.rope.kind == "dynamic" else max(long) for n in long}
        device, rows = batch.positions.device, self.cos.shape[0]
        tables, offsets = [(self.cos, self.sin)], {}
        for length in sorted(set(table_of.values())):
            offsets[length] = rows
            cos, sin = self._tables(length, length)
            tables.append((cos.to(device), sin.to(device)))
            rows += length
        shift = [offsets[table_of[n]] if n in long else 0 for n in batch.seq_lens]
        repeats = torch.tensor(batch.seq_lens)
        shifts = torch.tensor(shift, dtype=torch.int32).repeat_interleave(repeats).to(device)
        cos, sin = (torch.cat(parts) for parts in zip(*tables, strict=True))
        made = (batch.positions + shifts, cos, sin)
        self.stretched = (batch.seq_lens, made)
        return made


def _rotary_dim(head_dim: int, rope: RopeConfig) -> int:
    """How many columns of a head turn."""
    # Dynamic scaling's exponent divides by all but two of them.
    least = 4 if rope.kind == "dynamic" else 2
    found = int(head_dim * rope.fraction)
    if found % 2 or not least <= found <= head_dim:
        raise ModelLoadError(
            f"config.json: a head of {head_dim} columns and partial_rotary_factor {rope.fraction} "
            f"leave {found} columns to turn; they must be even and from {least} to {head_dim}."
        )
    return found
