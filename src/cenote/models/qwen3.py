"""Qwen3 (Yang et al. 2025, arXiv:2505.09388): Llama with normed queries and keys.

The last layers may have a window. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import Any

from cenote.models.llama import LlamaModel, WithScore
from cenote.models.qwen2 import slides_from


class Qwen3Model(LlamaModel):
    """The decoder alone. A checkpoint's heads are not used."""

    @property
    def layer_settings(self) -> dict[str, Any]:
        """Norms on the heads of queries and keys."""
        return {**super().layer_settings, "head_norm": True}

    def slides(self, at: int) -> bool:
        """Layers from `max_window_layers` on, where windows are switched on."""
        return slides_from(self, at)


class Qwen3ForSequenceClassification(WithScore, Qwen3Model):
    """A class for a text or a pair."""
