"""GPT-2 (Radford et al. 2019): learned positions, LayerNorms before each part, biases throughout.

The decoder, which also serves a language model's checkpoint, and a classifier of the last row. It
knows nothing of pooling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.kernels.attention import AttentionTerms
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.kv import KVShape
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.run_layers import RunLayers
from cenote.loader.rules import Ignore, Rename, Rule, Transpose
from cenote.models.base import ModelInfo, PoolingModel
from cenote.models.blocks import PreNormLayer, causal
from cenote.models.llama import HEAD_RULE, SCORE_RULE, WithScore

_ROOT = r"(?:transformer\.)?"
_LAYER = _ROOT + r"h\.(\d+)\."
_WB = r"\.(weight|bias)"

# Their products' names to ours.
_PRODUCTS = {
    r"attn\.c_attn": "attention.qkv",
    r"attn\.c_proj": "attention.out",
    r"mlp\.c_fc": "mlp.up",
    r"mlp\.c_proj": "mlp.down",
}

_BODY_RULES: tuple[Rule, ...] = (
    Ignore(_LAYER + r"attn\.(?:masked_)?bias"),
    Rename(_ROOT + r"wte\.weight", "embeddings.words"),
    Rename(_ROOT + r"wpe\.weight", "embeddings.positions"),
    *(
        Transpose(_LAYER + theirs + r"\.weight", rf"layers.\1.{ours}.weight")
        for theirs, ours in _PRODUCTS.items()
    ),
    *(
        Rename(_LAYER + theirs + r"\.bias", rf"layers.\1.{ours}.bias")
        for theirs, ours in _PRODUCTS.items()
    ),
    Rename(_LAYER + "ln_1" + _WB, r"layers.\1.attention_norm.\2"),
    Rename(_LAYER + "ln_2" + _WB, r"layers.\1.mlp_norm.\2"),
    Rename(_ROOT + "ln_f" + _WB, r"final_norm.\1"),
)


class GPT2Model(PoolingModel):
    """The decoder alone. A checkpoint's heads are not used."""

    info: ClassVar[ModelInfo] = ModelInfo(
        causal=True, default_pooling="last", classify_pooling="last"
    )
    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, HEAD_RULE)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        if config.hf.get("scale_attn_weights") is False:
            raise ModelLoadError("config.json: scale_attn_weights=false is not supported.")
        self.embeddings = TokenEmbedding(
            config.vocab_size, config.hidden_size, positions=config.positions
        )
        self.layers = nn.ModuleList(self.layer(at) for at in range(config.num_layers))
        self.run_layers = RunLayers(self.layers)
        self.final_norm = LayerNorm(config.hidden_size, config.norm_eps)

    @property
    def kv_shape(self) -> KVShape | None:
        """Keys and values of every layer."""
        return KVShape(self.config.num_layers, self.config.hidden_size)

    def layer(self, at: int) -> nn.Module:
        """Layer number `at`; the later ones may have smaller logits."""
        spec = causal(self.config)
        if self.config.hf.get("scale_attn_by_inverse_layer_idx"):
            spec = replace(spec, scale=spec.scale / (at + 1))
        return PreNormLayer(self.config, spec, kv_layer=at)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[R, hidden]`, float32."""
        hidden: Tensor = self.embeddings(batch)
        terms = AttentionTerms(key_mask=batch.key_mask)
        out: Tensor = self.final_norm(self.run_layers(hidden, batch, terms))
        return out


class GPT2ForSequenceClassification(WithScore, GPT2Model):
    """A class for a text or a pair."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, SCORE_RULE)
