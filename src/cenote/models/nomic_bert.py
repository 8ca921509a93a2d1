"""Nomic's BERT: v1 and v1.5 (Nussbaum et al. 2024, arXiv:2402.01613), v2-MoE (arXiv:2502.07972).

BERT with rotary positions; v1 has gated MLPs and no biases, v2 plain ones and a mixture of experts
in every second layer. Tensors and configurations have the hub repository's names or those of
transformers. It knows nothing of pooling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from torch import nn

from cenote.config.fields import positive_int
from cenote.config.model import ModelConfig
from cenote.config.rope import RopeConfig, rope_config
from cenote.errors import ModelLoadError
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.experts import Experts
from cenote.layers.norm import LayerNorm
from cenote.layers.rotary import Rotary
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.bert import LM_RULES, BertModel
from cenote.models.blocks import PostNormLayer
from cenote.models.heads import MaskedLM, TextClassifier, TokenClassifier

_ROOT = r"(?:(?:nomic_bert|bert)\.)?"
_LAYER = _ROOT + r"(?:encoder\.)?layers\.(\d+)\."
_WB = r"\.(weight|bias)"

_BODY_RULES: tuple[Rule, ...] = (
    Ignore(r".*inv_freq"),
    Rename(_ROOT + r"embeddings\.word_embeddings\.weight", "embeddings.words"),
    Rename(_ROOT + r"embeddings\.token_type_embeddings\.weight", "embeddings.types"),
    Rename(_ROOT + r"(?:emb_ln|embeddings\.LayerNorm)" + _WB, r"embeddings.norm.\1"),
    Rename(_LAYER + r"attn\.Wqkv" + _WB, r"layers.\1.attention.qkv.\2"),
    *(
        Stack(_LAYER + rf"self_attn\.{part}_proj" + _WB, r"layers.\1.attention.qkv.\2", index, 3)
        for index, part in enumerate("qkv")
    ),
    Rename(_LAYER + r"(?:attn\.out|self_attn\.o)_proj" + _WB, r"layers.\1.attention.out.\2"),
    Rename(_LAYER + r"(?:norm1|post_attention_layernorm)" + _WB, r"layers.\1.attention_norm.\2"),
    Rename(_LAYER + r"(?:norm2|post_mlp_layernorm)" + _WB, r"layers.\1.mlp_norm.\2"),
    Rename(_LAYER + r"mlp\.fc1" + _WB, r"layers.\1.mlp.up.\2"),
    Stack(_LAYER + r"mlp\.(?:fc11|up_proj)" + _WB, r"layers.\1.mlp.up.\2", 0, 2),
    Stack(_LAYER + r"mlp\.(?:fc12|gate_proj)" + _WB, r"layers.\1.mlp.up.\2", 1, 2),
    Rename(_LAYER + r"mlp\.(?:fc2|down_proj)" + _WB, r"layers.\1.mlp.down.\2"),
    Rename(_LAYER + r"mlp\.router\.layer\.weight", r"layers.\1.mlp.router.weight"),
    Rename(_LAYER + r"mlp\.experts\.mlp\.(w1|w2)", r"layers.\1.mlp.\2"),
    Rename(_LAYER + r"mlp\.experts\.bias", r"layers.\1.mlp.bias"),
)
_POOLER = Ignore(_ROOT + r"pooler\..*")

# What the hub repository's configurations could also ask for, and no released model does.
_REQUIRED = {
    "prenorm": False,
    "use_rms_norm": False,
    "rotary_emb_scale_base": None,
    "expert_choice_router": False,
    "moe_normalize_expert_weights": False,
    "num_shared_experts": 0,
}


class NomicBertModel(BertModel):
    """The encoder alone. A checkpoint's pooler and heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        _POOLER,
        Ignore(r"(?:cls|classifier)\..*"),
    )

    def __init__(self, config: ModelConfig) -> None:
        for name, only in _REQUIRED.items():
            if config.hf.get(name, only) not in (only, None):
                raise ModelLoadError(
                    f"config.json: {name} {config.hf[name]!r} is not supported, only {only!r}."
                )
        super().__init__(config)

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """Tables without positions."""
        return TokenEmbedding(
            config.vocab_size,
            config.hidden_size,
            types=config.token_types,
            norm=LayerNorm(config.hidden_size, config.norm_eps),
        )

    def make_layers(self, config: ModelConfig) -> nn.ModuleList:
        """Rotary attention, and an MLP or a mixture of experts."""
        rotary = Rotary(
            config.head_dim,
            config.max_model_len,
            _rope(config),
            interleaved=bool(config.hf.get("rotary_emb_interleaved", False)),
        )
        every = int(config.hf.get("moe_every_n_layers") or 0)
        return nn.ModuleList(
            _layer(config, rotary, mixed=every > 0 and index % every == 1)
            for index in range(config.num_layers)
        )


def _rope(config: ModelConfig) -> RopeConfig:
    """transformers' settings, or the hub repository's, whose scaling is dynamic."""
    hf = config.hf
    # The two libraries' defaults for a configuration that doesn't say.
    rope = rope_config(hf, base=1000.0 if _is_native(config) else 10000.0)
    factor = hf.get("rotary_scaling_factor")
    if factor is None:
        return rope
    trained = positive_int(hf, ("max_trained_positions",), 2048)
    return replace(rope, kind="dynamic", factor=float(factor), original=trained)


def _is_native(config: ModelConfig) -> bool:
    """Whether transformers' own class saved it: gated and without biases throughout."""
    return "activation_function" not in config.hf


def _layer(config: ModelConfig, rotary: Rotary, *, mixed: bool) -> PostNormLayer:
    hf = config.hf
    native = _is_native(config)
    gated = native or str(hf.get("activation_function", "")).endswith("glu")
    biases = {
        name: bool(hf.get(name, not native))
        for name in ("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias")
    }
    if biases["qkv_proj_bias"] != biases["mlp_fc2_bias"]:
        raise ModelLoadError(
            "config.json: qkv_proj_bias and mlp_fc2_bias that differ are not supported."
        )
    experts = None
    if mixed:
        experts = Experts(
            config.hidden_size,
            config.intermediate_size,
            config.hidden_act,
            count=positive_int(hf, ("num_experts",)),
            top=positive_int(hf, ("moe_top_k",), 1),
        )
    return PostNormLayer(
        config,
        gate="second" if gated else "none",
        bias=biases["qkv_proj_bias"],
        up_bias=biases["mlp_fc1_bias"],
        rotary=rotary,
        mlp=experts,
    )


class NomicBertForSequenceClassification(TextClassifier, NomicBertModel):
    """A class for a text or a pair: tanh(dense(row of the first token)) into a classifier."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(_ROOT + r"pooler\.dense" + _WB, r"classifier.dense.\1"),
        Rename(r"classifier" + _WB, r"classifier.out.\1"),
    )


class NomicBertForTokenClassification(TokenClassifier, NomicBertModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, _POOLER)


class NomicBertForMaskedLM(MaskedLM, NomicBertModel):
    """Logits over the vocabulary for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        _POOLER,
        *LM_RULES,
    )
