"""RoBERTa (Liu et al. 2019, arXiv:1907.11692) and its twins XLM-RoBERTa, CamemBERT, data2vec-text.

BERT with positions that start after the padding index, one token type and other heads. It knows
nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

from cenote.config.model import ModelConfig
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.norm import LayerNorm
from cenote.loader.rules import Ignore, Rename, Rule
from cenote.models.bert import BertModel, encoder_rules
from cenote.models.heads import MaskedLM, TextClassifier, TokenClassifier

_PREFIX = r"roberta|data2vec_text"
POOLER = Ignore(rf"(?:(?:{_PREFIX})\.)?pooler\..*")
_BODY_RULES = (*encoder_rules(_PREFIX), POOLER)
HEADS = Ignore(r"(?:lm_head|classifier)\..*")
CLASSIFIER_RULES = (
    Rename(r"classifier\.dense\.(weight|bias)", r"classifier.dense.\1"),
    Rename(r"classifier\.out_proj\.(weight|bias)", r"classifier.out.\1"),
)
LM_RULES = (
    Ignore(r"lm_head\.decoder\.(weight|bias)"),
    Rename(r"lm_head\.bias", "head.bias"),
    Rename(r"lm_head\.dense\.(weight|bias)", r"head.dense.\1"),
    Rename(r"lm_head\.layer_norm\.(weight|bias)", r"head.norm.\1"),
)


class RobertaModel(BertModel):
    """The encoder alone. A checkpoint's pooler and heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, HEADS)

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """Tables whose positions count from the padding index + 1."""
        return TokenEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=config.positions,
            offset=int(config.hf.get("pad_token_id", 1)) + 1,
            types=config.token_types,
            norm=LayerNorm(config.hidden_size, config.norm_eps),
        )


class RobertaForSequenceClassification(TextClassifier, RobertaModel):
    """A class for a text or a pair: out(tanh(dense(row of the first token)))."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *CLASSIFIER_RULES)


class RobertaForTokenClassification(TokenClassifier, RobertaModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = _BODY_RULES


class RobertaForMaskedLM(MaskedLM, RobertaModel):
    """Logits over the vocabulary for every token."""

    head_activation: ClassVar[str | None] = "gelu_erf"
    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *LM_RULES)
