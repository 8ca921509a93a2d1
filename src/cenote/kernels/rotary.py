"""Rotary positions (Su et al. 2021, arXiv:2104.09864): pairs of a head's columns are turned.

It knows nothing of how the angles are made (bases, scaling): it is given their tables.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cenote.errors import InvalidRequest
from cenote.kernels import backend
from cenote.kernels.backend import DTYPE_CODES


def rotate(
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    head_dim: int,
    interleaved: bool = False,
) -> None:
    """Turns the first columns of every head of x `[T, heads · head_dim]` in place.

    cos and sin are float32 `[max_positions, rotary_dim / 2]`; positions int32 `[T]`. Pairs are
    (i, i + rotary_dim / 2), or (2i, 2i + 1) if interleaved. x may be a column slice, e.g. the
    query and key part of a fused projection. A position outside the table raises InvalidRequest.
    """
    module = backend.native()
    try:
        if module is None or x.dtype not in DTYPE_CODES:
            rotate_torch(x, positions, cos, sin, head_dim=head_dim, interleaved=interleaved)
            return
        module.rotary(
            x.data_ptr(),
            DTYPE_CODES[x.dtype],
            x.stride(0),
            x.shape[0],
            x.shape[1] // head_dim,
            head_dim,
            2 * cos.shape[1],
            cos.data_ptr(),
            sin.data_ptr(),
            cos.shape[0],
            positions.data_ptr(),
            interleaved,
        )
    except IndexError as error:
        raise InvalidRequest(f"A position is outside the rotary table: {error}.") from error


def rotate_torch(
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    head_dim: int,
    interleaved: bool = False,
) -> None:
    """The oracle of `rotate`."""
    heads = x.view(x.shape[0], -1, head_dim)[
        ..., : 2 * cos.shape[1]
    ]  # [T, heads, rotary_dim], a view
    turn_cos = cos[positions.long()].unsqueeze(1)
    turn_sin = sin[positions.long()].unsqueeze(1)
    if interleaved:
        first, second = heads[..., 0::2], heads[..., 1::2]
    else:
        first, second = heads.chunk(2, dim=-1)
    a, b = first.float(), second.float()
    turned = (a * turn_cos - b * turn_sin, b * turn_cos + a * turn_sin)
    first.copy_(turned[0])
    second.copy_(turned[1])


def rotary_tables(turns: Tensor, max_positions: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """scale · cos and scale · sin of position · turns, float32 `[max_positions, rotary_dim / 2]`.

    `turns` is float32 `[rotary_dim / 2]`, in radians per position.
    """
    steps = torch.arange(max_positions, dtype=torch.float32, device=turns.device)
    angles = torch.outer(steps, turns)
    return angles.cos() * scale, angles.sin() * scale
