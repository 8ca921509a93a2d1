"""Layers that several families share. A family with its own order writes its own layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.kernels.attention import NO_TERMS, AttentionSpec, AttentionTerms
from cenote.kernels.layers import LayerWeights, Norms
from cenote.kernels.linear import Gate
from cenote.layers.attention import HeadNormedAttention, SelfAttention
from cenote.layers.mlp import MLP
from cenote.layers.norm import LayerNorm, RMSNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary

# What makes a norm of a size, with an epsilon: a class, or one with its other settings filled in.
MakeNorm = Callable[[int, float], LayerNorm | RMSNorm]

# Those of an attention and of an MLP.
PartNorms = tuple[LayerNorm | RMSNorm | None, LayerNorm | RMSNorm | None]


def bidirectional(config: ModelConfig, window: tuple[int, int] = (-1, -1)) -> AttentionSpec:
    """Attention of every token to every token (in `window`), scaled by 1 / sqrt(head_dim)."""
    return AttentionSpec(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        scale=config.head_dim**-0.5,
        window=window,
    )


def causal(config: ModelConfig, window: int = -1) -> AttentionSpec:
    """Attention to the tokens before and the token itself, `window` tokens back at the most."""
    return replace(bidirectional(config, (window, -1)), causal=True)


def whole_layer(
    attention: SelfAttention,
    mlp: nn.Module,
    *,
    pre_norms: PartNorms = (None, None),
    post_norms: PartNorms = (None, None),
    adds_behind: bool = False,
) -> LayerWeights | None:
    """A layer of these parts, for one call; None where a part is of another kind. Norms of the
    attention and of the MLP stand before the part, or behind its residual sum; with `adds_behind`,
    the sum is made behind the norm."""
    if type(attention) not in (SelfAttention, HeadNormedAttention) or type(mlp) is not MLP:
        return None
    head_norms: PartNorms = (None, None)
    if isinstance(attention, HeadNormedAttention):
        head_norms = (attention.q_norm, attention.k_norm)
    return LayerWeights(
        spec=attention.spec,
        qkv=attention.qkv.prepared,
        out=attention.out.prepared,
        up=mlp.up.prepared,
        down=mlp.down.prepared,
        activation=mlp.activation,
        gate=mlp.gate,
        pre_norms=_prepared(pre_norms),
        post_norms=_prepared(post_norms),
        head_norms=_prepared(head_norms),
        kept=attention.kv_layer,
        adds_behind=adds_behind,
        rotary=None if attention.rotary is None else attention.rotary.common,
    )


def _prepared(norms: PartNorms) -> Norms:
    first, second = (None if norm is None else norm.prepared for norm in norms)
    return first, second


class PostNormLayer(nn.Module):
    """The layer of BERT and its kin: a LayerNorm after each residual sum.

    `bias` is for all products, `up_bias` for the first one of the MLP where that differs. `mlp`
    takes the MLP's place.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        gate: Gate = "none",
        bias: bool = True,
        up_bias: bool | None = None,
        rotary: Rotary | None = None,
        mlp: nn.Module | None = None,
    ) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        self.attention = SelfAttention(hidden, bidirectional(config), bias=bias, rotary=rotary)
        self.attention_norm = LayerNorm(hidden, eps)
        self.mlp = mlp or MLP(
            hidden,
            config.intermediate_size,
            config.hidden_act,
            gate=gate,
            bias=bias,
            up_bias=up_bias,
        )
        self.mlp_norm = LayerNorm(hidden, eps)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms = NO_TERMS
    ) -> Tensor:
        """`[T, hidden]` float32 → `[R, hidden]`, the rows that are read."""
        hidden = self.attention(hidden, batch, terms, post_norm=self.attention_norm.prepared)
        out: Tensor = self.mlp(hidden, residual=hidden, post_norm=self.mlp_norm.prepared)
        return out

    def weights(self) -> LayerWeights | None:
        """See `WholeLayer`."""
        norms = (self.attention_norm, self.mlp_norm)
        return whole_layer(self.attention, self.mlp, post_norms=norms)


class PreNormLayer(nn.Module):
    """The layer of most later families: a norm before each part, the residual left as it is.

    `norm` makes both norms; `attention_norm=False` leaves the first one out (ModernBERT's first
    layer). `bias` is for all products, `out_bias` and `mlp_bias` for those after the attention and
    in the MLP where they differ. `head_norm`: queries and keys are normed too, head by head.
    `kv_layer` numbers a causal model's layers.
    """

    def __init__(
        self,
        config: ModelConfig,
        spec: AttentionSpec,
        *,
        norm: MakeNorm = LayerNorm,
        attention_norm: bool = True,
        gate: Gate = "none",
        bias: bool = True,
        out_bias: bool | None = None,
        mlp_bias: bool | None = None,
        head_norm: bool = False,
        rotary: Rotary | None = None,
        kv_layer: int | None = None,
    ) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        self.attention_norm = norm(hidden, eps) if attention_norm else None
        make = partial(HeadNormedAttention, norm=lambda: norm(spec.head_dim, eps))
        self.attention = (make if head_norm else SelfAttention)(
            hidden, spec, bias=bias, out_bias=out_bias, rotary=rotary, kv_layer=kv_layer
        )
        self.mlp_norm = norm(hidden, eps)
        self.mlp = MLP(
            hidden,
            config.intermediate_size,
            config.hidden_act,
            gate=gate,
            bias=bias if mlp_bias is None else mlp_bias,
        )

    def forward(
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms = NO_TERMS
    ) -> Tensor:
        """`[T, hidden]` float32 → `[R, hidden]`, the rows that are read."""
        first = None if self.attention_norm is None else self.attention_norm.prepared
        hidden = self.attention(hidden, batch, terms, pre_norm=first)
        out: Tensor = self.mlp(hidden, residual=hidden, pre_norm=self.mlp_norm.prepared)
        return out

    def weights(self) -> LayerWeights | None:
        """See `WholeLayer`."""
        norms = (self.attention_norm, self.mlp_norm)
        return whole_layer(self.attention, self.mlp, pre_norms=norms)


class SandwichLayer(PreNormLayer):
    """A pre-norm layer that also norms what each part adds (Gemma 2 and 3). Takes the same."""

    def __init__(
        self, config: ModelConfig, spec: AttentionSpec, *, norm: MakeNorm, **settings: Any
    ) -> None:
        super().__init__(config, spec, norm=norm, **settings)
        self.attention_out_norm = norm(config.hidden_size, config.norm_eps)
        self.mlp_out_norm = norm(config.hidden_size, config.norm_eps)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms = NO_TERMS
    ) -> Tensor:
        """`[T, hidden]` float32 → `[R, hidden]`, the rows that are read."""
        first = None if self.attention_norm is None else self.attention_norm.prepared
        hidden = batch.take_read(hidden) + self.attention(
            hidden,
            batch,
            terms,
            pre_norm=first,
            residual=False,
            post_norm=self.attention_out_norm.prepared,
        )
        added: Tensor = self.mlp(
            hidden,
            residual=None,
            pre_norm=self.mlp_norm.prepared,
            post_norm=self.mlp_out_norm.prepared,
        )
        return hidden + added

    def weights(self) -> LayerWeights | None:
        """See `WholeLayer`."""
        return whole_layer(
            self.attention,
            self.mlp,
            pre_norms=(self.attention_norm, self.mlp_norm),
            post_norms=(self.attention_out_norm, self.mlp_out_norm),
            adds_behind=True,
        )
