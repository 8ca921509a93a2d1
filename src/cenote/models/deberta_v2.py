"""DeBERTa v2 and v3 (He et al. 2020, arXiv:2006.03654; 2021, arXiv:2111.09543).

Attention sees content and distance apart; distances share rows logarithmically; v2's largest models
have a convolution beside their first layer. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from cenote.config import activations
from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.kernels.attention import AttentionSpec, AttentionTerms
from cenote.kernels.disentangled import Distances
from cenote.layers.disentangled import (
    DisentangledAttention,
    DistanceTable,
    NeighbourConvolution,
)
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.mlp import MLP
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.packing import WeightForm, pack_weights
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.base import ModelInfo
from cenote.models.bert import BertModel
from cenote.models.heads import Classifier, MaskedLM, TokenClassifier

_ROOT = r"(?:deberta\.)?"
_LAYER = _ROOT + r"encoder\.layer\.(\d+)\."
_SELF = _LAYER + r"attention\.self\."
EMBEDDING_RULES: tuple[Rule, ...] = (
    Ignore(_ROOT + r"embeddings\.position_ids"),
    Rename(_ROOT + r"embeddings\.word_embeddings\.weight", "embeddings.words"),
    # v3 keeps a table that it doesn't use.
    Rename(
        _ROOT + r"embeddings\.position_embeddings\.weight", "embeddings.positions", optional=True
    ),
    Rename(_ROOT + r"embeddings\.token_type_embeddings\.weight", "embeddings.types"),
    Rename(_ROOT + r"embeddings\.LayerNorm\.(weight|bias)", r"embeddings.norm.\1"),
)
LAYER_RULES: tuple[Rule, ...] = (
    Rename(_ROOT + r"encoder\.rel_embeddings\.weight", "relative.weight"),
    Rename(_LAYER + r"attention\.output\.dense\.(weight|bias)", r"layers.\1.attention.out.\2"),
    Rename(_LAYER + r"attention\.output\.LayerNorm\.(weight|bias)", r"layers.\1.attention_norm.\2"),
    Rename(_LAYER + r"intermediate\.dense\.(weight|bias)", r"layers.\1.mlp.up.\2"),
    Rename(_LAYER + r"output\.dense\.(weight|bias)", r"layers.\1.mlp.down.\2"),
    Rename(_LAYER + r"output\.LayerNorm\.(weight|bias)", r"layers.\1.mlp_norm.\2"),
)
_BODY_RULES: tuple[Rule, ...] = (
    *EMBEDDING_RULES,
    *LAYER_RULES,
    *(
        Stack(_SELF + rf"{part}_proj\.(weight|bias)", r"layers.\1.attention.qkv.\2", i, 3)
        for i, part in enumerate(("query", "key", "value"))
    ),
    Rename(_SELF + r"pos_key_proj\.(weight|bias)", r"layers.\1.attention.position_keys.\2"),
    Rename(_SELF + r"pos_query_proj\.(weight|bias)", r"layers.\1.attention.position_queries.\2"),
    Rename(_ROOT + r"encoder\.LayerNorm\.(weight|bias)", r"relative.norm.\1"),
    Rename(_ROOT + r"encoder\.conv\.conv\.(weight|bias)", r"layers.0.convolution.\1"),
    Rename(_ROOT + r"encoder\.conv\.LayerNorm\.(weight|bias)", r"layers.0.convolution.norm.\1"),
)
NO_LM = Ignore(r"(?:cls|lm_predictions|mask_predictions)\..*")
BODY_HEADS: tuple[Rule, ...] = (NO_LM, Ignore(r"(?:pooler|classifier)\..*"))
SEQUENCE_RULES: tuple[Rule, ...] = (
    NO_LM,
    Rename(r"pooler\.dense\.(weight|bias)", r"classifier.dense.\1"),
    Rename(r"classifier\.(weight|bias)", r"classifier.out.\1"),
)
# The head of BERT's form ("legacy") and that of the original code, of which a model has one.
LM_RULES: tuple[Rule, ...] = (
    Ignore(r"mask_predictions\..*"),
    Ignore(r"cls\.predictions\.decoder\.(weight|bias)"),
    Rename(r"(?:cls\.predictions|lm_predictions\.lm_head)\.bias", "head.bias"),
    Rename(
        r"(?:cls\.predictions\.transform|lm_predictions\.lm_head)\.dense\.(weight|bias)",
        r"head.dense.\1",
    ),
    Rename(
        r"(?:cls\.predictions\.transform|lm_predictions\.lm_head)\.LayerNorm\.(weight|bias)",
        r"head.norm.\1",
    ),
)


class DebertaLayer(nn.Module):
    """BERT's layer around another attention."""

    def __init__(self, config: ModelConfig, attention: DisentangledAttention) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        self.attention = attention
        self.attention_norm = LayerNorm(hidden, eps)
        self.mlp = MLP(hidden, config.intermediate_size, config.hidden_act)
        self.mlp_norm = LayerNorm(hidden, eps)

    def forward(self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms) -> Tensor:
        """`[T, hidden]` float32 → `[R, hidden]`, the rows that are read."""
        hidden = self.attention(hidden, batch, terms, post_norm=self.attention_norm.prepared)
        out: Tensor = self.mlp(hidden, residual=hidden, post_norm=self.mlp_norm.prepared)
        return out


