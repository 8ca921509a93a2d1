"""Llama (Touvron et al. 2023, arXiv:2302.13971): the decoder that most later ones are made after.

RMS norms, rotary positions, gated MLPs, fewer key and value heads where so configured; the body,
which also serves a language model's checkpoint, and a classifier of the last row. A near-twin
changes class attributes or one method. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from cenote.config import architectures
from cenote.config.model import ModelConfig
from cenote.config.rope import rope_config
from cenote.kernels.attention import AttentionSpec, AttentionTerms
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.kv import KVShape
from cenote.layers.linear import Linear
from cenote.layers.norm import RMSNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.base import ModelInfo, PoolingModel
from cenote.models.blocks import PreNormLayer, bidirectional, causal

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
    Rename(_LAYER + r"input_layernorm\.weight", r"layers.\1.attention_norm.weight"),
    Rename(_LAYER + r"post_attention_layernorm\.weight", r"layers.\1.mlp_norm.weight"),
    Stack(_LAYER + r"mlp\.gate_proj" + _WB, r"layers.\1.mlp.up.\2", 0, 2),
    Stack(_LAYER + r"mlp\.up_proj" + _WB, r"layers.\1.mlp.up.\2", 1, 2),
    Rename(_LAYER + r"mlp\.down_proj" + _WB, r"layers.\1.mlp.down.\2"),
    Rename(_ROOT + r"norm\.weight", "final_norm.weight"),
)

SCORE_RULE = Rename(r"score\.(weight|bias)", r"classifier.\1")


class LlamaModel(PoolingModel):
    """The decoder alone. A checkpoint's heads are not used."""

    info: ClassVar[ModelInfo] = ModelInfo(
        causal=True, default_pooling="last", classify_pooling="last"
    )
    rope_base: ClassVar[float] = 10000.0
    weight_rules: ClassVar[tuple[Rule, ...]] = (*BODY_RULES, Ignore(r"(?:lm_head|score)\..*"))

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.rope = rope_config(config.hf, base=self.rope_base)
        rotary = Rotary(config.head_dim, config.max_model_len, self.rope)
        self.embeddings = TokenEmbedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(self.layer(at, rotary) for at in range(config.num_layers))
        self.final_norm = RMSNorm(config.hidden_size, config.norm_eps)

    @property
    def causal(self) -> bool:
        """What the configuration says; some embedders attend to both sides."""
        return architectures.is_causal(self.config.hf, self.config.architecture)

    @property
    def kv_shape(self) -> KVShape | None:
        """None also where a prompt's length changes all of its positions."""
        if not self.causal or self.rope.kind == "dynamic":
            return None
        return KVShape(self.config.num_layers, self.config.num_kv_heads * self.config.head_dim)

    def layer(self, at: int, rotary: Rotary) -> nn.Module:
        """Layer number `at`."""
        hf = self.config.hf
        return PreNormLayer(
            self.config,
            self.attention_spec(at),
            norm=RMSNorm,
            gate="first",
            bias=bool(hf.get("attention_bias", False)),
            mlp_bias=bool(hf.get("mlp_bias", False)),
            rotary=rotary,
            kv_layer=at,
        )

    def attention_spec(self, at: int) -> AttentionSpec:
        """What the attention of layer `at` sees."""
        return causal(self.config) if self.causal else bidirectional(self.config)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[T, hidden]`, float32."""
        hidden: Tensor = self.embeddings(batch)
        terms = AttentionTerms(key_mask=batch.key_mask)
        for layer in self.layers:
            hidden = layer(hidden, batch, terms)
        out: Tensor = self.final_norm(hidden)
        return out


class LlamaForSequenceClassification(LlamaModel):
    """A class for a text or a pair, by one matrix on the last row."""

    info: ClassVar[ModelInfo] = ModelInfo(
        causal=True, head="classify", default_pooling="last", classify_pooling="last"
    )
    weight_rules: ClassVar[tuple[Rule, ...]] = (*BODY_RULES, SCORE_RULE)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Linear(
            config.hidden_size, config.num_labels, bias=False, dtype=torch.float32
        )
