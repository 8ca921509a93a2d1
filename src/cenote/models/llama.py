"""Llama (Touvron et al. 2023, arXiv:2302.13971): the decoder that most later ones are made after.

RMS norms, rotary positions, gated MLPs, fewer key and value heads where so configured; the body,
which also serves a language model's checkpoint, and a classifier of the last row. A near-twin
changes class attributes or one method. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cenote.config import architectures
from cenote.config.fields import positive_int
from cenote.config.model import ModelConfig
from cenote.config.rope import RopeConfig, rope_config
from cenote.errors import ModelLoadError
from cenote.kernels.attention import AttentionSpec, AttentionTerms
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.kv import KVShape
from cenote.layers.linear import Linear
from cenote.layers.norm import RMSNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary
from cenote.layers.run_layers import RunLayers
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.base import ModelInfo, PoolingModel
from cenote.models.blocks import PreNormLayer, bidirectional, causal

# The types of layers that `layer_types` lists.
FULL = "full_attention"
SLIDING = "sliding_attention"

_ROOT = r"(?:model\.)?"
_LAYER = _ROOT + r"layers\.(\d+)\."
_WB = r"\.(weight|bias)"

BODY_RULES: tuple[Rule, ...] = (
    Ignore(r".*rotary_emb\.inv_freq"),
    Rename(_ROOT + r"embed_tokens\.weight", "embeddings.words"),
    *(
        Stack(_LAYER + rf"self_attn\.{part}_proj" + _WB, r"layers.\1.attention.qkv.\2", index, 3)
        for index, part in enumerate("qkv")
    ),
    Rename(_LAYER + r"self_attn\.o_proj" + _WB, r"layers.\1.attention.out.\2"),
    Rename(_LAYER + r"self_attn\.([qk]_norm)\.weight", r"layers.\1.attention.\2.weight"),
    Rename(_LAYER + r"input_layernorm\.weight", r"layers.\1.attention_norm.weight"),
    Rename(_LAYER + r"post_attention_layernorm\.weight", r"layers.\1.mlp_norm.weight"),
    Stack(_LAYER + r"mlp\.gate_proj" + _WB, r"layers.\1.mlp.up.\2", 0, 2),
    Stack(_LAYER + r"mlp\.up_proj" + _WB, r"layers.\1.mlp.up.\2", 1, 2),
    Rename(_LAYER + r"mlp\.down_proj" + _WB, r"layers.\1.mlp.down.\2"),
    Rename(_ROOT + r"norm\.weight", "final_norm.weight"),
)

SCORE_RULE = Rename(r"score\.(weight|bias)", r"classifier.\1")


HEAD_RULE = Ignore(r"(?:lm_head|score)\..*")


class LlamaModel(PoolingModel):
    """The decoder alone. A checkpoint's heads are not used."""

    info: ClassVar[ModelInfo] = ModelInfo(
        causal=True, default_pooling="last", classify_pooling="last"
    )
    rope_base: ClassVar[float] = 10000.0
    norm: ClassVar[type[RMSNorm]] = RMSNorm
    layer_class: ClassVar[type[PreNormLayer]] = PreNormLayer
    weight_rules: ClassVar[tuple[Rule, ...]] = (*BODY_RULES, HEAD_RULE)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.ropes = self.make_ropes()
        rotaries = {
            kind: Rotary(config.head_dim, config.max_model_len, rope)
            for kind, rope in self.ropes.items()
        }
        self.embeddings = TokenEmbedding(
            config.vocab_size, config.hidden_size, scale=self.embedding_scale
        )
        self.layers = nn.ModuleList(
            self.layer(at, rotaries.get(self.layer_type(at), rotaries[FULL]))
            for at in range(config.num_layers)
        )
        self.run_layers = RunLayers(self.layers)
        self.final_norm = self.norm(config.hidden_size, config.norm_eps)

    @property
    def one_sided(self) -> bool:
        """Whether a token sees none after it, as the configuration says; some embedders do."""
        return architectures.is_causal(self.config.hf, self.config.architecture)

    @property
    def causal(self) -> bool:
        """Whether it is one-sided."""
        return self.one_sided

    @property
    def kv_shape(self) -> KVShape | None:
        """None also where a prompt's length changes all of its positions."""
        if not self.causal or any(
            rope.varies(self.config.max_model_len) for rope in self.ropes.values()
        ):
            return None
        return KVShape(self.config.num_layers, self.config.num_kv_heads * self.config.head_dim)

    @property
    def embedding_scale(self) -> float:
        """What word vectors are multiplied by."""
        return 1.0

    @property
    def layer_settings(self) -> dict[str, Any]:
        """What all layers have in common, as `PreNormLayer` takes it."""
        hf = self.config.hf
        return {
            "norm": self.norm,
            "gate": "first",
            "bias": bool(hf.get("attention_bias", False)),
            "mlp_bias": bool(hf.get("mlp_bias", False)),
        }

    def make_ropes(self) -> dict[str, RopeConfig]:
        """Rotary settings by type of layer; types that aren't there have those of FULL."""
        return {FULL: rope_config(self.config.hf, base=self.rope_base)}

    def layer(self, at: int, rotary: Rotary) -> nn.Module:
        """Layer number `at`."""
        return self.layer_class(
            self.config,
            self.attention_spec(at),
            rotary=rotary,
            kv_layer=at,
            **self.layer_settings,
        )

    def layer_type(self, at: int) -> str:
        """FULL, or SLIDING for a layer with a window: listed in the configuration, or `slides`."""
        listed = self.config.hf.get("layer_types")
        if listed is None:
            return SLIDING if self.slides(at) else FULL
        known = isinstance(listed, list) and all(kind in (FULL, SLIDING) for kind in listed)
        if not known or len(listed) != self.config.num_layers:
            raise ModelLoadError(
                f"config.json: layer_types must list {self.config.num_layers} of {FULL!r} and "
                f"{SLIDING!r}, not {listed!r}."
            )
        return str(listed[at])

    def slides(self, at: int) -> bool:
        """Whether layer `at` has a window where no `layer_types` are listed."""
        return False

    @property
    def sliding_window(self) -> int:
        """How many tokens a layer with a window sees, the token itself among them."""
        return positive_int(self.config.hf, ("sliding_window",), 4096)

    def attention_spec(self, at: int) -> AttentionSpec:
        """What the attention of layer `at` sees."""
        back = self.sliding_window - 1 if self.layer_type(at) == SLIDING else -1
        if self.one_sided:
            return causal(self.config, back)
        return bidirectional(self.config, (back, back))

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[R, hidden]`, float32."""
        hidden: Tensor = self.embeddings(batch)
        terms = AttentionTerms(key_mask=batch.key_mask)
        out: Tensor = self.final_norm(self.run_layers(hidden, batch, terms))
        return out


class WithScore(PoolingModel):
    """Mixed into a decoder: a class for a text or a pair, by one matrix on the last row."""

    info: ClassVar[ModelInfo] = ModelInfo(
        causal=True, head="classify", default_pooling="last", classify_pooling="last"
    )
    weight_rules: ClassVar[tuple[Rule, ...]] = (*BODY_RULES, SCORE_RULE)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Linear(
            config.hidden_size, config.num_labels, bias=False, dtype=torch.float32
        )


class LlamaForSequenceClassification(WithScore, LlamaModel):
    """A class for a text or a pair."""
