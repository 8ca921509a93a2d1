"""JinaBERT v2 (Günther et al. 2023, arXiv:2310.19923): BERT with ALiBi and gated MLPs.

Logits fall with the distance of two tokens, to both sides alike. The variant of the code model
norms queries and keys as well. It knows nothing of pooling.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.kernels.attention import NO_TERMS, AttentionTerms
from cenote.kernels.layers import LayerWeights
from cenote.kernels.norm import norm
from cenote.layers.attention import SelfAttention
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.mlp import MLP
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch
from cenote.loader.rules import Ignore, Rename, Rule
from cenote.models.bert import LM_RULES, BertModel, encoder_rules
from cenote.models.blocks import bidirectional, whole_layer
from cenote.models.heads import MaskedLM, TextClassifier, TokenClassifier

_ACTIVATIONS = {"geglu": "gelu_erf", "reglu": "relu"}
# How a configuration names the variant whose queries and keys are normed.
_NORMED = "qk-post-norm"

_LAYER = r"(?:bert\.)?encoder\.layer\.(\d+)\."
_WB = r"\.(weight|bias)"

_BODY_RULES: tuple[Rule, ...] = (
    Ignore(r".*encoder\.alibi"),
    Rename(_LAYER + r"mlp\.(?:gated_layers|up_gated_layer)\.weight", r"layers.\1.mlp.up.weight"),
    Rename(_LAYER + r"mlp\.(?:wo|down_layer)" + _WB, r"layers.\1.mlp.down.\2"),
    Rename(_LAYER + r"(?:mlp\.layernorm|layer_norm_2)" + _WB, r"layers.\1.mlp_norm.\2"),
    Rename(_LAYER + r"layer_norm_1" + _WB, r"layers.\1.second_norm.\2"),
    Rename(_LAYER + r"attention\.self\.layer_norm_q" + _WB, r"layers.\1.attention.q_norm.\2"),
    Rename(_LAYER + r"attention\.self\.layer_norm_k" + _WB, r"layers.\1.attention.k_norm.\2"),
    *encoder_rules("bert"),
)
_POOLER = Ignore(r"(?:bert\.)?pooler\..*")


def alibi_slopes(heads: int) -> list[float]:
    """How fast each head's logits fall with distance (Press et al. 2021, arXiv:2108.12409).

    2^(-8i/n) for a power of two; else those of the next lower one, and between them every second
    of the next higher one.
    """
    lower = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / lower) for i in range(lower)]
    between = [2.0 ** (-8 * (i + 1) / (2 * lower)) for i in range(0, 2 * lower, 2)]
    return slopes + between[: heads - lower]


class NormedAttention(SelfAttention):
    """Self-attention whose queries and keys go through a LayerNorm over all heads."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.hidden_size, bidirectional(config))
        self.q_norm = LayerNorm(self.spec.q_size, config.norm_eps)
        self.k_norm = LayerNorm(self.spec.kv_size, config.norm_eps)

    def mix(self, qkv: Tensor, batch: PackedBatch, terms: AttentionTerms) -> Tensor:
        """As `SelfAttention`, after the norms."""
        q, k, v = qkv.split_with_sizes(self.sizes, dim=1)
        q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        return self.attend(q, k, v, batch, terms)


class JinaBertLayer(nn.Module):
    """BERT's layer with a gated MLP. The normed variant takes its first sum and norm twice."""

    def __init__(self, config: ModelConfig, activation: str, *, normed: bool) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        plain = SelfAttention(hidden, bidirectional(config)) if not normed else None
        self.attention = plain or NormedAttention(config)
        self.attention_norm = LayerNorm(hidden, eps)
        self.second_norm = LayerNorm(hidden, eps) if normed else None
        self.mlp = MLP(
            hidden,
            config.intermediate_size,
            activation,
            gate="second" if normed else "first",
            up_bias=False,
        )
        self.mlp_norm = LayerNorm(hidden, eps)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms = NO_TERMS
    ) -> Tensor:
        """`[T, hidden]` float32 → `[R, hidden]`, the rows that are read."""
        given = batch.take_read(hidden)
        hidden = self.attention(hidden, batch, terms, post_norm=self.attention_norm.prepared)
        if self.second_norm is not None:
            hidden = norm(hidden, self.second_norm.prepared, residual=given)
        out: Tensor = self.mlp(hidden, residual=hidden, post_norm=self.mlp_norm.prepared)
        return out

    def weights(self) -> LayerWeights | None:
        """See `WholeLayer`; the normed variant's attention is of another kind."""
        norms = (self.attention_norm, self.mlp_norm)
        return whole_layer(self.attention, self.mlp, post_norms=norms)


class JinaBertModel(BertModel):
    """The encoder alone. A checkpoint's pooler and heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        _POOLER,
        Ignore(r"(?:cls|classifier)\..*"),
    )
    slopes: Tensor

    def __init__(self, config: ModelConfig) -> None:
        if config.hf.get("position_embedding_type", "alibi") != "alibi":
            raise ModelLoadError(
                f"config.json: position_embedding_type "
                f"{config.hf['position_embedding_type']!r} is not supported, only 'alibi'."
            )
        super().__init__(config)
        # Not from the checkpoint, so made for real even while parameters are on the meta device.
        slopes = torch.tensor(alibi_slopes(config.num_heads), dtype=torch.float32, device="cpu")
        self.register_buffer("slopes", slopes, persistent=False)

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """Tables without positions."""
        return TokenEmbedding(
            config.vocab_size,
            config.hidden_size,
            types=config.token_types,
            norm=LayerNorm(config.hidden_size, config.norm_eps),
        )

    def make_layers(self, config: ModelConfig) -> nn.ModuleList:
        """Layers of the variant that the configuration names. Raises ModelLoadError."""
        kind = config.hf.get("feed_forward_type", "geglu")
        if kind not in _ACTIVATIONS:
            raise ModelLoadError(
                f"config.json: feed_forward_type {kind!r} is not supported; known: "
                f"{sorted(_ACTIVATIONS)}."
            )
        normed = any(_NORMED in str(path) for path in (config.hf.get("auto_map") or {}).values())
        return nn.ModuleList(
            JinaBertLayer(config, _ACTIVATIONS[kind], normed=normed)
            for _ in range(config.num_layers)
        )

    def terms(self, batch: PackedBatch) -> AttentionTerms:
        """The slopes of all heads."""
        return AttentionTerms(alibi_slopes=self.slopes, key_mask=batch.key_mask)


class JinaBertForSequenceClassification(TextClassifier, JinaBertModel):
    """A class for a text or a pair: tanh(dense(row of [CLS])) into a classifier."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(r"bert\.pooler\.dense" + _WB, r"classifier.dense.\1"),
        Rename(r"classifier" + _WB, r"classifier.out.\1"),
    )


class JinaBertForTokenClassification(TokenClassifier, JinaBertModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, _POOLER)


class JinaBertForMaskedLM(MaskedLM, JinaBertModel):
    """Logits over the vocabulary for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        _POOLER,
        *LM_RULES,
    )
