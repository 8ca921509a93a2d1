"""Vectors at marker tokens only: what a listwise reranker thinks of each text of its prompt.

It knows nothing of texts and scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cenote.layers.packed import PackedBatch
from cenote.models.base import PoolingModel
from cenote.params import PoolingParams
from cenote.poolers.base import Pooled
from cenote.poolers.heads import finish_vectors


class MarkerPooler:
    """Projects the rows of some tokens. `markers`: their ids."""

    def __init__(self, model: PoolingModel, markers: Sequence[int]) -> None:
        self.model = model
        self.ids = frozenset(markers)
        self.markers = torch.tensor(sorted(markers), dtype=torch.int32)

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Vectors `[markers in the prompt, dim]`, with their prompt positions."""
        self.markers = self.markers.to(batch.input_ids.device)
        at = torch.isin(batch.input_ids, self.markers)
        sizes = [int(part.sum()) for part in at.cpu().split_with_sizes(batch.seq_lens)]
        vectors = self.model.project(hidden[at])
        finished = finish_vectors(vectors, sizes, params, default=True)
        places = batch.positions[at].split_with_sizes(sizes)
        return [Pooled(rows, where) for rows, where in zip(finished, places, strict=True)]

    def reads(self, token_ids: Sequence[int], params: PoolingParams) -> Sequence[int]:
        """The markers."""
        return [at for at, token in enumerate(token_ids) if token in self.ids]
