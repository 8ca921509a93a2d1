"""LayerNorm and RMSNorm as holders of parameters; the kernels fuse them into products.

A norm is passed to the product before or after it as `norm.prepared`; called by itself it runs
alone. Parameters are float32 in every mode.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from cenote.kernels.norm import NormKind, NormWeight, norm
from cenote.layers.packing import WeightForm


class _Norm(nn.Module):
    kind: ClassVar[NormKind]
    prepared: NormWeight

    def __init__(self, size: int, eps: float, *, bias: bool) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(size, dtype=torch.float32))
        self.bias = nn.Parameter(torch.empty(size, dtype=torch.float32)) if bias else None

    def pack(self, form: WeightForm) -> None:
        """Prepares the parameters for the implementation in use."""
        self.prepared = NormWeight.prepare(self.kind, self.weight, self.bias, self.eps)

    def forward(self, x: Tensor) -> Tensor:
        """The norm of rows `[T, size]`, float32."""
        return norm(x, self.prepared)


class LayerNorm(_Norm):
    """(x - mean) / sqrt(variance + eps) · weight + bias."""

    kind: ClassVar[NormKind] = "layer"

    def __init__(self, size: int, eps: float, *, bias: bool = True) -> None:
        super().__init__(size, eps, bias=bias)


class RMSNorm(_Norm):
    """x / sqrt(mean of squares + eps) · weight."""

    kind: ClassVar[NormKind] = "rms"

    def __init__(self, size: int, eps: float) -> None:
        super().__init__(size, eps, bias=False)


class OffsetRMSNorm(RMSNorm):
    """RMSNorm whose factor is 1 + weight (Gemma)."""

    def pack(self, form: WeightForm) -> None:
        """Prepares the factor."""
        self.prepared = NormWeight.prepare(self.kind, 1 + self.weight, None, self.eps)
