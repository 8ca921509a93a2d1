"""Gemma (2024, arXiv:2403.08295): Llama with scaled word vectors and norms by 1 + weight.

It knows nothing of pooling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from cenote.config.model import ModelConfig
from cenote.layers.norm import OffsetRMSNorm, RMSNorm
from cenote.models.llama import LlamaModel, WithScore


class GemmaModel(LlamaModel):
    """The decoder alone. A checkpoint's heads are not used."""

    norm: ClassVar[type[RMSNorm]] = OffsetRMSNorm

    def __init__(self, config: ModelConfig) -> None:
        # Early configurations name the exact GELU, but the models are trained with the other one.
        early = config.hf.get("hidden_activation") is None and config.hidden_act == "gelu_erf"
        super().__init__(replace(config, hidden_act="gelu_tanh") if early else config)

    @property
    def embedding_scale(self) -> float:
        """The root of the width."""
        return float(self.config.hidden_size**0.5)


class GemmaForSequenceClassification(WithScore, GemmaModel):
    """A class for a text or a pair."""
