"""Pooling of sequences: one vector (embed) or one row of class scores (classify) for each.

It knows nothing of token-level tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cenote.config.pooling import PoolingMode
from cenote.kernels.pooling import pool
from cenote.layers.packed import PackedBatch
from cenote.models.base import PoolingModel
from cenote.params import PoolingParams
from cenote.poolers.base import Pooled
from cenote.poolers.heads import ClassActivation, Dense, finish_vectors


class EmbedPooler:
    """Pools by each mode, concatenates, applies the dense modules, cuts and normalises."""

    def __init__(
        self, modes: Sequence[PoolingMode], dense: Sequence[Dense], *, normalize: bool
    ) -> None:
        self.modes = modes
        self.dense = dense
        self.normalize = normalize

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Vectors `[dim]`; `skip_tokens` leading rows take no part."""
        skip = _skipped(params, hidden.device)
        pooled = [pool(hidden, batch.cu_seqlens, mode, skip=skip) for mode in self.modes]
        vectors = pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=1)
        for dense in self.dense:
            vectors = dense(vectors)
        sizes = [1] * len(params)
        finished = finish_vectors(vectors, sizes, params, default=self.normalize)
        return [Pooled(rows[0]) for rows in finished]


class ClassifyPooler:
    """The model's classifier on one pooled row of each sequence, or on all rows and then pooled."""

    def __init__(self, model: PoolingModel, activation: ClassActivation) -> None:
        self.model = model
        self.activation = activation

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Scores `[labels]`, or logits for requests with `use_activation=False`."""
        logits = self._logits(hidden, batch)
        scores = self.activation(logits)
        return [
            Pooled(logits[i] if item.use_activation is False else scores[i])
            for i, item in enumerate(params)
        ]

    def _logits(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        mode = self.model.classify_pooling
        if mode == "late":
            return pool(self.model.classify(hidden), batch.cu_seqlens, "mean")
        return self.model.classify(pool(hidden, batch.cu_seqlens, mode))


def _skipped(params: Sequence[PoolingParams], device: torch.device) -> Tensor | None:
    """int32 `[N]` leading rows to leave out, or None in the usual case of none."""
    counts = [item.skip_tokens for item in params]
    return torch.tensor(counts, dtype=torch.int32, device=device) if any(counts) else None
