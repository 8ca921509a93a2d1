"""EuroBERT (Boizard et al. 2025, arXiv:2503.05500): Llama's layers with attention to both sides.

RMS norms, rotary positions, gated MLPs, fewer key and value heads where so configured; encoder,
classifiers and masked LM. It knows nothing of pooling.
"""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.config.rope import rope_config
from cenote.errors import ModelLoadError
from cenote.kernels.attention import AttentionTerms
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.linear import Linear
from cenote.layers.norm import RMSNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary
from cenote.loader.rules import Ignore, Rename, Rule, Stack
from cenote.models.base import ClassifyPooling, ModelInfo, PoolingModel
from cenote.models.blocks import PreNormLayer, bidirectional
from cenote.models.heads import Classifier, linear_classifier

# `classifier_pooling`, and its name in the original repository, to ours.
_POOLING: dict[str, ClassifyPooling] = {"bos": "cls", "mean": "mean", "late": "late"}

_ROOT = r"(?:model\.)?"
_LAYER = _ROOT + r"layers\.(\d+)\."
_WB = r"\.(weight|bias)"

_BODY_RULES: tuple[Rule, ...] = (
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


class EuroBertModel(PoolingModel):
    """The encoder alone. A checkpoint's heads are not used."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Ignore(r"(?:lm_head|dense|classifier)\..*"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        hf = config.hf
        rope = rope_config(hf, base=10000.0)
        rotary = Rotary(config.head_dim, config.max_model_len, rope)
        self.embeddings = TokenEmbedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            PreNormLayer(
                config,
                bidirectional(config),
                norm=RMSNorm,
                gate="first",
                bias=bool(hf.get("attention_bias", False)),
                mlp_bias=bool(hf.get("mlp_bias", False)),
                rotary=rotary,
            )
            for _ in range(config.num_layers)
        )
        self.final_norm = RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[T, hidden]`, float32."""
        hidden: Tensor = self.embeddings(batch)
        terms = AttentionTerms(key_mask=batch.key_mask)
        for layer in self.layers:
            hidden = layer(hidden, batch, terms)
        out: Tensor = self.final_norm(hidden)
        return out


class EuroBertForSequenceClassification(EuroBertModel):
    """A class for a text or a pair: out(gelu(dense(row))), averaged before it or after."""

    info: ClassVar[ModelInfo] = ModelInfo(head="classify", classify_pooling="late")
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(r"dense\.(weight|bias)", r"classifier.dense.\1"),
        Rename(r"classifier\.(weight|bias)", r"classifier.out.\1"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = Classifier(config, "gelu_erf")
        if self._pooling not in _POOLING:
            raise ModelLoadError(
                f"config.json: classifier_pooling must be one of {sorted(_POOLING)}, not "
                f"{self._pooling!r}."
            )

    @property
    def _pooling(self) -> str:
        hf = self.config.hf
        return cast(str, hf.get("classifier_pooling") or hf.get("clf_pooling") or "late")

    @property
    def classify_pooling(self) -> ClassifyPooling:
        """`classifier_pooling` of the configuration."""
        return _POOLING[self._pooling]


class EuroBertForTokenClassification(EuroBertModel):
    """A class for every token."""

    info: ClassVar[ModelInfo] = ModelInfo(head="token_classify")
    weight_rules: ClassVar[tuple[Rule, ...]] = _BODY_RULES

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.classifier = linear_classifier(config)


class LMHead(nn.Module):
    """One matrix from a row to its logits; not the word table."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        bias = bool(config.hf.get("mlp_bias", False))
        self.out = Linear(config.hidden_size, config.vocab_size, bias=bias)

    def forward(self, rows: Tensor) -> Tensor:
        """Logits `[n, vocab]` float32."""
        logits: Tensor = self.out(rows, out_dtype=torch.float32)
        return logits


class EuroBertForMaskedLM(EuroBertModel):
    """Logits over the vocabulary for every token."""

    info: ClassVar[ModelInfo] = ModelInfo(head="vocab")
    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *_BODY_RULES,
        Rename(r"lm_head\.(weight|bias)", r"head.out.\1"),
    )

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.head = LMHead(config)
