"""Qwen2 (Yang et al. 2024, arXiv:2407.10671): Llama whose queries, keys and values have biases.

The last layers may have a window. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import Any

from cenote.models.llama import LlamaModel, WithScore


class Qwen2Model(LlamaModel):
    """The decoder alone. A checkpoint's heads are not used."""

    @property
    def layer_settings(self) -> dict[str, Any]:
        """Biases in the first product only."""
        return {**super().layer_settings, "bias": True, "out_bias": False, "mlp_bias": False}

    def slides(self, at: int) -> bool:
        """Layers from `max_window_layers` on, where windows are switched on."""
        return slides_from(self, at)


class Qwen2ForSequenceClassification(WithScore, Qwen2Model):
    """A class for a text or a pair."""


def slides_from(model: LlamaModel, at: int) -> bool:
    """Whether a layer has a window by `use_sliding_window` and `max_window_layers`."""
    hf = model.config.hf
    return bool(hf.get("use_sliding_window")) and at >= int(hf.get("max_window_layers", 28))
