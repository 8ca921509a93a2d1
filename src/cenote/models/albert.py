"""ALBERT (Lan et al. 2019, arXiv:1909.11942): one layer's weights used many times over.

Layers form groups; all layers of a group share its weights. Embeddings are narrow and projected.
It knows nothing of pooling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from torch import nn

from cenote.config.model import ModelConfig
from cenote.layers.embedding import ProjectedEmbedding
from cenote.layers.norm import LayerNorm
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.bert import BertModel
from cenote.models.blocks import PostNormLayer
from cenote.models.heads import MaskedLM, TextClassifier, TokenClassifier

_ROOT = r"(?:albert\.)?"
_LAYER = _ROOT + r"encoder\.albert_layer_groups\.(\d+)\.albert_layers\.(\d+)\."
_HERE = r"layers.\1.\2."
_BODY_RULES: tuple[Rule, ...] = (
    Ignore(_ROOT + r"embeddings\.(position_ids|token_type_ids)"),
    Rename(_ROOT + r"embeddings\.word_embeddings\.weight", "embeddings.words"),
    Rename(_ROOT + r"embeddings\.position_embeddings\.weight", "embeddings.positions"),
    Rename(_ROOT + r"embeddings\.token_type_embeddings\.weight", "embeddings.types"),
    Rename(_ROOT + r"embeddings\.LayerNorm\.(weight|bias)", r"embeddings.norm.\1"),
    Rename(
        _ROOT + r"encoder\.embedding_hidden_mapping_in\.(weight|bias)", r"embeddings.project.\1"
    ),
    *(
        Stack(_LAYER + rf"attention\.{part}\.(weight|bias)", _HERE + r"attention.qkv.\3", i, 3)
        for i, part in enumerate(("query", "key", "value"))
    ),
    Rename(_LAYER + r"attention\.dense\.(weight|bias)", _HERE + r"attention.out.\3"),
    Rename(_LAYER + r"attention\.LayerNorm\.(weight|bias)", _HERE + r"attention_norm.\3"),
    Rename(_LAYER + r"ffn\.(weight|bias)", _HERE + r"mlp.up.\3"),
    Rename(_LAYER + r"ffn_output\.(weight|bias)", _HERE + r"mlp.down.\3"),
    Rename(_LAYER + r"full_layer_layer_norm\.(weight|bias)", _HERE + r"mlp_norm.\3"),
)
_POOLER = Ignore(_ROOT + r"pooler\..*")


class AlbertModel(BertModel):
    """The encoder alone. A checkpoint's pooler and heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        _POOLER,
        Ignore(r"(?:predictions|sop_classifier|classifier)\..*"),
    )

    def make_embeddings(self, config: ModelConfig) -> ProjectedEmbedding:
        """BERT's tables, narrow, and the product up to the model's width."""
        width = int(config.hf.get("embedding_size", 128))
        return ProjectedEmbedding(
            config.vocab_size,
            width,
            config.hidden_size,
            positions=config.positions,
            types=config.token_types,
            norm=LayerNorm(width, config.norm_eps),
        )

    def make_layers(self, config: ModelConfig) -> nn.ModuleList:
        """`[group][layer of the group]`; most models have one of one."""
        groups = int(config.hf.get("num_hidden_groups", 1))
        inner = int(config.hf.get("inner_group_num", 1))
        return nn.ModuleList(
            nn.ModuleList(PostNormLayer(config) for _ in range(inner)) for _ in range(groups)
        )

    def in_order(self) -> Iterable[nn.Module]:
        """Each group's layers as often as the model's depth asks for."""
        depth = self.config.num_layers
        groups = (self.layers[step * len(self.layers) // depth] for step in range(depth))
        return (layer for group in groups for layer in group.children())


class AlbertForSequenceClassification(TextClassifier, AlbertModel):
    """A class for a text or a pair: classifier(tanh(pooler(row of [CLS])))."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(r"albert\.pooler\.(weight|bias)", r"classifier.dense.\1"),
        Rename(r"classifier\.(weight|bias)", r"classifier.out.\1"),
    )


class AlbertForTokenClassification(TokenClassifier, AlbertModel):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, _POOLER)


class AlbertForMaskedLM(MaskedLM, AlbertModel):
    """Logits over the vocabulary for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        _POOLER,
        Ignore(r"sop_classifier\..*"),
        Ignore(r"predictions\.decoder\.(weight|bias)"),
        Rename(r"predictions\.bias", "head.bias"),
        Rename(r"predictions\.dense\.(weight|bias)", r"head.dense.\1"),
        Rename(r"predictions\.LayerNorm\.(weight|bias)", r"head.norm.\1"),
    )
