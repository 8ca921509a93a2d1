"""Low-rank changes that are a model's own parameters (LoRA, Hu et al. 2021, arXiv:2106.09685).

All of a model's adapters have one rank, and their halves lie in one tensor each, matrices' and
tables'. It knows nothing of which rows have which adapter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from cenote.layers.adapters import (
    ActiveAdapters,
    Change,
    LinearAdapters,
    TableAdapters,
    TableChange,
)
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.norm import LayerNorm


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

    def add_to(self, adapters: TableAdapters) -> None:
        """Adds the changes to the table's adapters, under the numbers of their rows."""
        for number in range(self.spec.count):
            adapters.add(number, TableChange(self.a[number], self.b[number] * self.spec.scale))


class AdaptedEmbedding(TokenEmbedding):
    """Tables of words and types, both with adapters, and a norm after their sum."""

    def __init__(
        self, spec: LoraSpec, vocab: int, hidden: int, *, types: int, layer_norm: LayerNorm
    ) -> None:
        super().__init__(vocab, hidden, types=types, norm=layer_norm)
        self.words_lora = LowRankTable(spec, vocab, hidden)
        self.types_lora = LowRankTable(spec, types, hidden)

    def share_adapters(self, active: ActiveAdapters) -> None:
        """Puts the adapters on the tables that they change."""
        tables = self.adapted_by(active)
        self.words_lora.add_to(tables["words"])
        self.types_lora.add_to(tables["types"])
        del self.words_lora, self.types_lora
