"""Mistral (Jiang et al. 2023, arXiv:2310.06825): Llama with a window in every layer, or in none.

It knows nothing of pooling.
"""

from __future__ import annotations

from cenote.models.llama import LlamaModel, WithScore


class MistralModel(LlamaModel):
    """The decoder alone. A checkpoint's heads are not used."""

    def slides(self, at: int) -> bool:
        """All layers, unless the configuration says null."""
        return self.config.hf.get("sliding_window", 0) is not None


class MistralForSequenceClassification(WithScore, MistralModel):
    """A class for a text or a pair."""
