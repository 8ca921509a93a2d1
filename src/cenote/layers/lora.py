"""Low-rank changes that are a model's own parameters (LoRA, Hu et al. 2021, arXiv:2106.09685).

All of a model's adapters have one rank, and their halves lie in one tensor each, matrices' and
tables'. It knows nothing of which rows have which adapter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from cenote.kernels.embedding import embed
from cenote.kernels.norm import norm
from cenote.layers.adapters import ActiveAdapters, AdapterRows, Change, LinearAdapters
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.norm import LayerNorm
from cenote.layers.packed import PackedBatch


@dataclass(frozen=True, slots=True)
class LoraSpec:
    """How many adapters a model has, their rank, and what their products are multiplied by."""

    count: int
    rank: int
    scale: float


class LowRank(nn.Module):
    """What adapters add to a product with a matrix `[out, in]`: scale · (x · aᵀ) · bᵀ, float32.

    It only holds the parameters; the product itself uses them.
    """

    def __init__(self, spec: LoraSpec, in_features: int, out_features: int) -> None:
        super().__init__()
        self.spec = spec
        shape_a, shape_b = (spec.rank, in_features), (out_features, spec.rank)
        self.a = nn.Parameter(torch.empty(spec.count, *shape_a, dtype=torch.float32))
        self.b = nn.Parameter(torch.empty(spec.count, *shape_b, dtype=torch.float32))

    def add_to(self, adapters: LinearAdapters) -> None:
        """Adds the changes to the product's adapters, under the numbers of their rows."""
        for number in range(self.spec.count):
            low = (self.a[number], self.b[number] * self.spec.scale)
            adapters.add(number, Change(slice(None), low))


class LowRankTable(nn.Module):
    """What adapters add to a table's rows: scale · a[id] · b, float32."""

    def __init__(self, spec: LoraSpec, rows: int, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.a = nn.Parameter(torch.empty(spec.count, rows, spec.rank, dtype=torch.float32))
        self.b = nn.Parameter(torch.empty(spec.count, spec.rank, width, dtype=torch.float32))

    def add_to(self, out: Tensor, ids: Tensor, groups: Sequence[AdapterRows]) -> None:
        """Adds to out `[T, width]` float32 in place; ids `[T]`."""
        for group in groups:
            if group.adapter >= self.spec.count:
                continue
            low = self.a[group.adapter][ids[group.rows].long()]
            out[group.rows] += low @ self.b[group.adapter] * self.spec.scale


class AdaptedEmbedding(TokenEmbedding):
    """Tables of words and types, both with adapters, and a norm after their sum.

    `active` is set once the model is filled; adapters that aren't the table's change nothing.
    """

    active: ActiveAdapters

    def __init__(
        self, spec: LoraSpec, vocab: int, hidden: int, *, types: int, layer_norm: LayerNorm
    ) -> None:
        super().__init__(vocab, hidden, types=types, norm=layer_norm)
        self.words_lora = LowRankTable(spec, vocab, hidden)
        self.types_lora = LowRankTable(spec, types, hidden)

    def forward(self, batch: PackedBatch) -> Tensor:
        """As any table's, with each sequence's adapter."""
        groups = self.active.groups
        if not groups:
            return super().forward(batch)
        bare = replace(self.tables, norm=None)
        out = embed(batch.input_ids, batch.positions, batch.token_type_ids, bare)
        types = batch.token_type_ids
        self.words_lora.add_to(out, batch.input_ids, groups)
        self.types_lora.add_to(
            out, torch.zeros_like(batch.input_ids) if types is None else types, groups
        )
        return out if self.tables.norm is None else norm(out, self.tables.norm)