class ConvolvedLayer(DebertaLayer):
    """The same, and beside it a convolution of what it is given."""

    def __init__(
        self,
        config: ModelConfig,
        attention: DisentangledAttention,
        convolution: NeighbourConvolution,
    ) -> None:
        super().__init__(config, attention)
        self.convolution = convolution

    def forward(self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms) -> Tensor:
        """`[T, hidden]` float32 → `[R, hidden]`, the rows that are read."""
        made = super().forward(hidden, batch.whole(), terms)
        return batch.take_read(self.convolution(hidden, made, batch))


class DebertaV2Model(BertModel):
    """The encoder alone. A checkpoint's heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *BODY_HEADS)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.relative = self.make_table(config) if config.hf.get("relative_attention") else None

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """Words; positions and types only where the configuration has them."""
        biased = config.hf.get("position_biased_input", True)
        return TokenEmbedding(
            config.vocab_size,
            config.hidden_size,
            positions=config.positions if biased else 0,
            types=config.token_types,
            norm=LayerNorm(config.hidden_size, config.norm_eps),
        )

    def make_table(self, config: ModelConfig) -> DistanceTable:
        """The rows of distances: a bucket each where buckets are declared."""
        furthest, buckets = max_distance(config), int(config.hf.get("position_buckets") or -1)
        distances = Distances(buckets if buckets > 0 else furthest, max(buckets, 0), furthest)
        normed = "layer_norm" in str(config.hf.get("norm_rel_ebd", "none")).lower().split("|")
        norm = LayerNorm(config.hidden_size, config.norm_eps) if normed else None
        return DistanceTable(distances, config.hidden_size, norm)

    def make_layers(self, config: ModelConfig) -> nn.ModuleList:
        """BERT's layers with disentangled attention, the first one perhaps with a convolution."""
        layers = [
            DebertaLayer(config, self.make_attention(config)) for _ in range(config.num_layers)
        ]
        width = int(config.hf.get("conv_kernel_size") or 0)
        if width:
            layers[0] = ConvolvedLayer(config, layers[0].attention, _convolution(config, width))
        return nn.ModuleList(layers)

    def make_attention(self, config: ModelConfig) -> DisentangledAttention:
        """One layer's attention; the first version keeps its weights differently."""
        kinds = attention_kinds(config) if config.hf.get("relative_attention") else ()
        return DisentangledAttention(
            config.hidden_size,
            attention_spec(config),
            keys="c2p" in kinds,
            queries="p2c" in kinds,
            shared=bool(config.hf.get("share_att_key")),
        )

    def pack(self, form: WeightForm) -> None:
        """Makes each layer's vectors of distances, then packs what is left."""
        for module in self.modules():
            if isinstance(module, DisentangledAttention):
                module.fold(self.relative)
        self.relative = None
        for child in self.children():
            pack_weights(child, form)


def attention_kinds(config: ModelConfig) -> list[str]:
    """Which terms attention has besides content: c2p, p2c. Raises ModelLoadError for others."""
    declared = config.hf.get("pos_att_type") or []
    kinds = declared.lower().split("|") if isinstance(declared, str) else list(declared)
    kinds = [kind.strip() for kind in kinds]
    if not set(kinds) <= {"c2p", "p2c"}:
        raise ModelLoadError(f"config.json: pos_att_type {declared!r} is not c2p, p2c or both.")
    return kinds


def max_distance(config: ModelConfig) -> int:
    """The largest distance that has a row: declared, or else as many as there are positions."""
    declared = int(config.hf.get("max_relative_positions") or -1)
    return declared if declared > 0 else config.positions


def attention_spec(config: ModelConfig) -> AttentionSpec:
    """Attention scaled by 1 / sqrt(head_dim · number of terms)."""
    terms = 1 + len(set(attention_kinds(config)))
    return AttentionSpec(
        num_heads=config.num_heads,
        num_kv_heads=config.num_heads,
        head_dim=config.head_dim,
        scale=(config.head_dim * terms) ** -0.5,
    )


def pooler_activation(config: ModelConfig) -> str:
    """The canonical name of the classifier's first activation."""
    return activations.from_hf(str(config.hf.get("pooler_hidden_act", "gelu")))


def _convolution(config: ModelConfig, width: int) -> NeighbourConvolution:
    groups = config.hf.get("conv_groups", 1)
    if groups != 1:
        raise ModelLoadError(f"config.json: conv_groups={groups!r} is not supported, only 1.")
    activation = activations.from_hf(str(config.hf.get("conv_act", "tanh")))
    norm = LayerNorm(config.hidden_size, config.norm_eps)
    return NeighbourConvolution(config.hidden_size, width, activation, norm)


class DebertaV2ForSequenceClassification(DebertaV2Model):
    """A class for a text or a pair: classifier(gelu(pooler(row of [CLS])))."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="cls")
    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *SEQUENCE_RULES)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Classifier(config, pooler_activation(config))


class DebertaV2ForTokenClassification(TokenClassifier, DebertaV2Model):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, NO_LM)


class DebertaV2ForMaskedLM(MaskedLM, DebertaV2Model):
    """Logits over the vocabulary for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *LM_RULES)
