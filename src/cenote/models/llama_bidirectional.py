"""Llama turned to both sides: NVIDIA's embedders and rerankers (llama-nemotron, nv-embedqa).

It knows nothing of pooling beyond which row(s) its classifier reads.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.models.base import ClassifyPooling, ModelInfo
from cenote.models.llama import LlamaModel, WithScore

# `pooling` of the configuration to ours.
_POOLING: dict[str, ClassifyPooling] = {"avg": "mean", "cls": "cls", "last": "last"}


class LlamaBidirectionalModel(LlamaModel):
    """The encoder alone. A checkpoint's heads are not used."""

    info: ClassVar[ModelInfo] = ModelInfo()

    @property
    def one_sided(self) -> bool:
        """Never."""
        return False


class LlamaBidirectionalForSequenceClassification(WithScore, LlamaBidirectionalModel):
    """A class for a text or a pair; logits are divided by the configuration's temperature."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="mean")

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        pooling = config.hf.get("pooling", "avg")
        if pooling not in _POOLING:
            raise ModelLoadError(
                f"config.json: pooling must be one of {sorted(_POOLING)}, not {pooling!r}."
            )
        self.pooling = _POOLING[pooling]
        self.temperature = float(config.hf.get("temperature") or 1.0)

    @property
    def classify_pooling(self) -> ClassifyPooling:
        """`pooling` of the configuration."""
        return self.pooling

    def classify(self, rows: Tensor) -> Tensor:
        """Logits `[n, num_labels]` float32 of rows `[n, hidden]`."""
        return super().classify(rows) / self.temperature
