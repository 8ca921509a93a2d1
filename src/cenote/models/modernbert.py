"""ModernBERT (Warner et al. 2024, arXiv:2412.13663): encoder, classifiers and masked LM.

Pre-norm layers that see the whole text in turn with layers that see a window, each kind with a
rotary base of its own; gated MLPs and hardly any biases. It knows nothing of pooling.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from cenote.config import activations
from cenote.config.model import ModelConfig
from cenote.config.rope import rope_config
from cenote.errors import ModelLoadError
from cenote.kernels.attention import AttentionTerms
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.linear import Linear
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary
from cenote.layers.run_layers import RunLayers
from cenote.loader.rules import Ignore, Rename, Rule
from cenote.models.base import ClassifyPooling, ModelInfo, PoolingModel
from cenote.models.blocks import PreNormLayer, bidirectional
from cenote.models.heads import MaskedLMHead

LayerType = Literal["full_attention", "sliding_attention"]

_BASES: dict[LayerType, tuple[str, float]] = {
    "full_attention": ("global_rope_theta", 160000.0),
    "sliding_attention": ("local_rope_theta", 10000.0),
}
_ROOT = r"(?:model\.)?"
_LAYER = _ROOT + r"layers\.(\d+)\."

_BODY_RULES: tuple[Rule, ...] = (
    Rename(_ROOT + r"embeddings\.tok_embeddings\.weight", "embeddings.words"),
    Rename(_ROOT + r"embeddings\.norm\.(weight|bias)", r"embeddings.norm.\1"),
    Rename(_LAYER + r"attn_norm\.(weight|bias)", r"layers.\1.attention_norm.\2"),
    Rename(_LAYER + r"attn\.Wqkv\.(weight|bias)", r"layers.\1.attention.qkv.\2"),
    Rename(_LAYER + r"attn\.Wo\.(weight|bias)", r"layers.\1.attention.out.\2"),
    Rename(_LAYER + r"mlp_norm\.(weight|bias)", r"layers.\1.mlp_norm.\2"),
    Rename(_LAYER + r"mlp\.Wi\.(weight|bias)", r"layers.\1.mlp.up.\2"),
    Rename(_LAYER + r"mlp\.Wo\.(weight|bias)", r"layers.\1.mlp.down.\2"),
    Rename(_ROOT + r"final_norm\.(weight|bias)", r"final_norm.\1"),
)
_CLASSIFIER_RULES = (
    Rename(r"head\.(dense|norm)\.(weight|bias)", r"classifier.\1.\2"),
    Rename(r"classifier\.(weight|bias)", r"classifier.out.\1"),
)


class ModernBertModel(PoolingModel):
    """The encoder alone. A checkpoint's heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Ignore(r"(?:head|decoder|classifier)\..*"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        norm = partial(LayerNorm, bias=bool(config.hf.get("norm_bias", False)))
        reach = int(config.hf.get("local_attention", 128)) // 2
        windows: dict[LayerType, tuple[int, int]] = {
            "full_attention": (-1, -1),
            "sliding_attention": (reach, reach),
        }
        types = layer_types(config)
        rotary = {kind: _rotary(config, kind) for kind in set(types)}
        self.embeddings = TokenEmbedding(
            config.vocab_size, config.hidden_size, norm=norm(config.hidden_size, config.norm_eps)
        )
        self.layers = nn.ModuleList(
            PreNormLayer(
                config,
                bidirectional(config, windows[kind]),
                norm=norm,
                # The embeddings' norm has just been applied.
                attention_norm=index > 0,
                gate="first",
                bias=bool(config.hf.get("attention_bias", False)),
                mlp_bias=bool(config.hf.get("mlp_bias", False)),
                rotary=rotary[kind],
            )
            for index, kind in enumerate(types)
        )
        self.run_layers = RunLayers(self.layers)
        self.final_norm = norm(config.hidden_size, config.norm_eps)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[R, hidden]`, float32."""
        hidden: Tensor = self.embeddings(batch)
        terms = AttentionTerms(key_mask=batch.key_mask)
        out: Tensor = self.final_norm(self.run_layers(hidden, batch, terms))
        return out


def layer_types(config: ModelConfig) -> list[LayerType]:
    """The kind of each layer: as listed, or every third one sees the whole text.

    Raises ModelLoadError for a list that doesn't fit.
    """
    listed = config.hf.get("layer_types")
    if listed is None:
        every = int(config.hf.get("global_attn_every_n_layers", 3))
        return [
            "sliding_attention" if index % every else "full_attention"
            for index in range(config.num_layers)
        ]
    if len(listed) != config.num_layers or not set(listed) <= _BASES.keys():
        raise ModelLoadError(
            f"config.json: layer_types {listed!r} must be {config.num_layers} of {list(_BASES)}."
        )
    return cast(list[LayerType], listed)


def _rotary(config: ModelConfig, kind: LayerType) -> Rotary:
    name, default = _BASES[kind]
    rope = rope_config(config.hf, base=float(config.hf.get(name) or default), layer_type=kind)
    return Rotary(config.head_dim, config.max_model_len, rope)


class HeadedClassifier(nn.Module):
    """out(norm(activation(dense(row)))) in float32."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hf, hidden = config.hf, config.hidden_size
        self.activation = _head_activation(config)
        bias = bool(hf.get("classifier_bias", False))
        self.dense = Linear(hidden, hidden, bias=bias, dtype=torch.float32)
        self.norm = LayerNorm(hidden, config.norm_eps, bias=bool(hf.get("norm_bias", False)))
        self.out = Linear(hidden, config.num_labels, dtype=torch.float32)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits `[n, num_labels]` float32 of rows `[n, hidden]`."""
        rows = self.dense(rows, activation=self.activation, post_norm=self.norm.prepared)
        logits: Tensor = self.out(rows)
        return logits


def _head_activation(config: ModelConfig) -> str:
    return activations.from_hf(str(config.hf.get("classifier_activation", "gelu")))


class ModernBertForSequenceClassification(ModernBertModel):
    """A class for a text or a pair, from the first row or the mean as the configuration says."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="cls")
    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *_CLASSIFIER_RULES)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = HeadedClassifier(config)
        if self.classify_pooling not in ("cls", "mean"):
            raise ModelLoadError(
                f"config.json: classifier_pooling must be cls or mean, not "
                f"{self.classify_pooling!r}."
            )

    @property
    def classify_pooling(self) -> ClassifyPooling:
        """`classifier_pooling` of the configuration."""
        return cast(ClassifyPooling, self.config.hf.get("classifier_pooling", "cls"))


class ModernBertForTokenClassification(ModernBertModel):
    """A class for every token."""

    info: ClassVar[ModelInfo] = ModelInfo(head="token_classify")
    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, *_CLASSIFIER_RULES)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = HeadedClassifier(config)


class ModernBertForMaskedLM(ModernBertModel):
    """Logits over the vocabulary for every token."""

    info: ClassVar[ModelInfo] = ModelInfo(head="vocab")
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Ignore(r"decoder\.weight"),
        Rename(r"decoder\.bias", "head.bias"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.head = MaskedLMHead(
            config,
            self.embeddings,
            _head_activation(config),
            dense_bias=bool(config.hf.get("classifier_bias", False)),
            norm_bias=bool(config.hf.get("norm_bias", False)),
            bias=bool(config.hf.get("decoder_bias", True)),
        )
