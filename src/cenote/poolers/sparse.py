"""SPLADE (Formal et al. 2021, arXiv:2107.05720): one weight for each vocabulary entry of a text.

weight = max over tokens of log(1 + relu(logit)). It knows nothing of token strings or scoring.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cenote.config.pooling import SparseConfig
from cenote.layers.packed import PackedBatch
from cenote.models.base import PoolingModel
from cenote.params import PoolingParams
from cenote.poolers.base import Pooled

# Rows of logits that exist at once: 256 × 30,522 float32 are 31 MB.
CHUNK_ROWS = 256


class SparsePooler:
    """Reduces vocabulary logits over each sequence, a chunk of the pack at a time."""

    def __init__(self, model: PoolingModel, config: SparseConfig | None) -> None:
        self.model = model
        self.config = SparseConfig() if config is None else config

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Weights `[entries]`, heaviest first and none zero, with their vocabulary ids.

        `use_activation=False` gives the reduced logits' positive part without the logarithm.
        """
        results: list[Pooled] = []
        running: Tensor | None = None  # [vocab], of the sequence that the last chunk broke off
        used = 0  # rows of the current sequence that are in `running`
        for start in range(0, batch.num_tokens, CHUNK_ROWS):
            logits = self.model.vocab_logits(hidden[start : start + CHUNK_ROWS])
            at = 0
            while at < logits.shape[0]:
                index = len(results)
                rows = min(batch.seq_lens[index] - used, logits.shape[0] - at)
                raw = params[index].use_activation is False
                part = self._reduce(logits[at : at + rows], raw)
                running = part if running is None else self._merge(running, part)
                at, used = at + rows, used + rows
                if used == batch.seq_lens[index]:
                    results.append(_sparse(self._weights(running, raw)))
                    running, used = None, 0
        return results

    def _reduce(self, logits: Tensor, raw: bool) -> Tensor:
        """`[rows, vocab] → [vocab]`. The largest weight is the weight of the largest logit."""
        if self.config.strategy == "max":
            return logits.amax(dim=0)
        return self._activate(logits, raw).sum(dim=0)

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


def _sparse(weights: Tensor) -> Pooled:
    """The non-zero entries, heaviest first; equal weights in the order of their ids."""
    ids = weights.nonzero().squeeze(1)
    values, order = weights[ids].sort(descending=True, stable=True)
    return Pooled(values, ids[order].int())
