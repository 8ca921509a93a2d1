"""Gemma 3's text model (2025, arXiv:2503.19786), and with it EmbeddingGemma (arXiv:2509.20354).

Gemma 2's layers with normed queries and keys; layers with a window have rotary settings of their
own. EmbeddingGemma attends to both sides. It knows nothing of pooling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from cenote.config.rope import RopeConfig, rope_config
from cenote.kernels.attention import AttentionSpec
from cenote.loader.rules import Rule
from cenote.models.gemma2 import SANDWICH_RULES, Gemma2Model
from cenote.models.llama import FULL, SCORE_RULE, SLIDING, WithScore


class Gemma3TextModel(Gemma2Model):
    """The decoder, or EmbeddingGemma's encoder, alone. A checkpoint's heads are not used."""

    rope_base: ClassVar[float] = 1_000_000.0

    @property
    def layer_settings(self) -> dict[str, Any]:
        """Norms on the heads of queries and keys."""
        return {**super().layer_settings, "head_norm": True}

    def make_ropes(self) -> dict[str, RopeConfig]:
        """Two sets; before there was a map of them, scaling was for FULL layers alone."""
        hf = self.config.hf
        full = rope_config(hf, base=self.rope_base, layer_type=FULL)
        if SLIDING in (hf.get("rope_parameters") or {}):
            return {FULL: full, SLIDING: rope_config(hf, base=10000.0, layer_type=SLIDING)}
        local = {"rope_theta": hf.get("rope_local_base_freq")}
        return {FULL: full, SLIDING: rope_config(local, base=10000.0)}

    def slides(self, at: int) -> bool:
        """All layers but every sixth one."""
        return (at + 1) % int(self.config.hf.get("sliding_window_pattern", 6)) != 0

    def attention_spec(self, at: int) -> AttentionSpec:
        """To both sides, half of the window is on each."""
        spec = super().attention_spec(at)
        cap = float(self.config.hf.get("attn_logit_softcapping") or 0.0)
        if self.one_sided or self.layer_type(at) != SLIDING:
            return replace(spec, softcap=cap)
        half = self.sliding_window // 2
        return replace(spec, softcap=cap, window=(half, half))


class Gemma3TextForSequenceClassification(WithScore, Gemma3TextModel):
    """A class for a text or a pair."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*SANDWICH_RULES, SCORE_RULE)
