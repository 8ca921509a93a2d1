"""GTE's encoder (Zhang et al. 2024, arXiv:2407.19669), also Snowflake Arctic Embed v2's.

BERT with rotary positions and gated MLPs; configurations call it `new` (its first repository) or
`gte` (transformers), and the tensors have both names. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from cenote.config.model import ModelConfig
from cenote.config.rope import rope_config
from cenote.errors import ModelLoadError
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.norm import LayerNorm
from cenote.layers.rotary import Rotary
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.bert import BertModel
from cenote.models.blocks import PostNormLayer
from cenote.models.heads import MaskedLM, TextClassifier, TokenClassifier

_ROOT = r"(?:(?:new|gte)\.)?"
_LAYER = _ROOT + r"(?:encoder\.layer|layers)\.(\d+)\."
_ATTENTION = _LAYER + r"(?:attention|self_attn)\."
_WB = r"\.(weight|bias)"

_BODY_RULES: tuple[Rule, ...] = (
    Ignore(r".*(?:inv_freq|position_ids)"),
    Rename(_ROOT + r"embeddings\.word_embeddings\.weight", "embeddings.words"),
    Rename(_ROOT + r"embeddings\.token_type_embeddings\.weight", "embeddings.types"),
    Rename(_ROOT + r"embeddings\.LayerNorm" + _WB, r"embeddings.norm.\1"),
    Rename(_ATTENTION + r"qkv_proj" + _WB, r"layers.\1.attention.qkv.\2"),
    *(
        Stack(_ATTENTION + f"{part}_proj" + _WB, r"layers.\1.attention.qkv.\2", index, 3)
        for index, part in enumerate("qkv")
    ),
    Rename(_ATTENTION + r"o_proj" + _WB, r"layers.\1.attention.out.\2"),
    Rename(_LAYER + r"(?:attn_ln|post_attention_layernorm)" + _WB, r"layers.\1.attention_norm.\2"),
    Rename(_LAYER + r"mlp\.up_gate_proj\.weight", r"layers.\1.mlp.up.weight"),
    Stack(_LAYER + r"mlp\.up_proj\.weight", r"layers.\1.mlp.up.weight", 0, 2),
    Stack(_LAYER + r"mlp\.gate_proj\.weight", r"layers.\1.mlp.up.weight", 1, 2),
    Rename(_LAYER + r"mlp\.down_proj" + _WB, r"layers.\1.mlp.down.\2"),
    Rename(_LAYER + r"(?:mlp_ln|post_mlp_layernorm)" + _WB, r"layers.\1.mlp_norm.\2"),
)
_POOLER = Ignore(_ROOT + r"pooler\..*")

# What the first repository's configurations could also ask for, and no released model does.
_REQUIRED = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "logn_attention_scale": False,
}


class GteModel(BertModel):
    """The encoder alone. A checkpoint's pooler and heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        _POOLER,
        Ignore(r"(?:lm_head|classifier)\..*"),
    )

    def __init__(self, config: ModelConfig) -> None:
        for name, only in _REQUIRED.items():
            if config.hf.get(name, only) != only:
                raise ModelLoadError(
                    f"config.json: {name} {config.hf[name]!r} is not supported, only {only!r}."
                )
        super().__init__(config)

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """Tables without positions, and without types where there is none."""
        return TokenEmbedding(
            config.vocab_size,
            config.hidden_size,
            types=config.token_types,
            norm=LayerNorm(config.hidden_size, config.norm_eps),
        )

    def make_layers(self, config: ModelConfig) -> nn.ModuleList:
        """Rotary attention and a gated MLP whose first product has no bias."""
        # The two libraries' defaults for a configuration that doesn't say.
        rope = rope_config(config.hf, base=160000.0 if config.model_type == "gte" else 10000.0)
        rotary = Rotary(config.head_dim, config.max_model_len, rope)
        return nn.ModuleList(
            PostNormLayer(config, gate="second", up_bias=False, rotary=rotary)
            for _ in range(config.num_layers)
        )


class GteForSequenceClassification(TextClassifier, GteModel):
    """A class for a text or a pair: tanh(dense(row of the first token)) into a classifier."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(_ROOT + r"pooler\.dense" + _WB, r"classifier.dense.\1"),
        Rename(r"classifier" + _WB, r"classifier.out.\1"),
    )


class GteForTokenClassification(TokenClassifier, GteModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, _POOLER)


class GteForMaskedLM(MaskedLM, GteModel):
    """Logits over the vocabulary for every token."""

    head_activation: ClassVar[str | None] = "gelu_erf"
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        _POOLER,
        Ignore(r"lm_head\.decoder\.weight"),
        Rename(r"lm_head\.decoder\.bias", "head.bias"),
        Rename(r"lm_head\.dense" + _WB, r"head.dense.\1"),
        Rename(r"lm_head\.(?:norm|layer_norm)" + _WB, r"head.norm.\1"),
    )
