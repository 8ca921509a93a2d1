"""BGE-M3 (Chen et al. 2024, arXiv:2402.03216): lexical weights and multi-vectors of one encoder.

Both are linear maps of every token's row. It knows nothing of the dense vector, which is pooled as
any other model's is, nor of scoring.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from cenote.layers.packed import PackedBatch
from cenote.params import PoolingParams
from cenote.poolers.base import Pooled
from cenote.poolers.heads import finish_vectors
from cenote.poolers.sparse import sparse

# Tokens without a lexical weight, by the names that XLM-RoBERTa's vocabulary has for them.
UNWEIGHTED = ("<s>", "</s>", "<pad>", "<unk>")


class LexicalPooler:
    """relu(linear(row)) for each token; a vocabulary entry weighs what its heaviest token does.

    `unweighted`: token ids (of special tokens) that are left out.
    """

    def __init__(self, weight: Tensor, bias: Tensor, unweighted: Sequence[int]) -> None:
        self.weight = weight
        self.bias = bias
        self.unweighted = torch.tensor(sorted(unweighted), device=weight.device, dtype=torch.int32)

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Weights `[entries]`, heaviest first and none zero, with their vocabulary ids."""
        weights = torch.relu(F.linear(hidden, self.weight, self.bias)).squeeze(1)
        weights = weights.masked_fill(torch.isin(batch.input_ids, self.unweighted), 0.0)
        parts = zip(
            weights.split_with_sizes(batch.seq_lens),
            batch.input_ids.split_with_sizes(batch.seq_lens),
            params,
            strict=True,
        )
        return [_heaviest(own, token_ids, item) for own, token_ids, item in parts]


class MultiVectorPooler:
    """linear(row) of every token but the first, each normalised."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight = weight
        self.bias = bias

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Vectors `[tokens - 1, dim]`, with their prompt positions."""
        kept = batch.positions > 0
        sizes = [length - 1 for length in batch.seq_lens]
        vectors = F.linear(hidden[kept], self.weight, self.bias)
        finished = finish_vectors(vectors, sizes, params, default=True)
        positions = batch.positions[kept].split_with_sizes(sizes)
        return [Pooled(rows, where) for rows, where in zip(finished, positions, strict=True)]


def _heaviest(weights: Tensor, token_ids: Tensor, params: PoolingParams) -> Pooled:
    """One text's entries: the largest of the weights of equal tokens."""
    ids, entry = torch.unique(token_ids, return_inverse=True)
    largest = weights.new_zeros(ids.shape).scatter_reduce_(0, entry, weights, reduce="amax")
    return sparse(largest, ids, params)
