"""ELECTRA (Clark et al. 2020, arXiv:2003.10555): BERT's encoder, its embeddings often narrower.

Discriminators and generators have the same body. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

from cenote.config.model import ModelConfig
from cenote.layers.embedding import ProjectedEmbedding, TokenEmbedding
from cenote.layers.norm import LayerNorm
from cenote.loader.rules import Ignore, Rename, Rule
from cenote.models.base import ModelInfo
from cenote.models.bert import BertModel, encoder_rules
from cenote.models.heads import Classifier, MaskedLM, TokenClassifier

_BODY_RULES: tuple[Rule, ...] = (
    *encoder_rules("electra"),
    Rename(r"(?:electra\.)?embeddings_project\.(weight|bias)", r"embeddings.project.\1"),
)


class ElectraModel(BertModel):
    """The encoder alone. A checkpoint's pre-training heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Ignore(r"(?:generator_\w+|discriminator_predictions|classifier)\..*"),
    )

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """BERT's tables, with a product where they are narrower than the model."""
        width = int(config.hf.get("embedding_size", config.hidden_size))
        if width == config.hidden_size:
            return super().make_embeddings(config)
        return ProjectedEmbedding(
            config.vocab_size,
            width,
            config.hidden_size,
            positions=config.positions,
            types=config.token_types,
            norm=LayerNorm(width, config.norm_eps),
        )


class ElectraForSequenceClassification(ElectraModel):
    """A class for a text or a pair: out(gelu(dense(row of [CLS])))."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="cls")
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(r"classifier\.dense\.(weight|bias)", r"classifier.dense.\1"),
        Rename(r"classifier\.out_proj\.(weight|bias)", r"classifier.out.\1"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Classifier(config, "gelu_erf")


class ElectraForTokenClassification(TokenClassifier, ElectraModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = _BODY_RULES


class ElectraForMaskedLM(MaskedLM, ElectraModel):
    """A generator: logits over the vocabulary for every token."""

    head_activation: ClassVar[str | None] = "gelu_erf"
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(r"generator_predictions\.dense\.(weight|bias)", r"head.dense.\1"),
        Rename(r"generator_predictions\.LayerNorm\.(weight|bias)", r"head.norm.\1"),
        Rename(r"generator_lm_head\.bias", "head.bias"),
        Ignore(r"generator_lm_head\.weight"),
    )
