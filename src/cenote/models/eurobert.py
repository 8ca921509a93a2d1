"""EuroBERT (Boizard et al. 2025, arXiv:2503.05500): Llama's layers with attention to both sides.

Encoder, classifiers and masked LM. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.layers.linear import Linear
from cenote.loader.rules import Ignore, Rename, Rule
from cenote.models.base import ClassifyPooling, ModelInfo
from cenote.models.heads import Classifier, TokenClassifier
from cenote.models.llama import BODY_RULES, LlamaModel

# `classifier_pooling`, and its name in the original repository, to ours.
_POOLING: dict[str, ClassifyPooling] = {"bos": "cls", "mean": "mean", "late": "late"}


class EuroBertModel(LlamaModel):
    """The encoder alone. A checkpoint's heads are not used."""

    info: ClassVar[ModelInfo] = ModelInfo()
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *BODY_RULES,
        Ignore(r"(?:lm_head|dense|classifier)\..*"),
    )


class EuroBertForSequenceClassification(EuroBertModel):
    """A class for a text or a pair: out(gelu(dense(row))), averaged before it or after."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="late")
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *BODY_RULES,
        Rename(r"dense\.(weight|bias)", r"classifier.dense.\1"),
        Rename(r"classifier\.(weight|bias)", r"classifier.out.\1"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Classifier(config, "gelu_erf")
        if self._pooling not in _POOLING:
            raise ModelLoadError(
                f"config.json: classifier_pooling must be one of {sorted(_POOLING)}, not "
                f"{self._pooling!r}."
            )

    @property
    def _pooling(self) -> str:
        hf = self.config.hf
        return cast(str, hf.get("classifier_pooling") or hf.get("clf_pooling") or "late")

    @property
    def classify_pooling(self) -> ClassifyPooling:
        """`classifier_pooling` of the configuration."""
        return _POOLING[self._pooling]


class EuroBertForTokenClassification(TokenClassifier, EuroBertModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = BODY_RULES


class LMHead(nn.Module):
    """One matrix from a row to its logits; not the word table."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        bias = bool(config.hf.get("mlp_bias", False))
        self.out = Linear(config.hidden_size, config.vocab_size, bias=bias)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits `[n, vocab]` float32."""
        logits: Tensor = self.out(rows, out_dtype=torch.float32)
        return logits


class EuroBertForMaskedLM(EuroBertModel):
    """Logits over the vocabulary for every token."""

    info: ClassVar[ModelInfo] = ModelInfo(head="vocab")
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *BODY_RULES,
        Rename(r"lm_head\.(weight|bias)", r"head.out.\1"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.head = LMHead(config)
