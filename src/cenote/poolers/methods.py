"""Pooling of sequences: one vector (embed) or one row of class scores (classify) for each.

It knows nothing of token-level tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from cenote.config.pooling import PoolingMode
from cenote.kernels.pooling import pool
from cenote.layers.packed import PackedBatch
from cenote.models.base import PoolingModel
from cenote.params import PoolingParams
from cenote.poolers.base import Pooled
from cenote.poolers.heads import ClassActivation, Dense, finish_rows, finish_vectors


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
        """Vectors `[dim]`; `skip_tokens` leading rows take no part.

        A request with `spans` gets `[spans, dim]`, the mean of each span's rows.
        """
        if any(item.spans for item in params):
            return self._spans(hidden, batch, params)
        skip = _skipped(params, hidden.device)
        pooled = [pool(hidden, batch.cu_seqlens, mode, skip=skip) for mode in self.modes]
        return self.finish(pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=1), params)

    def reads(self, token_ids: Sequence[int], params: PoolingParams) -> Sequence[int] | None:
        """The row that is pooled, where it is a single one."""
        if params.spans:
            return None
        return _single_row(self.modes, len(token_ids), params.skip_tokens)

    def rows(self, hidden: Tensor) -> Tensor:
        """Hidden states are pooled as they are."""
        return hidden

    def finish(self, pooled: Tensor, params: Sequence[PoolingParams]) -> list[Pooled]:
        """Vectors `[dim]` of pooled rows."""
        for dense in self.dense:
            pooled = dense(pooled)
        return finish_rows(pooled, params, default=self.normalize)

    def _spans(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """As above for a batch with spans; a request without any is one span, of all its rows."""
        parts, sizes = [], []
        starts = accumulate(batch.seq_lens, initial=0)
        for start, length, item in zip(starts, batch.seq_lens, params, strict=False):
            spans = item.spans or ((min(item.skip_tokens, length - 1), length),)
            parts += [hidden[start + first : start + end] for first, end in spans]
            sizes.append(len(spans))
        lengths = torch.tensor([0, *(part.shape[0] for part in parts)], device=hidden.device)
        vectors = pool(torch.cat(parts), lengths.cumsum(0).int(), "mean")
        for dense in self.dense:
            vectors = dense(vectors)
        finished = finish_vectors(vectors, sizes, params, default=self.normalize)
        return [
            Pooled(rows if item.spans else rows[0])
            for rows, item in zip(finished, params, strict=True)
        ]


class ClassifyPooler:
    """The model's classifier on one pooled row of each sequence, or on all rows and then pooled."""

    def __init__(self, model: PoolingModel, activation: ClassActivation) -> None:
        self.model = model
        self.activation = activation
        mode = model.classify_pooling
        self.late = mode == "late"
        self.modes: Sequence[PoolingMode] = ("mean" if mode == "late" else mode,)

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Scores `[labels]`, or logits for requests with `use_activation=False`."""
        return self.finish(pool(self.rows(hidden), batch.cu_seqlens, self.modes[0]), params)

    def reads(self, token_ids: Sequence[int], params: PoolingParams) -> Sequence[int] | None:
        """The row that is pooled, where it is a single one."""
        return _single_row(self.modes, len(token_ids))

    def rows(self, hidden: Tensor) -> Tensor:
        """Hidden states, or their logits where those are averaged."""
        return self.model.classify(hidden) if self.late else hidden

    def finish(self, pooled: Tensor, params: Sequence[PoolingParams]) -> list[Pooled]:
        """Scores `[labels]` of pooled rows."""
        logits = pooled if self.late else self.model.classify(pooled)
        scores = self.activation(logits)
        return [
            Pooled(logits if item.use_activation is False else scores, row=i)
            for i, item in enumerate(params)
        ]


def _single_row(modes: Sequence[PoolingMode], length: int, skip: int = 0) -> Sequence[int] | None:
    """The position of the only row that is pooled; None where there are more."""
    match tuple(modes):
        case ("last",):
            return (length - 1,)
        case ("cls",):
            return (min(skip, length - 1),)
        case _:
            return None


def _skipped(params: Sequence[PoolingParams], device: torch.device) -> Tensor | None:
    """int32 `[N]` leading rows to leave out, or None in the usual case of none."""
    counts = [item.skip_tokens for item in params]
    return torch.tensor(counts, dtype=torch.int32, device=device) if any(counts) else None
