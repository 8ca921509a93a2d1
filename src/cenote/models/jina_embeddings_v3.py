"""Jina Embeddings v3 (Sturua et al. 2024, arXiv:2409.10173) and its kin: ColBERT v2, Reranker v2.

XLM-RoBERTa in its flash form: packed products, rotary positions (the reranker: absolute ones), and
low-rank adapters for each task, which a batch may mix. It knows nothing of pooling, nor of which
adapter a request wants.
"""

from __future__ import annotations

from typing import ClassVar, cast

from torch import nn

from cenote.config.fields import positive_float, positive_int
from cenote.config.model import ModelConfig
from cenote.config.rope import rope_config
from cenote.errors import ModelLoadError
from cenote.layers.adapters import ActiveAdapters
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.linear import Linear
from cenote.layers.lora import AdaptedEmbedding, LoraSpec, LowRank
from cenote.layers.mlp import MLP
from cenote.layers.norm import LayerNorm
from cenote.layers.packing import WeightForm, pack_weights
from cenote.layers.rotary import Rotary
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.bert import BertModel
from cenote.models.blocks import PostNormLayer
from cenote.models.heads import MaskedLM, TextClassifier, TokenClassifier, TokenProjection
from cenote.models.roberta import CLASSIFIER_RULES, HEADS, LM_RULES

_ROOT = r"(?:roberta\.)?"
_LAYER = _ROOT + r"(?:encoder\.)?layers\.(\d+)\."
_WB = r"\.(?:parametrizations\.)?(weight|bias)(?:\.original)?"
_TABLE = r"\.(?:parametrizations\.)?weight(?:\.original)?"
_LORA = r"\.parametrizations\.weight\.0\.lora_"

# The four products of a layer: our name of each, and the checkpoints'.
_PRODUCTS = {
    "qkv": r"mixer\.Wqkv",
    "out": r"(?:mixer\.out_proj|self_attn\.o_proj)",
    "up": r"mlp\.fc1",
    "down": r"mlp\.fc2",
}
_PLACES = {"qkv": "attention.qkv", "out": "attention.out", "up": "mlp.up", "down": "mlp.down"}


def _adapter_rules() -> tuple[Rule, ...]:
    tables = {"words": "word_embeddings", "types": "token_type_embeddings"}
    return (
        *(
            Rename(_ROOT + rf"embeddings\.{theirs}{_LORA}{half}", f"embeddings.{ours}_lora.{low}")
            for ours, theirs in tables.items()
            for half, low in (("A", "a"), ("B", "b"))
        ),
        *(
            Rename(_LAYER + theirs + _LORA + half, rf"layers.\1.lora.{ours}.{low}")
            for ours, theirs in _PRODUCTS.items()
            for half, low in (("A", "a"), ("B", "b"))
        ),
    )


_BODY_RULES: tuple[Rule, ...] = (
    Ignore(r".*inv_freq"),
    *_adapter_rules(),
    Rename(_ROOT + r"embeddings\.word_embeddings" + _TABLE, "embeddings.words"),
    Rename(_ROOT + r"embeddings\.position_embeddings\.weight", "embeddings.positions"),
    Rename(_ROOT + r"embeddings\.token_type_embeddings" + _TABLE, "embeddings.types"),
    Rename(_ROOT + r"(?:emb_ln|embeddings\.LayerNorm)" + _WB, r"embeddings.norm.\1"),
    *(
        Stack(_LAYER + rf"self_attn\.{part}_proj" + _WB, r"layers.\1.attention.qkv.\2", index, 3)
        for index, part in enumerate("qkv")
    ),
    *(
        Rename(_LAYER + theirs + _WB, rf"layers.\1.{_PLACES[ours]}.\2")
        for ours, theirs in _PRODUCTS.items()
    ),
    Rename(_LAYER + r"(?:norm1|post_attention_layernorm)" + _WB, r"layers.\1.attention_norm.\2"),
    Rename(_LAYER + r"(?:norm2|post_mlp_layernorm)" + _WB, r"layers.\1.mlp_norm.\2"),
    Ignore(_ROOT + r"pooler\..*"),
)


