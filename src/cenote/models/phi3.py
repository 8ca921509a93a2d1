"""Phi-3 (Abdin et al. 2024, arXiv:2404.14219): Llama as two fused products, with a window.

It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

from cenote.loader.rules import Rename, Rule
from cenote.models.llama import BODY_RULES, HEAD_RULE, SCORE_RULE, LlamaModel, WithScore

_LAYER = r"(?:model\.)?layers\.(\d+)\."
_FUSED: tuple[Rule, ...] = (
    Rename(_LAYER + r"self_attn\.qkv_proj\.weight", r"layers.\1.attention.qkv.weight"),
    Rename(_LAYER + r"mlp\.gate_up_proj\.weight", r"layers.\1.mlp.up.weight"),
    *BODY_RULES,
)


class Phi3Model(LlamaModel):
    """The decoder alone. A checkpoint's heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_FUSED, HEAD_RULE)

    def slides(self, at: int) -> bool:
        """All layers, where a window is configured."""
        return self.config.hf.get("sliding_window") is not None


class Phi3ForSequenceClassification(WithScore, Phi3Model):
    """A class for a text or a pair."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_FUSED, SCORE_RULE)
