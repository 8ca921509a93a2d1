"""Rotary positions as a layer: the tables of one base, shared by all attentions that use it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cenote.kernels.rotary import rotary_tables, rotate


class Rotary(nn.Module):
    """Turns the first `rotary_dim` columns of every head by the token's position.

    `max_positions` bounds the tables; a position beyond it raises InvalidRequest.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        head_dim: int,
        max_positions: int,
        base: float,
        *,
        rotary_dim: int | None = None,
        interleaved: bool = False,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.interleaved = interleaved
        # Not from the checkpoint, so made for real even while parameters are on the meta device.
        cos, sin = rotary_tables(
            rotary_dim or head_dim, max_positions, base, device=torch.device("cpu")
        )
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> None:
        """Turns x `[T, heads · head_dim]` in place; positions int32 `[T]`."""
        rotate(
            x,
            positions,
            self.cos,
            self.sin,
            head_dim=self.head_dim,
            interleaved=self.interleaved,
        )
