"""Gemma 2 (2024, arXiv:2408.00118): Gemma with norms around each part, soft caps on attention's
logits, and a window in every other layer.

It knows nothing of pooling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from cenote.kernels.attention import AttentionSpec
from cenote.loader.rules import Rename, Rule
from cenote.models.blocks import PreNormLayer, SandwichLayer
from cenote.models.gemma import GemmaModel
from cenote.models.llama import BODY_RULES, HEAD_RULE, SCORE_RULE, WithScore

_LAYER = r"(?:model\.)?layers\.(\d+)\."

# Before Llama's, which has another norm by the name of the first one.
SANDWICH_RULES: tuple[Rule, ...] = (
    Rename(_LAYER + r"post_attention_layernorm\.weight", r"layers.\1.attention_out_norm.weight"),
    Rename(_LAYER + r"pre_feedforward_layernorm\.weight", r"layers.\1.mlp_norm.weight"),
    Rename(_LAYER + r"post_feedforward_layernorm\.weight", r"layers.\1.mlp_out_norm.weight"),
    *BODY_RULES,
)


class Gemma2Model(GemmaModel):
    """The decoder alone. A checkpoint's heads are not used."""

    layer_class: ClassVar[type[PreNormLayer]] = SandwichLayer
    weight_rules: ClassVar[tuple[Rule, ...]] = (*SANDWICH_RULES, HEAD_RULE)

    def slides(self, at: int) -> bool:
        """Every other layer, the first one included."""
        return at % 2 == 0

    def attention_spec(self, at: int) -> AttentionSpec:
        """With the configuration's own scale and cap."""
        hf = self.config.hf
        return replace(
            super().attention_spec(at),
            scale=float(hf.get("query_pre_attn_scalar", 256)) ** -0.5,
            softcap=float(hf.get("attn_logit_softcapping", 50.0) or 0.0),
        )


class Gemma2ForSequenceClassification(WithScore, Gemma2Model):
    """A class for a text or a pair."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*SANDWICH_RULES, SCORE_RULE)
