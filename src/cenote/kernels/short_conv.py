"""A short convolution along each sequence of the pack, column by column.

It knows nothing of gates and projections.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Carry:
    """Inputs from before the pack, where it holds later parts of sequences.

    `values[i]` `[size]` is the input `back[i]` tokens before the pack's token `rows[i]`.
    """

    rows: Tensor  # [M] int64
    back: Tensor  # [M] int64
    values: Tensor  # [M, size]


def short_conv(
    x: Tensor,
    places: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    ahead: int = 0,
    carry: Carry | None = None,
) -> Tensor:
    """out[t] = sum over k of weight[:, k] · x[t + k - (K - 1 - ahead)], within a sequence.

    `[T, size]` → the same. `weight` is `[size, K]`; `places[t]` counts from 0 in each sequence's
    part of the pack. The last `ahead` columns are for tokens that come after. What is before a
    part is in `carry`, or counts as zero, as does what comes after it.
    """
    taps = weight.t()
    own = weight.shape[1] - 1 - ahead
    out = x * taps[own]
    if bias is not None:
        out += bias
    for k, tap in enumerate(taps):
        n = abs(k - own)
        if not 0 < n < x.shape[0]:
            continue
        inside = (places[n:] >= n).unsqueeze(1)
        if k < own:
            out[n:] += x[:-n] * tap * inside
        else:
            out[:-n] += x[n:] * tap * inside
    if carry is not None:
        out.index_add_(0, carry.rows, carry.values * taps[own - carry.back])
    return out
