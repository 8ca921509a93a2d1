"""EuroBERT (Boizard et al. 2025, arXiv:2503.05500): Llama's layers with attention to both sides.

Encoder, classifiers and masked LM. It knows nothing of pooling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.layers.packing import WeightForm
from cenote.layers.vocabulary import VocabularyProduct
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

    bias: nn.Parameter | None
    product: VocabularyProduct

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        biased = bool(config.hf.get("mlp_bias", False))
        bias = torch.empty(config.vocab_size, dtype=torch.float32)
        self.register_parameter("bias", nn.Parameter(bias) if biased else None)

    def pack(self, form: WeightForm) -> None:
        """Prepares the matrix."""
        self.product = VocabularyProduct(self.weight, self.bias, form.dtype)
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)

    def forward(self, rows: Tensor) -> Iterator[Tensor]:
        """Logits `[n, entries]` float32, run by run of the vocabulary."""
        return self.product(rows)


class EuroBertForMaskedLM(EuroBertModel):
    """Logits over the vocabulary for every token."""

    info: ClassVar[ModelInfo] = ModelInfo(head="vocab")
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *BODY_RULES,
        Rename(r"lm_head\.(weight|bias)", r"head.\1"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.head = LMHead(config)
