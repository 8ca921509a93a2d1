"""A short causal convolution along each sequence of the pack, column by column.

It knows nothing of gates and projections.
"""

from __future__ import annotations

from torch import Tensor


def short_conv(x: Tensor, positions: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """out[t] = sum over k of weight[:, K - 1 - k] · x[t - k], within a sequence; `[T, size]`.

    `weight` is `[size, K]`, its last column for the token itself. Whole sequences only: what is
    before position 0 counts as zero.
    """
    out = x * weight[:, -1]
    if bias is not None:
        out += bias
    width = weight.shape[1]
    for back in range(1, min(width, x.shape[0])):
        inside = (positions[back:] >= back).unsqueeze(1)
        out[back:] += x[:-back] * weight[:, width - 1 - back] * inside
    return out
