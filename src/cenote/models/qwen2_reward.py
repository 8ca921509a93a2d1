"""Qwen2's reward models (Zhang et al. 2025, arXiv:2501.07301): a number for an answer, or for each
of its steps.

It knows nothing of which tokens end a step.
"""

from __future__ import annotations

from typing import ClassVar

from cenote.config.model import ModelConfig
from cenote.layers.kv import KVShape
from cenote.loader.rules import Ignore, Rename, Rule
from cenote.models.base import ModelInfo
from cenote.models.heads import Classifier
from cenote.models.llama import BODY_RULES
from cenote.models.qwen2 import Qwen2Model

_RULES: tuple[Rule, ...] = (
    *BODY_RULES,
    Ignore(r"lm_head\..*"),
    Rename(r"score\.0\.(weight|bias)", r"classifier.dense.\1"),
    Rename(r"score\.2\.(weight|bias)", r"classifier.out.\1"),
)


class Qwen2ForRewardModel(Qwen2Model):
    """How good an answer is: out(relu(dense(last row)))."""

    info: ClassVar[ModelInfo] = ModelInfo(
        causal=True, head="classify", default_pooling="last", classify_pooling="last"
    )
    weight_rules: ClassVar[tuple[Rule, ...]] = _RULES

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Classifier(config, "relu")


class Qwen2ForProcessRewardModel(Qwen2Model):
    """How good each step of an answer is, at the tokens that end steps.

    Rows of all tokens are needed at once, so prompts run whole.
    """

    info: ClassVar[ModelInfo] = ModelInfo(head="token_classify", default_pooling="last")
    weight_rules: ClassVar[tuple[Rule, ...]] = _RULES

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Classifier(config, "relu")

    @property
    def causal(self) -> bool:
        """Not to the engine: nothing of a prompt is kept."""
        return False

    @property
    def kv_shape(self) -> KVShape | None:
        """Nothing is kept."""
        return None
