"""NV-Embed (Lee et al. 2024, arXiv:2405.17428): Mistral to both sides, then attention of every
token to a table of trained latents.

It knows nothing of instructions and pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from cenote.config.fields import positive_int
from cenote.config.model import ModelConfig
from cenote.errors import ModelLoadError
from cenote.layers.linear import Linear
from cenote.layers.mlp import MLP
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.packing import WeightForm
from cenote.loader.rules import Ignore, Rename, Rule, under
from cenote.models.llama import BODY_RULES
from cenote.models.mistral_bidirectional import MistralBidirectionalModel

_EPS = 1e-5
_LATENTS = r"latent_attention_model\."
_CROSS, _FEED = (_LATENTS + rf"cross_attend_blocks\.{at}\." for at in range(2))


class LatentAttention(nn.Module):
    """x + attention(norm(x), latents), then x + mlp(norm(x)) of that, row by row.

    Keys and values are the same for every text, so each head's two products with them are folded
    at load: of its queries and keys, and of its values and outputs. A head's width, which is that
    of the whole model in the releases, then costs nothing.
    """

    look: Linear  # a row to its logits, [heads · latents, hidden]
    answer: Linear  # weights of the latents to a row, [hidden, heads · latents]

    def __init__(self, hidden: int, latents: int, heads: int, head_dim: int, widening: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = head_dim**-0.5
        self.latents = nn.Parameter(torch.empty(latents, hidden))
        self.norm = LayerNorm(hidden, _EPS)
        self.latent_norm = LayerNorm(hidden, _EPS)
        self.q = nn.Parameter(torch.empty(heads * head_dim, hidden))
        self.kv = nn.Parameter(torch.empty(2 * heads * head_dim, hidden))
        self.out = nn.Parameter(torch.empty(hidden, heads * head_dim))
        self.mlp_norm = LayerNorm(hidden, _EPS)
        self.mlp = MLP(hidden, widening * hidden, "gelu_erf", gate="second")

    def pack(self, form: WeightForm) -> None:
        """Folds the products with the latents, and prepares the rest."""
        for part in (self.norm, self.latent_norm, self.mlp_norm, self.mlp):
            part.pack(form)
        latents = self.latent_norm(self.latents.float())
        k, v = (latents @ self.kv.float().t()).chunk(2, dim=1)
        parts = zip(
            self.q.float().chunk(self.heads),
            k.chunk(self.heads, dim=1),
            v.chunk(self.heads, dim=1),
            self.out.float().chunk(self.heads, dim=1),
            strict=True,
        )
        folded = [(self.scale * (k @ q), out @ v.t()) for q, k, v, out in parts]
        self.look = Linear.holding(torch.cat([look for look, _ in folded]), None)
        self.answer = Linear.holding(torch.cat([answer for _, answer in folded], dim=1), None)
        self.look.pack(form)
        self.answer.pack(form)
        for name in ("latents", "q", "kv", "out"):
            self.register_parameter(name, None)

    def forward(self, x: Tensor) -> Tensor:
        """`[T, hidden]` float32 → the same."""
        logits = self.look(x, pre_norm=self.norm.prepared, out_dtype=torch.float32)
        weights = logits.unflatten(1, (self.heads, -1)).softmax(dim=-1).view_as(logits)
        x = self.answer(weights, residual=x, out_dtype=torch.float32)
        out: Tensor = self.mlp(x, residual=x, pre_norm=self.mlp_norm.prepared)
        return out


class NVEmbedModel(MistralBidirectionalModel):
    """The encoder and its latents. Its configuration has one part for each."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        *under(r"embedding_model\.", BODY_RULES),
        Ignore(r"embedding_model\.lm_head\..*"),
        Rename(_LATENTS + "latents", "latent.latents"),
        Rename(_CROSS + r"norm\.(weight|bias)", r"latent.norm.\1"),
        Rename(_CROSS + r"norm_context\.(weight|bias)", r"latent.latent_norm.\1"),
        Rename(_CROSS + r"fn\.to_(q|kv|out)\.weight", r"latent.\1"),
        Rename(_FEED + r"norm\.(weight|bias)", r"latent.mlp_norm.\1"),
        Rename(_FEED + r"fn\.net\.0\.(weight|bias)", r"latent.mlp.up.\1"),
        Rename(_FEED + r"fn\.net\.2\.(weight|bias)", r"latent.mlp.down.\1"),
    )

    def __init__(self, config: ModelConfig) -> None:
        text, own = _part(config.hf, "text_config"), _part(config.hf, "latent_attention_config")
        super().__init__(replace(config, hf=text))
        hidden = config.hidden_size
        for name in ("hidden_dim", "latent_dim"):
            if positive_int(own, (name,), hidden) != hidden:
                raise ModelLoadError(
                    f"config.json: latent_attention_config's {name} must be the width of the "
                    f"model, {hidden}, not {own[name]!r}."
                )
        self.latent = LatentAttention(
            hidden,
            positive_int(own, ("num_latents_value",), 512),
            positive_int(own, ("num_cross_heads",), 8),
            positive_int(own, ("cross_dim_head",), hidden),
            positive_int(own, ("mult",), 4),
        )

    def forward(self, batch: PackedBatch) -> Tensor:
        """Hidden states `[R, hidden]`, float32."""
        hidden: Tensor = self.latent(super().forward(batch))
        return hidden


def _part(hf: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = hf.get(name)
    if not isinstance(found, Mapping):
        raise ModelLoadError(f"config.json: {name} must be an object, not {found!r}.")
    return found
