"""MPNet (Song et al. 2020, arXiv:2004.09297): BERT's layers with a relative position bias.

The bias is one table for all layers; positions start after the padding index. It knows nothing of
pooling.
"""

from __future__ import annotations

from typing import ClassVar

from cenote.config.model import ModelConfig
from cenote.kernels.attention import AttentionTerms
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.relative import RelativeBias
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.bert import BertModel
from cenote.models.heads import MaskedLM, TextClassifier, TokenClassifier
from cenote.models.roberta import CLASSIFIER_RULES, HEADS, LM_RULES

# Distances from here on share a bucket; no configuration names it.
_MAX_DISTANCE = 128

_ROOT = r"(?:mpnet\.)?"
_LAYER = _ROOT + r"encoder\.layer\.(\d+)\."
_BODY_RULES: tuple[Rule, ...] = (
    Ignore(_ROOT + r"embeddings\.position_ids"),
    Ignore(_ROOT + r"pooler\..*"),
    Rename(_ROOT + r"embeddings\.word_embeddings\.weight", "embeddings.words"),
    Rename(_ROOT + r"embeddings\.position_embeddings\.weight", "embeddings.positions"),
    Rename(_ROOT + r"embeddings\.LayerNorm\.(weight|bias)", r"embeddings.norm.\1"),
    Rename(_ROOT + r"encoder\.relative_attention_bias\.weight", "relative.weight"),
    *(
        Stack(
            _LAYER + rf"attention\.attn\.{part}\.(weight|bias)", r"layers.\1.attention.qkv.\2", i, 3
        )
        for i, part in enumerate("qkv")
    ),
    Rename(_LAYER + r"attention\.attn\.o\.(weight|bias)", r"layers.\1.attention.out.\2"),
    Rename(_LAYER + r"attention\.LayerNorm\.(weight|bias)", r"layers.\1.attention_norm.\2"),
    Rename(_LAYER + r"intermediate\.dense\.(weight|bias)", r"layers.\1.mlp.up.\2"),
    Rename(_LAYER + r"output\.dense\.(weight|bias)", r"layers.\1.mlp.down.\2"),
    Rename(_LAYER + r"output\.LayerNorm\.(weight|bias)", r"layers.\1.mlp_norm.\2"),
)


class MPNetModel(BertModel):
    """The encoder alone. A checkpoint's pooler and heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        HEADS,
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        buckets = int(config.hf.get("relative_attention_num_buckets", 32))
        self.relative = RelativeBias(config.num_heads, buckets, _MAX_DISTANCE)

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """Words, and positions that count from the padding index + 1."""
        return TokenEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=config.positions,
            offset=int(config.hf.get("pad_token_id", 1)) + 1,
            norm=LayerNorm(config.hidden_size, config.norm_eps),
        )

    def terms(self, batch: PackedBatch) -> AttentionTerms:
        """The bias for the longest sequence; shorter ones use its upper left corner."""
        return AttentionTerms(bias=self.relative(batch.max_seqlen), key_mask=batch.key_mask)


class MPNetForSequenceClassification(TextClassifier, MPNetModel):
    """A class for a text or a pair: out(tanh(dense(row of the first token)))."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        *CLASSIFIER_RULES,
    )


class MPNetForTokenClassification(TokenClassifier, MPNetModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = _BODY_RULES


class MPNetForMaskedLM(MaskedLM, MPNetModel):
    """Logits over the vocabulary for every token."""

    head_activation: ClassVar[str | None] = "gelu_erf"
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        *LM_RULES,
    )
