"""Self-attention with one fused query/key/value product."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from cenote.kernels.attention import (
    NO_TERMS,
    AttentionSpec,
    AttentionTerms,
    Lengths,
    attention,
)
from cenote.kernels.norm import NormWeight, norm_heads
from cenote.kernels.rows import take_rows
from cenote.layers.linear import Linear
from cenote.layers.norm import LayerNorm, RMSNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary


class SelfAttention(nn.Module):
    """`[T, hidden] → [R, hidden]`, the rows that are read.

    `qkv` holds query, key and value rows in this order.
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
        self.qkv.sensitive = True
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
        residual: bool = True,
    ) -> Tensor:
        """post_norm(out(attention(qkv(pre_norm(hidden)))) + hidden), float32.

        `residual=False` leaves out the sum.
        """
        context = self.mix(self.qkv(hidden, pre_norm=pre_norm), batch, terms)
        out: Tensor = self.out(
            context,
            residual=batch.take_read(hidden) if residual else None,
            post_norm=post_norm,
            out_dtype=torch.float32,
        )
        return out

    def mix(self, qkv: Tensor, batch: PackedBatch, terms: AttentionTerms) -> Tensor:
        """Attention of the fused product's rows that are read, before `out`: to all of them, and to
        those kept of their prompts' earlier parts. `qkv` is used up."""
        if self.rotary is not None:
            self.rotary(qkv[:, : self.spec.q_size + self.spec.kv_size], batch)
        q, kv = qkv.tensor_split([self.spec.q_size], dim=1)
        keys = None
        if batch.kv is not None and self.kv_layer is not None:
            kv, keys = batch.kv.extend(self.kv_layer, kv), batch.kv.read
        k, v = kv.split_with_sizes(self.sizes[1:], dim=1)
        return self.attend(q, k, v, batch, terms, keys)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        batch: PackedBatch,
        terms: AttentionTerms,
        keys: Lengths | None = None,
    ) -> Tensor:
        """`attention` of the queries that are read; `keys` where k and v have other bounds.

        It takes queries for the last tokens of their sequence. Those that aren't run alone only
        where that makes no difference; else all run.
        """
        read, spec = batch.read, self.spec
        if read is None:
            return attention(q, k, v, batch, spec, terms, keys)
        if read.trailing or not (spec.is_positional or terms.is_positional):
            return attention(take_rows(q, read.rows), k, v, read, spec, terms, keys or batch)
        return take_rows(attention(q, k, v, batch, spec, terms, keys), read.rows)


class HeadNormedAttention(SelfAttention):
    """Self-attention whose queries and keys are normed head by head, before their rotation.

    `norm` makes both norms, each as wide as a head (Dehghani et al. 2023, arXiv:2302.05442).
    """

    def __init__(
        self,
        hidden: int,
        spec: AttentionSpec,
        *,
        norm: Callable[[], LayerNorm | RMSNorm],
        bias: bool = True,
        out_bias: bool | None = None,
        rotary: Rotary | None = None,
        kv_layer: int | None = None,
    ) -> None:
        super().__init__(
            hidden, spec, bias=bias, out_bias=out_bias, rotary=rotary, kv_layer=kv_layer
        )
        self.q_norm: LayerNorm | RMSNorm = norm()
        self.k_norm: LayerNorm | RMSNorm = norm()

    def mix(self, qkv: Tensor, batch: PackedBatch, terms: AttentionTerms) -> Tensor:
        """As `SelfAttention`, after the norms."""
        q, k, _ = qkv.split_with_sizes(self.sizes, dim=1)
        norm_heads(q, self.q_norm.prepared)
        norm_heads(k, self.k_norm.prepared)
        return super().mix(qkv, batch, terms)
