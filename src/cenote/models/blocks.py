"""Encoder layers that several families share. A family with its own order writes its own layer."""

from __future__ import annotations

from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.kernels.attention import NO_TERMS, AttentionSpec, AttentionTerms
from cenote.kernels.linear import Gate
from cenote.layers.attention import SelfAttention
from cenote.layers.mlp import MLP
from cenote.layers.norm import LayerNorm, RMSNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary


def bidirectional(config: ModelConfig) -> AttentionSpec:
    """Attention of every token to every token, scaled by 1 / sqrt(head_dim)."""
    return AttentionSpec(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        scale=config.head_dim**-0.5,
    )


class PostNormLayer(nn.Module):
    """The layer of BERT and its kin: a LayerNorm after each residual sum."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        self.attention = SelfAttention(hidden, bidirectional(config))
        self.attention_norm = LayerNorm(hidden, eps)
        self.mlp = MLP(hidden, config.intermediate_size, config.hidden_act)
        self.mlp_norm = LayerNorm(hidden, eps)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms = NO_TERMS
    ) -> Tensor:
        """`[T, hidden]` float32 → the same."""
        hidden = self.attention(hidden, batch, terms, post_norm=self.attention_norm.prepared)
        out: Tensor = self.mlp(hidden, residual=hidden, post_norm=self.mlp_norm.prepared)
        return out


class PreNormLayer(nn.Module):
    """The layer of most later families: a norm before each part, the residual left as it is.

    `norm` is the class of both norms; `attention_norm=False` leaves the first one out (ModernBERT's
    first layer).
    """

    def __init__(
        self,
        config: ModelConfig,
        spec: AttentionSpec,
        *,
        norm: type[LayerNorm | RMSNorm] = LayerNorm,
        attention_norm: bool = True,
        gate: Gate = "none",
        bias: bool = True,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        self.attention_norm = norm(hidden, eps) if attention_norm else None
        self.attention = SelfAttention(hidden, spec, bias=bias, rotary=rotary)
        self.mlp_norm = norm(hidden, eps)
        self.mlp = MLP(hidden, config.intermediate_size, config.hidden_act, gate=gate, bias=bias)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms = NO_TERMS
    ) -> Tensor:
        """`[T, hidden]` float32 → the same."""
        first = None if self.attention_norm is None else self.attention_norm.prepared
        hidden = self.attention(hidden, batch, terms, pre_norm=first)
        out: Tensor = self.mlp(hidden, residual=hidden, pre_norm=self.mlp_norm.prepared)
        return out
