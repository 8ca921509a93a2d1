"""A mixture of experts in place of an MLP: every row goes through the few that a router picks.

It knows nothing of the layer around it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cenote.kernels.linear import LinearWeight, mlp
from cenote.kernels.norm import NormWeight, norm
from cenote.layers.linear import Linear
from cenote.layers.packing import WeightForm


class Experts(nn.Module):
    """Σ p_e · expert_e(x) + bias over the `top` likeliest experts (Shazeer et al. 2017,
    arXiv:1701.06538).

    p is the router's softmax over all experts and isn't made to sum to 1 again. An expert is
    activation(x · w1ᵀ) · w2, its matrices `[intermediate, hidden]` rows of `w1` and `w2`.
    """

    experts: list[tuple[LinearWeight, LinearWeight]]

    def __init__(
        self, hidden: int, intermediate: int, activation: str, *, count: int, top: int
    ) -> None:
        super().__init__()
        self.intermediate = intermediate
        self.activation = activation
        self.top = top
        # In float32 in every mode: a rounded router would send rows to other experts.
        self.router = Linear(hidden, count, bias=False, dtype=torch.float32)
        self.w1 = nn.Parameter(torch.empty(count * intermediate, hidden))
        self.w2 = nn.Parameter(torch.empty(count * intermediate, hidden))
        self.bias = nn.Parameter(torch.empty(hidden, dtype=torch.float32))

    def pack(self, form: WeightForm) -> None:
        """Prepares each expert's two products."""
        self.router.pack(form)
        self.experts = [
            (
                LinearWeight.prepare(first, None, form.dtype, int8=form.int8),
                LinearWeight.prepare(second.T, None, form.dtype, int8=form.int8),
            )
            for first, second in zip(
                torch.split(self.w1.detach(), self.intermediate),
                torch.split(self.w2.detach(), self.intermediate),
                strict=True,
            )
        ]
        self.register_parameter("w1", None)
        self.register_parameter("w2", None)

    def forward(self, x: Tensor, *, residual: Tensor, post_norm: NormWeight) -> Tensor:
        """post_norm(experts(x) + residual) of rows `[T, hidden]`, float32."""
        shares, chosen = torch.softmax(self.router(x), dim=-1).topk(self.top, dim=-1)
        out = self.bias.repeat(x.shape[0], 1)
        for index, (up, down) in enumerate(self.experts):
            rows, slots = (chosen == index).nonzero(as_tuple=True)
            if rows.shape[0]:
                result = mlp(x[rows], up, down, activation=self.activation, out_dtype=torch.float32)
                out.index_add_(0, rows, result * shares[rows, slots, None])
        return norm(out, post_norm, residual=residual)
