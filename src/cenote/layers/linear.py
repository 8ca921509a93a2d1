"""A matrix with an optional bias, and whatever the kernels can fuse to its product.

It knows nothing of where in a model it stands.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cenote.kernels.linear import LinearWeight, linear
from cenote.kernels.norm import NormWeight
from cenote.layers.packing import WeightForm


class Linear(nn.Module):
    """`[T, in] → [T, out]`. `dtype` pins what it computes in (heads: float32); None: the model's.

    Until `pack` it only holds parameters: `weight` `[out, in]` and `bias` float32 `[out]`.
    """

    bias: nn.Parameter | None
    prepared: LinearWeight

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.dtype = dtype
        self.weight = nn.Parameter(torch.empty(out_features, in_features, dtype=dtype))
        own_bias = nn.Parameter(torch.empty(out_features, dtype=torch.float32)) if bias else None
        self.register_parameter("bias", own_bias)

    @classmethod
    def holding(cls, weight: Tensor, bias: Tensor | None) -> Linear:
        """A layer around a matrix that was made at load out of what was read, not packed yet."""
        with torch.device("meta"):
            layer = cls(weight.shape[1], weight.shape[0], bias=bias is not None)
        layer.weight = nn.Parameter(weight, requires_grad=False)
        if bias is not None:
            layer.bias = nn.Parameter(bias, requires_grad=False)
        return layer

    def pack(self, form: WeightForm, *, halves: bool = False) -> None:
        """Prepares the weight; `halves` for the first product of a gated MLP."""
        int8 = form.int8 and self.dtype is None
        dtype = self.dtype or form.dtype
        self.prepared = LinearWeight.prepare(
            self.weight, self.bias, dtype, int8=int8, halves=halves
        )
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)

    def forward(
        self,
        x: Tensor,
        *,
        pre_norm: NormWeight | None = None,
        activation: str = "identity",
        residual: Tensor | None = None,
        post_norm: NormWeight | None = None,
        out_dtype: torch.dtype | None = None,
    ) -> Tensor:
        """post_norm(activation(pre_norm(x) · Wᵀ + b) + residual)."""
        return linear(
            x,
            self.prepared,
            pre_norm=pre_norm,
            activation=activation,
            residual=residual,
            post_norm=post_norm,
            out_dtype=out_dtype,
        )