class AdaptedLayer(PostNormLayer):
    """BERT's layer whose products may have adapters."""

    def __init__(self, config: ModelConfig, rotary: Rotary | None, spec: LoraSpec | None) -> None:
        super().__init__(config, rotary=rotary)
        hidden, wide = config.hidden_size, config.intermediate_size
        sizes = {
            "qkv": (hidden, 3 * hidden),
            "out": (hidden, hidden),
            "up": (hidden, wide),
            "down": (wide, hidden),
        }
        if spec is not None:
            self.lora = nn.ModuleDict({name: LowRank(spec, *size) for name, size in sizes.items()})

    def share_adapters(self, active: ActiveAdapters) -> None:
        """Puts the adapters on the products that they change."""
        parts = {"attention": self.attention, "mlp": cast(MLP, self.mlp)}
        for name, place in _PLACES.items():
            part, _, leaf = place.partition(".")
            product: Linear = getattr(parts[part], leaf)
            cast(LowRank, self.lora[name]).add_to(product.adapted_by(active))
        del self.lora


class JinaEmbeddingsV3Model(BertModel):
    """The encoder alone. A checkpoint's pooler and heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        HEADS,
    )

    def __init__(self, config: ModelConfig) -> None:
        self.spec = _lora_spec(config)
        super().__init__(config)
        self.adapters.add(config.adapters)

    def make_embeddings(self, config: ModelConfig) -> TokenEmbedding:
        """Tables with positions only where they are absolute; those count as XLM-RoBERTa's do."""
        vocab, hidden, types = config.vocab_size, config.hidden_size, config.token_types
        norm = LayerNorm(hidden, config.norm_eps)
        if self.spec is not None:
            return AdaptedEmbedding(self.spec, vocab, hidden, types=types, layer_norm=norm)
        if _is_rotary(config):
            return TokenEmbedding(vocab, hidden, types=types, norm=norm)
        positions = config.positions
        offset = int(config.hf.get("pad_token_id", 1)) + 1
        return TokenEmbedding(
            vocab, hidden, positions=positions, offset=offset, types=types, norm=norm
        )

    def make_layers(self, config: ModelConfig) -> nn.ModuleList:
        """Rotary attention, or plain attention where positions are absolute."""
        rotary = None
        if _is_rotary(config):
            # The two libraries' defaults for a configuration that doesn't say.
            base = 10000.0 if config.model_type == "xlm-roberta" else 20000.0
            rope = rope_config(config.hf, base=base)
            rotary = Rotary(config.head_dim, config.max_model_len, rope)
        return nn.ModuleList(
            AdaptedLayer(config, rotary, self.spec) for _ in range(config.num_layers)
        )

    def pack(self, form: WeightForm) -> None:
        """Gives the products their adapters, then packs them."""
        if self.spec is not None:
            cast(AdaptedEmbedding, self.embeddings).share_adapters(self.adapters)
            for layer in self.layers:
                cast(AdaptedLayer, layer).share_adapters(self.adapters)
        for child in self.children():
            pack_weights(child, form)


def _is_rotary(config: ModelConfig) -> bool:
    """Raises ModelLoadError for positions that are neither rotary nor absolute."""
    kind = config.hf.get("position_embedding_type", "rotary")
    if kind not in ("rotary", "absolute"):
        raise ModelLoadError(
            f"config.json: position_embedding_type {kind!r} is not supported; known: rotary, "
            "absolute."
        )
    return bool(kind == "rotary")


def _lora_spec(config: ModelConfig) -> LoraSpec | None:
    if not config.adapters:
        return None
    rank = positive_int(config.hf, ("lora_rank",), 4)
    alpha = positive_float(config.hf, ("lora_alpha",), 1.0)
    return LoraSpec(len(config.adapters), rank, alpha / rank)


class JinaEmbeddingsV3ForSequenceClassification(TextClassifier, JinaEmbeddingsV3Model):
    """A class for a text or a pair: out(tanh(dense(row of the first token)))."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        *CLASSIFIER_RULES,
    )


class JinaEmbeddingsV3ForTokenClassification(TokenClassifier, JinaEmbeddingsV3Model):
    """A class for every token."""

    weight_rules: ClassVar[tuple[Rule, ...]] = _BODY_RULES


class JinaEmbeddingsV3ForMaskedLM(MaskedLM, JinaEmbeddingsV3Model):
    """Logits over the vocabulary for every token."""

    head_activation: ClassVar[str | None] = "gelu_erf"
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        *LM_RULES,
    )


class JinaEmbeddingsV3ForColBERT(TokenProjection, JinaEmbeddingsV3Model):
    """Jina ColBERT v2's checkpoint: an encoder and a projection of every token, without bias."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *JinaEmbeddingsV3Model.weight_rules,
        Rename(r"linear\.weight", "projection.weight"),
    )
