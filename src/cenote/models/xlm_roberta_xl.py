"""XLM-RoBERTa-XL (Goyal et al. 2021, arXiv:2105.00572): XLM-RoBERTa with pre-norm layers.

Embeddings aren't normed; the last layer's sum is. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch
from cenote.loader.rules import Rename, Rule
from cenote.models.bert import encoder_rules
from cenote.models.blocks import PreNormLayer, bidirectional
from cenote.models.roberta import (
    CLASSIFIER_RULES,
    HEADS,
    LM_RULES,
    POOLER,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)

_ROOT = r"(?:roberta\.)?encoder\."
_BODY_RULES: tuple[Rule, ...] = (
    Rename(
        _ROOT + r"layer\.(\d+)\.attention\.self_attn_layer_norm\.(weight|bias)",
        r"layers.\1.attention_norm.\2",
    ),
    Rename(_ROOT + r"layer\.(\d+)\.LayerNorm\.(weight|bias)", r"layers.\1.mlp_norm.\2"),
    Rename(_ROOT + r"LayerNorm\.(weight|bias)", r"norm.\1"),
    *encoder_rules("roberta"),
    POOLER,
)


class XLMRobertaXLModel(RobertaModel):
    """The encoder alone. A checkpoint's pooler and heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, HEADS)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.norm = LayerNorm(config.hidden_size, config.norm_eps)

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """RoBERTa's tables without a norm."""
        embeddings = super().make_embeddings(config)
        embeddings.norm = None
        return embeddings

    def make_layers(self, config: ModelConfig) -> nn.ModuleList:
        """Layers with a norm before each part."""
        spec = bidirectional(config)
        return nn.ModuleList(PreNormLayer(config, spec) for _ in range(config.num_layers))

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[R, hidden]`, float32."""
        hidden: Tensor = self.norm(super().forward(batch))
        return hidden


class XLMRobertaXLForSequenceClassification(XLMRobertaXLModel, RobertaForSequenceClassification):
    """A class for a text or a pair."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *CLASSIFIER_RULES)


class XLMRobertaXLForTokenClassification(XLMRobertaXLModel, RobertaForTokenClassification):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = _BODY_RULES


class XLMRobertaXLForMaskedLM(XLMRobertaXLModel, RobertaForMaskedLM):
    """Logits over the vocabulary for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *LM_RULES)
