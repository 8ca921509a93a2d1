"""The tables that token ids, positions and types are looked up in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from cenote.errors import InputTooLong
from cenote.kernels.embedding import EmbeddingTables, embed
from cenote.kernels.norm import norm
from cenote.layers.adapters import ActiveAdapters, TableAdapters
from cenote.layers.linear import Linear
from cenote.layers.norm import LayerNorm, RMSNorm
from cenote.layers.packed import PackedBatch
from cenote.layers.packing import WeightForm


class TokenEmbedding(nn.Module):
    """norm(words[id] + positions[offset + position] + types[type]) → float32 `[T, hidden]`.

    `positions` counts the rows of the position table, `offset` those at its start that no token
    uses (RoBERTa's padding index); 0 rows or types: no such table. Tables stay as loaded, so that
    a masked-language-model head can share `words`.
    """

    tables: EmbeddingTables
    adapters: Mapping[str, TableAdapters] = {}  # of `words` and `types`

    def __init__(
        self,
        vocab: int,
        hidden: int,
        *,
        positions: int = 0,
        offset: int = 0,
        types: int = 0,
        norm: LayerNorm | RMSNorm | None = None,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.offset = offset
        self.scale = scale
        self.max_positions = positions - offset
        self.words = nn.Parameter(torch.empty(vocab, hidden))
        self.positions = nn.Parameter(torch.empty(positions, hidden)) if positions else None
        self.types = nn.Parameter(torch.empty(types, hidden)) if types else None
        self.norm = norm

    def pack(self, form: WeightForm) -> None:
        """Gathers the tables, all in one dtype."""
        if self.norm is not None:
            self.norm.pack(form)
        positions = None if self.positions is None else self.positions.detach()[self.offset :]
        self.tables = EmbeddingTables(
            words=self.words.detach(),
            positions=positions,
            types=None if self.types is None else self.types.detach(),
            norm=None if self.norm is None else self.norm.prepared,
            scale=self.scale,
        )

    def forward(self, batch: PackedBatch) -> Tensor:
        """Raises InputTooLong for a sequence with more tokens than the table has positions."""
        if self.positions is not None and batch.max_seqlen > self.max_positions:
            raise InputTooLong(batch.max_seqlen, self.max_positions)
        ids, types = batch.input_ids, batch.token_type_ids
        if not any(table.is_active for table in self.adapters.values()):
            return embed(ids, batch.positions, types, self.tables)
        out = embed(ids, batch.positions, types, replace(self.tables, norm=None))
        looked_up = {"words": ids, "types": torch.zeros_like(ids) if types is None else types}
        for name, table in self.adapters.items():
            table.add_to(out, looked_up[name])
        return out if self.tables.norm is None else norm(out, self.tables.norm)

    def adapted_by(self, active: ActiveAdapters) -> Mapping[str, TableAdapters]:
        """The adapters of its tables, to add some to; a change of words has `scale` in it."""
        if not self.adapters:
            self.adapters = {name: TableAdapters(active) for name in ("words", "types")}
        return self.adapters


class ProjectedEmbedding(TokenEmbedding):
    """Tables narrower than the model: their normed sum goes through a product up to its width."""

    def __init__(
        self,
        vocab: int,
        width: int,
        hidden: int,
        *,
        positions: int,
        types: int,
        norm: LayerNorm,
    ) -> None:
        super().__init__(vocab, width, positions=positions, types=types, norm=norm)
        self.project = Linear(width, hidden)

    def pack(self, form: WeightForm) -> None:
        """Gathers the tables and prepares the product."""
        super().pack(form)
        self.project.pack(form)

    def forward(self, batch: PackedBatch) -> Tensor:
        """As `TokenEmbedding`, of the model's width."""
        out: Tensor = self.project(super().forward(batch), out_dtype=torch.float32)
        return out
