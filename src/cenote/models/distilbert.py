"""DistilBERT (Sanh et al. 2019, arXiv:1910.01108): BERT's layers without token types.

Its tensors and heads have names of their own. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

from cenote.config.model import ModelConfig
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.norm import LayerNorm
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.base import ModelInfo
from cenote.models.bert import BertModel
from cenote.models.heads import Classifier, MaskedLM, TokenClassifier

_ROOT = r"(?:distilbert\.)?"
_LAYER = _ROOT + r"transformer\.layer\.(\d+)\."
_BODY_RULES: tuple[Rule, ...] = (
    Ignore(_ROOT + r"embeddings\.position_ids"),
    Rename(_ROOT + r"embeddings\.word_embeddings\.weight", "embeddings.words"),
    Rename(_ROOT + r"embeddings\.position_embeddings\.weight", "embeddings.positions"),
    Rename(_ROOT + r"embeddings\.LayerNorm\.(weight|bias)", r"embeddings.norm.\1"),
    *(
        Stack(
            _LAYER + rf"attention\.{part}_lin\.(weight|bias)", r"layers.\1.attention.qkv.\2", i, 3
        )
        for i, part in enumerate("qkv")
    ),
    Rename(_LAYER + r"attention\.out_lin\.(weight|bias)", r"layers.\1.attention.out.\2"),
    Rename(_LAYER + r"sa_layer_norm\.(weight|bias)", r"layers.\1.attention_norm.\2"),
    Rename(_LAYER + r"ffn\.lin1\.(weight|bias)", r"layers.\1.mlp.up.\2"),
    Rename(_LAYER + r"ffn\.lin2\.(weight|bias)", r"layers.\1.mlp.down.\2"),
    Rename(_LAYER + r"output_layer_norm\.(weight|bias)", r"layers.\1.mlp_norm.\2"),
)


class DistilBertModel(BertModel):
    """The encoder alone. A checkpoint's heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Ignore(r"(?:vocab_\w+|pre_classifier|classifier)\..*"),
    )

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """Words and positions."""
        return TokenEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=config.positions,
            norm=LayerNorm(config.hidden_size, config.norm_eps),
        )


class DistilBertForSequenceClassification(DistilBertModel):
    """A class for a text or a pair: classifier(relu(pre_classifier(row of [CLS])))."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="cls")
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(r"pre_classifier\.(weight|bias)", r"classifier.dense.\1"),
        Rename(r"classifier\.(weight|bias)", r"classifier.out.\1"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Classifier(config, "relu")


class DistilBertForTokenClassification(TokenClassifier, DistilBertModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = _BODY_RULES


class DistilBertForMaskedLM(MaskedLM, DistilBertModel):
    """Logits over the vocabulary for every token; the form of small SPLADE models."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(r"vocab_transform\.(weight|bias)", r"head.dense.\1"),
        Rename(r"vocab_layer_norm\.(weight|bias)", r"head.norm.\1"),
        Rename(r"vocab_projector\.bias", "head.bias"),
        Ignore(r"vocab_projector\.weight"),
    )
