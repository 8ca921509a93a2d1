"""LFM2 (Liquid AI 2025, arXiv:2511.23404): gated short convolutions, and attention in some layers.

A convolution needs its inputs of the tokens before a part of a prompt: they are kept of every
token, as keys and values are, so that they too can be found by prefix. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from cenote.config.fields import positive_int
from cenote.config.model import ModelConfig
from cenote.config.rope import rope_config
from cenote.errors import ModelLoadError
from cenote.kernels.attention import NO_TERMS, AttentionTerms
from cenote.kernels.norm import NormWeight
from cenote.kernels.short_conv import short_conv
from cenote.layers.attention import HeadNormedAttention
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.kv import KVShape
from cenote.layers.linear import Linear
from cenote.layers.mlp import MLP
from cenote.layers.norm import RMSNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.packing import WeightForm
from cenote.layers.rotary import Rotary
from cenote.layers.run_layers import RunLayers
from cenote.loader.rules import Rename, Rule, Stack
from cenote.models.base import ModelInfo, PoolingModel
from cenote.models.blocks import bidirectional, causal
from cenote.models.llama import HEAD_RULE, SCORE_RULE, WithScore

_ROOT = r"(?:model\.|lfm2\.)?"
_LAYER = _ROOT + r"layers\.(\d+)\."
CONV, ATTENTION = "conv", "full_attention"

_BODY_RULES: tuple[Rule, ...] = (
    Rename(_ROOT + r"embed_tokens\.weight", "embeddings.words"),
    Rename(_ROOT + r"embedding_norm\.weight", "final_norm.weight"),
    *(
        Stack(_LAYER + rf"self_attn\.{part}_proj\.weight", r"layers.\1.mixer.qkv.weight", at, 3)
        for at, part in enumerate("qkv")
    ),
    Rename(_LAYER + r"self_attn\.out_proj\.weight", r"layers.\1.mixer.out.weight"),
    Rename(_LAYER + r"self_attn\.([qk])_layernorm\.weight", r"layers.\1.mixer.\2_norm.weight"),
    Rename(_LAYER + r"conv\.conv\.(weight|bias)", r"layers.\1.mixer.\2"),
    Rename(_LAYER + r"conv\.in_proj\.(weight|bias)", r"layers.\1.mixer.up.\2"),
    Rename(_LAYER + r"conv\.out_proj\.(weight|bias)", r"layers.\1.mixer.out.\2"),
    Rename(_LAYER + r"(operator|ffn)_norm\.weight", r"layers.\1.\2_norm.weight"),
    Stack(_LAYER + r"feed_forward\.w1\.weight", r"layers.\1.mlp.up.weight", 0, 2),
    Stack(_LAYER + r"feed_forward\.w3\.weight", r"layers.\1.mlp.up.weight", 1, 2),
    Rename(_LAYER + r"feed_forward\.w2\.weight", r"layers.\1.mlp.down.weight"),
)


class GatedConv(nn.Module):
    """out(c · conv(b · x)), where up(hidden) is b, c and x side by side.

    `ahead`: so many of the convolution's `width` columns are for tokens that come after.
    `hears_hidden`: also tokens that may not be attended to. `number`: its place among a model's
    convolutions.
    """

    bias: nn.Parameter | None

    def __init__(
        self, hidden: int, width: int, *, bias: bool, number: int, ahead: int, hears_hidden: bool
    ) -> None:
        super().__init__()
        self.number = number
        self.ahead = ahead
        self.hears_hidden = hears_hidden
        self.up = Linear(hidden, 3 * hidden, bias=bias)
        self.weight = nn.Parameter(torch.empty(hidden, 1, width, dtype=torch.float32))
        own = nn.Parameter(torch.empty(hidden, dtype=torch.float32)) if bias else None
        self.register_parameter("bias", own)
        self.out = Linear(hidden, hidden, bias=bias)

    def pack(self, form: WeightForm) -> None:
        """Prepares both products."""
        self.up.pack(form)
        self.out.pack(form)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms, pre_norm: RMSNorm
    ) -> Tensor:
        """out(…) + hidden, float32 `[R, hidden]`; `terms` are attention's alone."""
        rows = hidden
        norm: NormWeight | None = pre_norm.prepared
        if batch.key_mask is not None and not self.hears_hidden:
            rows, norm = pre_norm(hidden) * batch.key_mask.unsqueeze(1), None
        mixed = self.up(rows, pre_norm=norm, out_dtype=torch.float32)
        b, c, x = mixed.chunk(3, dim=1)
        x = b * x
        kv = batch.kv
        carry = None if kv is None else kv.carry(self.number, x)
        places = batch.positions if kv is None or kv.neighbours is None else kv.neighbours.places
        taps = self.weight.squeeze(1)
        made = short_conv(x, places, taps, self.bias, ahead=self.ahead, carry=carry)
        mixed, residual = batch.take_read(c * made), batch.take_read(hidden)
        out: Tensor = self.out(mixed, residual=residual, out_dtype=torch.float32)
        return out


class Lfm2Attention(HeadNormedAttention):
    """Attention in the same place."""

    def forward(  # type: ignore[override]
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms, pre_norm: RMSNorm
    ) -> Tensor:
        """out(…) + hidden, float32 `[R, hidden]`."""
        return super().forward(hidden, batch, terms, pre_norm=pre_norm.prepared)


