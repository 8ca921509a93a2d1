"""A matrix with an optional bias, and whatever the kernels can fuse to its product.

It knows nothing of where in a model it stands.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cenote.kernels.activation import activate
from cenote.kernels.linear import LinearWeight, finish, linear
from cenote.kernels.norm import NormWeight, norm
from cenote.layers.adapters import ActiveAdapters, LinearAdapters
from cenote.layers.packing import WeightForm


class Linear(nn.Module):
    """`[T, in] → [T, out]`. `dtype` pins what it computes in (heads: float32); None: the model's.

    Until `pack` it only holds parameters: `weight` `[out, in]` and `bias` float32 `[out]`.
    `adapters` change the product for some rows; a matrix that is more than a product to its model
    isn't `adaptable`.
    """

    bias: nn.Parameter | None
    prepared: LinearWeight
    apart: LinearWeight | None = None  # for a product of its own, where `prepared` is in halves
    adapters: LinearAdapters | None = None
    adaptable: bool = True
    sensitive: bool = False  # int8 costs more accuracy here than elsewhere

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

    def pack(self, form: WeightForm, *, halves: bool = False, apart: bool = False) -> None:
        """Prepares the weight; `halves` for the first product of a gated MLP, and `apart` where it
        is to be a product of its own as well."""
        int8 = form.int8 and self.dtype is None and not (form.spare and self.sensitive)
        dtype = self.dtype or form.dtype
        self.prepared = LinearWeight.prepare(
            self.weight, self.bias, dtype, int8=int8, halves=halves
        )
        if halves and apart:
            self.apart = LinearWeight.prepare(self.weight, self.bias, dtype, int8=int8)
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)

    def adapted_by(self, active: ActiveAdapters) -> LinearAdapters:
        """Its adapters, to add some to; `active` says which rows have which, as for all others."""
        if self.adapters is None:
            self.adapters = LinearAdapters(active)
        return self.adapters

    @property
    def is_changed(self) -> bool:
        """Whether an adapter changes the product of any of the rows that run now."""
        return self.adapters is not None and self.adapters.is_active

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
        """post_norm(activation(pre_norm(x) · Wᵀ + b) + residual), W and b each row's own."""
        weight = self.apart or self.prepared
        if self.adapters is not None and self.adapters.is_active:
            if pre_norm is not None:
                x, pre_norm = norm(x, pre_norm), None
            change = self.adapters.change(x, weight.out_features)
            if activation != "identity":
                y = linear(x, weight, residual=change, out_dtype=torch.float32)
                y = activate(activation, y)
                return finish(y, residual, post_norm, out_dtype or weight.dtype)
            residual = change if residual is None else residual + change
        return linear(
            x,
            weight,
            pre_norm=pre_norm,
            activation=activation,
            residual=residual,
            post_norm=post_norm,
            out_dtype=out_dtype,
        )
