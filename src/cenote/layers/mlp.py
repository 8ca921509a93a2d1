"""The two products between attentions, plain or gated, as one fused call."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cenote.kernels.activation import NATIVE_CODES
from cenote.kernels.linear import Gate, gated, mlp
from cenote.kernels.norm import NormWeight
from cenote.layers.linear import Linear
from cenote.layers.packing import WeightForm


class MLP(nn.Module):
    """down(activation(up(x))), `[T, hidden] → [T, hidden]`.

    With `gate`, `up` has two halves of `intermediate` rows each; `gate` says which half the
    activation is for, and the other one multiplies it (GLU, Shazeer 2020, arXiv:2002.05202).
    """

    def __init__(
        self,
        hidden: int,
        intermediate: int,
        activation: str,
        *,
        gate: Gate = "none",
        bias: bool = True,
        up_bias: bool | None = None,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.gate: Gate = gate
        width = intermediate if gate == "none" else 2 * intermediate
        self.up = Linear(hidden, width, bias=bias if up_bias is None else up_bias)
        self.down = Linear(intermediate, hidden, bias=bias)

    def pack(self, form: WeightForm) -> None:
        """Prepares both weights for one fused call."""
        # An activation that the kernels don't know leaves two plain products.
        fused = self.activation in NATIVE_CODES
        adapted = self.up.adapters is not None or self.down.adapters is not None
        self.up.pack(form, halves=fused and self.gate != "none", apart=adapted)
        self.down.pack(form)

    def forward(
        self,
        x: Tensor,
        *,
        residual: Tensor | None = None,
        pre_norm: NormWeight | None = None,
        post_norm: NormWeight | None = None,
    ) -> Tensor:
        """post_norm(mlp(pre_norm(x)) + residual), float32."""
        if self.up.is_changed or self.down.is_changed:
            inner = gated(self.up(x, pre_norm=pre_norm), self.activation, self.gate)
            out: Tensor = self.down(
                inner, residual=residual, post_norm=post_norm, out_dtype=torch.float32
            )
            return out
        return mlp(
            x,
            self.up.prepared,
            self.down.prepared,
            activation=self.activation,
            gate=self.gate,
            pre_norm=pre_norm,
            residual=residual,
            post_norm=post_norm,
            out_dtype=torch.float32,
        )