class Lfm2Layer(nn.Module):
    """A convolution or an attention, then a gated MLP; a norm before each."""

    def __init__(self, config: ModelConfig, mixer: nn.Module) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.norm_eps
        self.operator_norm = RMSNorm(hidden, eps)
        self.mixer = mixer
        self.ffn_norm = RMSNorm(hidden, eps)
        self.mlp = MLP(hidden, _mlp_size(config), "silu", gate="first", bias=False)

    def forward(
        self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms = NO_TERMS
    ) -> Tensor:
        """`[T, hidden]` float32 → `[R, hidden]`, the rows that are read."""
        hidden = self.mixer(hidden, batch, terms, self.operator_norm)
        out: Tensor = self.mlp(hidden, residual=hidden, pre_norm=self.ffn_norm.prepared)
        return out


class Lfm2Model(PoolingModel):
    """The decoder alone. A checkpoint's heads are not used."""

    info: ClassVar[ModelInfo] = ModelInfo(
        causal=True, default_pooling="last", classify_pooling="last"
    )
    one_sided: ClassVar[bool] = True
    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, HEAD_RULE)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.width = positive_int(config.hf, ("conv_L_cache",), 3)
        self.rope = rope_config(config.hf, base=1_000_000.0)
        rotary = Rotary(config.head_dim, config.max_model_len, self.rope)
        self.kinds = _kinds(config)
        self.embeddings = TokenEmbedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Lfm2Layer(config, self.mixer(at, rotary)) for at in range(config.num_layers)
        )
        self.run_layers = RunLayers(self.layers)
        self.final_norm = RMSNorm(config.hidden_size, config.norm_eps)

    def mixer(self, at: int, rotary: Rotary) -> nn.Module:
        """What mixes tokens in layer `at`."""
        config, hidden = self.config, self.config.hidden_size
        number = self.kinds[:at].count(self.kinds[at])
        if self.kinds[at] == CONV:
            return GatedConv(
                hidden,
                self.width,
                bias=bool(config.hf.get("conv_bias", False)),
                number=number,
                ahead=0 if self.one_sided else (self.width - 1) // 2,
                hears_hidden=not self.one_sided and not config.hf.get("conv_zero_padding", False),
            )
        return Lfm2Attention(
            hidden,
            causal(config) if self.one_sided else bidirectional(config),
            norm=lambda: RMSNorm(config.head_dim, config.norm_eps),
            bias=False,
            rotary=rotary,
            kv_layer=number,
        )

    @property
    def causal(self) -> bool:
        """Not to the engine where all rows of a prompt are wanted at once (ColBERT)."""
        return self.one_sided and self.config.pooler.colbert is None

    @property
    def kv_shape(self) -> KVShape | None:
        """None also where a prompt's length changes all of its positions."""
        if not self.causal or self.rope.varies(self.config.max_model_len):
            return None
        config, count = self.config, self.kinds.count
        size = config.num_kv_heads * config.head_dim
        return KVShape(count(ATTENTION), size, count(CONV), config.hidden_size, self.width - 1)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[R, hidden]`, float32."""
        hidden: Tensor = self.embeddings(batch)
        terms = AttentionTerms(key_mask=batch.key_mask)
        out: Tensor = self.final_norm(self.run_layers(hidden, batch, terms))
        return out


class Lfm2ForSequenceClassification(WithScore, Lfm2Model):
    """A class for a text or a pair."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (*_BODY_RULES, SCORE_RULE)


class Lfm2BidirectionalModel(Lfm2Model):
    """The encoder (LFM2.5-Embedding, -ColBERT and -Encoder): attention to both sides, convolutions
    centred on their token. A checkpoint's heads are not used."""

    info: ClassVar[ModelInfo] = ModelInfo()
    one_sided: ClassVar[bool] = False


def _kinds(config: ModelConfig) -> list[str]:
    """Each layer's kind, listed as such or by the numbers of those with attention."""
    listed = config.hf.get("layer_types")
    if listed is None:
        attends = config.hf.get("full_attn_idxs")
        attends = range(config.num_layers) if attends is None else attends
        listed = [ATTENTION if at in attends else CONV for at in range(config.num_layers)]
    if len(listed) != config.num_layers or not set(listed) <= {CONV, ATTENTION}:
        raise ModelLoadError(
            f"config.json: layer_types must list {config.num_layers} of {ATTENTION!r} and "
            f"{CONV!r}, not {listed!r}."
        )
    return [str(kind) for kind in listed]


def _mlp_size(config: ModelConfig) -> int:
    """The width of the MLP: two thirds of what is configured, rounded up, unless told not to."""
    hf = config.hf
    size = positive_int(hf, ("block_ff_dim",), config.intermediate_size)
    if not hf.get("block_auto_adjust_ff_dim", True):
        return size
    size = int(2 * size / 3)
    if hf.get("block_ffn_dim_multiplier", 1.0) is not None:
        size = int(hf.get("block_ffn_dim_multiplier", 1.0) * size)
        step = positive_int(hf, ("block_multiple_of",), 256)
        size = step * -(-size // step)
    return size
