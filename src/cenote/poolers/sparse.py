"""SPLADE (Formal et al. 2021, arXiv:2107.05720): one weight for each vocabulary entry of a text.

weight = max over tokens of log(1 + relu(logit)). An inference-free query side (Geng et al. 2024,
arXiv:2411.04403) has a weight for each entry, and a text has those of its tokens, each once. It
knows nothing of token strings or scoring.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from cenote.config.pooling import SparseConfig
from cenote.errors import ModelLoadError
from cenote.kernels.pooling import pool
from cenote.layers.packed import PackedBatch
from cenote.loader.checkpoint import open_checkpoint
from cenote.models.base import PoolingModel
from cenote.params import PoolingParams
from cenote.poolers.base import Pooled

# Rows that meet the vocabulary at once.
CHUNK_ROWS = 512


class _Piece(NamedTuple):
    """A sequence of the batch, or a part of it, in a chunk of rows."""

    sequence: int
    rows: int
    is_last: bool


class SparsePooler:
    """Reduces vocabulary logits over each sequence, a chunk of the pack at a time.

    `query_weights` float32 `[vocab]`: queries are looked up in it and the model doesn't run.
    """

    def __init__(
        self,
        model: PoolingModel,
        config: SparseConfig | None,
        query_weights: Tensor | None = None,
    ) -> None:
        self.model = model
        self.config = SparseConfig() if config is None else config
        self.query_weights = query_weights

    def lookup(self, token_ids: Sequence[int], params: PoolingParams) -> Pooled | None:
        """The weights of a query's distinct tokens; None where the model has to run."""
        if self.query_weights is None or params.input_type != "query":
            return None
        ids = torch.tensor(sorted(set(token_ids)), device=self.query_weights.device)
        return sparse(self.query_weights[ids], ids, params)

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Weights `[entries]`, heaviest first and none zero, with their vocabulary ids.

        `use_activation=False` gives the reduced logits' positive part without the logarithm.
        """
        results: list[Pooled] = []
        running: Tensor | None = None  # [vocab], of the sequence that the last chunk broke off
        for first in range(0, batch.num_tokens, CHUNK_ROWS):
            chunk = hidden[first : first + CHUNK_ROWS]
            pieces = _pieces(batch, first, chunk.shape[0])
            raw = [params[piece.sequence].use_activation is False for piece in pieces]
            runs = [self._reduce(logits, pieces, raw) for logits in self.model.vocab_logits(chunk)]
            for piece, part in zip(pieces, torch.cat(runs, dim=1), strict=True):
                running = part if running is None else self._merge(running, part)
                if piece.is_last:
                    item = params[piece.sequence]
                    weights = self._weights(running, item.use_activation is False)
                    ids = weights.nonzero().squeeze(1)
                    results.append(sparse(weights[ids], ids, item))
                    running = None
        return results

    def _reduce(self, logits: Tensor, pieces: Sequence[_Piece], raw: Sequence[bool]) -> Tensor:
        """`[rows, entries] → [pieces, entries]`; the largest weight is the largest logit's."""
        sizes = [piece.rows for piece in pieces]
        if self.config.strategy == "max":
            ends = torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=logits.device)
            return pool(logits, ends, "max")
        parts = zip(logits.split_with_sizes(sizes), raw, strict=True)
        return torch.stack([self._activate(part, own).sum(dim=0) for part, own in parts])

    def _merge(self, first: Tensor, second: Tensor) -> Tensor:
        if self.config.strategy == "max":
            return torch.maximum(first, second)
        return first + second

    def _weights(self, reduced: Tensor, raw: bool) -> Tensor:
        return self._activate(reduced, raw) if self.config.strategy == "max" else reduced

    def _activate(self, logits: Tensor, raw: bool) -> Tensor:
        positive = torch.relu(logits)
        if raw:
            return positive
        once = torch.log1p(positive)
        return torch.log1p(once) if self.config.activation == "log1p_relu" else once


def _pieces(batch: PackedBatch, first: int, rows: int) -> list[_Piece]:
    """The sequences, or parts of them, in `rows` rows of the pack from `first` on."""
    pieces = []
    start = 0
    for index, length in enumerate(batch.seq_lens):
        end = start + length
        inside = min(end, first + rows) - max(start, first)
        if inside > 0:
            pieces.append(_Piece(index, inside, is_last=end <= first + rows))
        start = end
    return pieces


def sparse(weights: Tensor, ids: Tensor, params: PoolingParams) -> Pooled:
    """A sparse vector of float32 `weights` `[n]` under ascending `ids` `[n]`, without zeros.

    Heaviest first, equal weights by id; cut to what the request wants of them.
    """
    kept = weights != 0
    if params.sparse_threshold is not None:
        kept &= weights >= params.sparse_threshold
    values, order = weights[kept].sort(descending=True, stable=True)
    ids = ids[kept][order]
    if params.sparse_top_k is not None:
        values, ids = values[: params.sparse_top_k], ids[: params.sparse_top_k]
    return Pooled(values, ids.int())


def load_query_weights(folder: Path, vocab_size: int, device: torch.device) -> Tensor:
    """The table of an inference-free query side, float32 `[vocab]`. Raises ModelLoadError."""
    with open_checkpoint(folder) as checkpoint:
        if checkpoint.shapes != {"weight": (vocab_size,)}:
            raise ModelLoadError(
                f"{folder} must hold one tensor, weight [{vocab_size}]; it has {checkpoint.shapes}."
            )
        return checkpoint.read("weight").float().clone().to(device)
