"""BERT (Devlin et al. 2018, arXiv:1810.04805): encoder, classifiers, masked LM and ColBERT.

Post-norm layers over the pack. It knows nothing of pooling: classifiers take rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.kernels.attention import AttentionTerms
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.run_layers import RunLayers
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.base import PoolingModel
from cenote.models.blocks import PostNormLayer
from cenote.models.heads import MaskedLM, TextClassifier, TokenClassifier, TokenProjection

# What a checkpoint with a head calls its body: BERT and its twin ERNIE.
_PREFIX = "bert|ernie"
_LM_NORM = r"cls\.predictions\.transform\.(?:LayerNorm|layer_norm)"
LM_RULES = (
    Ignore(r"cls\.predictions\.decoder\.(weight|bias)"),
    Rename(r"cls\.predictions\.bias", "head.bias"),
    Rename(r"cls\.predictions\.transform\.dense\.(weight|bias)", r"head.dense.\1"),
    Rename(_LM_NORM + r"\.(?:weight|gamma)", "head.norm.weight"),
    Rename(_LM_NORM + r"\.(?:bias|beta)", "head.norm.bias"),
)


def encoder_rules(prefix: str) -> tuple[Rule, ...]:
    """Rules of the encoder, whose tensors may stand under `prefix.` (a pattern) in a model with a
    head. They leave the pooler and the heads to the model's own rules."""
    root = rf"(?:(?:{prefix})\.)?"
    layer = root + r"encoder\.layer\.(\d+)\."
    norm = r"LayerNorm\.(?:weight|gamma)", r"LayerNorm\.(?:bias|beta)"
    attention = r"layers.\1.attention"
    return (
        Ignore(root + r"embeddings\.(position_ids|token_type_ids)"),
        Rename(root + r"embeddings\.task_type_embeddings\.weight", "embeddings.tasks"),
        Rename(root + r"embeddings\.word_embeddings\.weight", "embeddings.words"),
        Rename(root + r"embeddings\.position_embeddings\.weight", "embeddings.positions"),
        Rename(root + r"embeddings\.token_type_embeddings\.weight", "embeddings.types"),
        Rename(root + r"embeddings\." + norm[0], "embeddings.norm.weight"),
        Rename(root + r"embeddings\." + norm[1], "embeddings.norm.bias"),
        *(
            Stack(layer + rf"attention\.self\.{part}\.(weight|bias)", attention + r".qkv.\2", i, 3)
            for i, part in enumerate(("query", "key", "value"))
        ),
        Rename(layer + r"attention\.output\.dense\.(weight|bias)", attention + r".out.\2"),
        Rename(layer + r"attention\.output\." + norm[0], r"layers.\1.attention_norm.weight"),
        Rename(layer + r"attention\.output\." + norm[1], r"layers.\1.attention_norm.bias"),
        Rename(layer + r"intermediate\.dense\.(weight|bias)", r"layers.\1.mlp.up.\2"),
        Rename(layer + r"output\.dense\.(weight|bias)", r"layers.\1.mlp.down.\2"),
        Rename(layer + r"output\." + norm[0], r"layers.\1.mlp_norm.weight"),
        Rename(layer + r"output\." + norm[1], r"layers.\1.mlp_norm.bias"),
    )


class BertModel(PoolingModel):
    """The encoder alone. A checkpoint's pooler and pre-training heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *encoder_rules(_PREFIX),
        Ignore(r"(?:\w+\.)?pooler\..*"),
        Ignore(r"cls\..*"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.embeddings = self.make_embeddings(config)
        self.layers = self.make_layers(config)
        self.run_layers = RunLayers(self.in_order())

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """The input tables; a near twin counts its positions differently."""
        return TokenEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=config.positions,
            types=config.token_types,
            norm=LayerNorm(config.hidden_size, config.norm_eps),
        )

    def make_layers(self, config: ModelConfig) -> nn.ModuleList:
        """The encoder's layers; a near twin has another kind."""
        return nn.ModuleList(PostNormLayer(config) for _ in range(config.num_layers))

    def in_order(self) -> Iterable[nn.Module]:
        """The layers as they run; a near twin runs some of them several times."""
        return self.layers

    def terms(self, batch: PackedBatch) -> AttentionTerms:
        """What all layers add to their logits; a near twin has a bias."""
        return AttentionTerms(key_mask=batch.key_mask)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[R, hidden]`, float32."""
        hidden: Tensor = self.embeddings(batch)
        return self.run_layers(hidden, batch, self.terms(batch))


class BertForSequenceClassification(TextClassifier, BertModel):
    """A class for a text or a pair: tanh(dense(row of [CLS])) into a classifier."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *encoder_rules(_PREFIX),
        Rename(r"\w+\.pooler\.dense\.(weight|bias)", r"classifier.dense.\1"),
        Rename(r"classifier\.(weight|bias)", r"classifier.out.\1"),
    )


class BertForTokenClassification(TokenClassifier, BertModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *encoder_rules(_PREFIX),
        Ignore(r"\w+\.pooler\..*"),
        Rename(r"classifier\.(weight|bias)", r"classifier.\1"),
    )


class BertForMaskedLM(MaskedLM, BertModel):
    """Logits over the vocabulary for every token; SPLADE's form."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *encoder_rules(_PREFIX),
        Ignore(r"\w+\.pooler\..*"),
        Ignore(r"cls\.seq_relationship\..*"),
        *LM_RULES,
    )


class BertForColBERT(TokenProjection, BertModel):
    """Stanford ColBERT's checkpoint: an encoder and a projection of every token, without bias."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *BertModel.weight_rules,
        Rename(r"linear\.weight", "projection.weight"),
    )
