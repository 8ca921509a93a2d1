"""Self-attention with one fused query/key/value product."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cenote.kernels.attention import NO_TERMS, AttentionSpec, AttentionTerms, attention
from cenote.kernels.norm import NormWeight
from cenote.layers.linear import Linear
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary


class SelfAttention(nn.Module):
    """`[T, hidden] → [T, hidden]`; `qkv` holds query, key and value rows in this order.

    `kv_layer` is its place in the pool of keys and values, for causal models. A batch with a view
    of that pool may hold later parts of prompts: they attend to what was kept of the parts before.
    """

    def __init__(
        self,
        hidden: int,
        spec: AttentionSpec,
        *,
        bias: bool = True,
        out_bias: bool | None = None,
        rotary: Rotary | None = None,
        kv_layer: int | None = None,
    ) -> None:
        super().__init__()
        self.spec = spec
        self.kv_layer = kv_layer
        self.sizes = [spec.q_size, spec.kv_size, spec.kv_size]
        self.qkv = Linear(hidden, sum(self.sizes), bias=bias)
        self.out = Linear(spec.q_size, hidden, bias=bias if out_bias is None else out_bias)
        self.rotary = rotary

    def forward(
        self,
        hidden: Tensor,
        batch: PackedBatch,
        terms: AttentionTerms = NO_TERMS,
        *,
        pre_norm: NormWeight | None = None,
        post_norm: NormWeight | None = None,
    ) -> Tensor:
        """post_norm(out(attention(qkv(pre_norm(hidden)))) + hidden), float32."""
        context = self.mix(self.qkv(hidden, pre_norm=pre_norm), batch, terms)
        out: Tensor = self.out(
            context, residual=hidden, post_norm=post_norm, out_dtype=torch.float32
        )
        return out

    def mix(self, qkv: Tensor, batch: PackedBatch, terms: AttentionTerms) -> Tensor:
        """Attention of the fused product's rows, before `out`: to each other, and to those kept of
        their prompts' earlier parts. `qkv` is used up."""
        if self.rotary is not None:
            self.rotary(qkv[:, : self.spec.q_size + self.spec.kv_size], batch)
        q, k, v = qkv.split_with_sizes(self.sizes, dim=1)
        if batch.kv is None or self.kv_layer is None:
            return attention(q, k, v, batch, self.spec, terms)
        k, v = batch.kv.extend(self.kv_layer, k, v)
        return attention(q, k, v, batch, self.spec, terms, batch.kv.read)
