"""Pooling of tokens: a vector (token_embed) or class scores (token_classify) for every row.

It knows nothing of MaxSim: what is done with token vectors is the late-interaction runner's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cenote.layers.packed import PackedBatch
from cenote.models.base import PoolingModel
from cenote.params import PoolingParams
from cenote.poolers.base import Pooled
from cenote.poolers.heads import ClassActivation, Dense, finish_vectors


class TokenEmbedPooler:
    """Projects every row, drops a document's skip list, cuts and normalises each row.

    `skip_ids`: token ids whose rows a document (`input_type="document"`) leaves out.
    """

    def __init__(
        self,
        model: PoolingModel,
        dense: Sequence[Dense],
        *,
        normalize: bool,
        skip_ids: Sequence[int] = (),
    ) -> None:
        self.model = model
        self.dense = dense
        self.normalize = normalize
        self._skip_ids = frozenset(skip_ids)
        # By token id; ids beyond the last of the list share the last entry.
        self._is_skipped = torch.zeros(max(skip_ids, default=0) + 2, dtype=torch.bool)
        self._is_skipped[list(skip_ids)] = True

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Vectors `[rows, dim]`; documents with a skip list have positions in `indices`."""
        sizes, indices = batch.seq_lens, None
        kept, positions = self._kept(batch, params), batch.positions
        if kept is not None:
            if not kept.all():
                hidden, positions = hidden[kept], positions[kept]
                sizes = _counts(kept, batch.seq_lens)
            indices = positions.split_with_sizes(sizes)
        vectors = self.model.project(hidden)
        for dense in self.dense:
            vectors = dense(vectors)
        finished = finish_vectors(vectors, sizes, params, default=self.normalize)
        if indices is None:
            return [Pooled(rows) for rows in finished]
        return [
            Pooled(rows, where if item.input_type == "document" else None)
            for rows, where, item in zip(finished, indices, params, strict=True)
        ]

    def reads(self, token_ids: Sequence[int], params: PoolingParams) -> Sequence[int] | None:
        """See `SelectivePooler`: a document's rows but those of its skip list."""
        if params.input_type != "document" or self._skip_ids.isdisjoint(token_ids):
            return None
        return [at for at, token in enumerate(token_ids) if token not in self._skip_ids]

    def _kept(self, batch: PackedBatch, params: Sequence[PoolingParams]) -> Tensor | None:
        """bool `[T]`, False for rows of documents that are in the skip list; None: keep all."""
        is_document = [item.input_type == "document" for item in params]
        if not self._skip_ids or not any(is_document):
            return None
        device = batch.input_ids.device
        self._is_skipped = self._is_skipped.to(device)
        kept = ~self._is_skipped[batch.input_ids.clamp(max=len(self._is_skipped) - 1)]
        if not all(is_document):
            flags = torch.tensor(is_document, device=device)
            lengths = batch.cu_seqlens.diff()
            kept |= ~flags.repeat_interleave(lengths, output_size=batch.num_tokens)
        return kept


class TokenClassifyPooler:
    """The model's classifier on every row."""

    def __init__(self, model: PoolingModel, activation: ClassActivation) -> None:
        self.model = model
        self.activation = activation

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Scores `[tokens, labels]`, or logits for requests with `use_activation=False`."""
        logits = self.model.classify(hidden)
        raw = logits.split_with_sizes(batch.seq_lens)
        scores = self.activation(logits).split_with_sizes(batch.seq_lens)
        return [
            Pooled(raw[i] if item.use_activation is False else scores[i])
            for i, item in enumerate(params)
        ]


def _counts(kept: Tensor, seq_lens: Sequence[int]) -> list[int]:
    """How many rows of each sequence are kept."""
    return [int(part.sum()) for part in kept.cpu().split_with_sizes(list(seq_lens))]
