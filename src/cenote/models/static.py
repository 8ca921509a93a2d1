"""Static embeddings (Model2Vec, sentence-transformers' StaticEmbedding): a vector for each token.

Nothing attends to anything: the hidden states are rows of one table, and the mean that makes a
text's vector is the pooler's. Sources: Model2Vec (Tulkens and van Dongen 2024).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from cenote.config.model import ModelConfig
from cenote.kernels.embedding import EmbeddingTables, embed
from cenote.layers.packed import PackedBatch
from cenote.layers.packing import WeightForm
from cenote.loader.rules import Rename, Rule
from cenote.models.base import PoolingModel


class StaticEmbedding(PoolingModel):
    """words[mapping[id]] · weights[id], both optional, folded into one float32 table at load."""

    weight_rules: ClassVar[tuple[Rule, ...]] = (
        Rename(r"embedding\.weight|embeddings", "table"),
        Rename(r"mapping", "mapping"),
        Rename(r"weights", "factors"),
    )
    tables: EmbeddingTables
    mapping: Tensor | None
    factors: nn.Parameter | None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        rows, per_token = int(config.hf["rows"]), config.hf["per_token"]
        tokens = config.vocab_size
        self.table = nn.Parameter(torch.empty(rows, config.hidden_size, dtype=torch.float32))
        mapping = torch.empty(tokens, dtype=torch.int64) if "mapping" in per_token else None
        self.register_buffer("mapping", mapping)
        factors = torch.empty(tokens, dtype=torch.float32) if "weights" in per_token else None
        self.register_parameter("factors", None if factors is None else nn.Parameter(factors))

    def pack(self, form: WeightForm) -> None:
        """Folds mapping and factors into the table, which stays float32 whatever the `form`."""
        table = self.table.detach()
        if self.mapping is not None:
            table = table[self.mapping]
        if self.factors is not None:
            table = table * self.factors.detach().unsqueeze(1)
        self.tables = EmbeddingTables(words=table.contiguous())
        self.register_parameter("table", None)
        self.register_buffer("mapping", None)
        self.register_parameter("factors", None)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Rows `[R, dim]`, float32."""
        rows = embed(batch.input_ids, batch.positions, batch.token_type_ids, self.tables)
        return batch.take_read(rows)
