"""The contract of every pooler: a step's hidden states in, one result per request out.

It knows nothing of requests' lives: the pooling runner decides which rows reach which pooler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from cenote.config.pooling import PoolingMode
from cenote.layers.packed import PackedBatch
from cenote.params import PoolingParams


@dataclass(frozen=True, slots=True)
class Pooled:
    """One request's result, float32, on the model's device (a row or slice of a shared tensor).

    `indices` int32: the prompt positions of the rows of a token task, where some were left out,
    or the vocabulary ids of a sparse vector.
    """

    data: Tensor
    indices: Tensor | None = None


class Pooler(Protocol):
    """One task of one model. `params[i]` belongs to sequence i of the batch."""

    def __call__(
        self, hidden: Tensor, batch: PackedBatch, params: Sequence[PoolingParams]
    ) -> list[Pooled]:
        """Pools hidden states `[T, hidden]` float32 of the whole batch in a few calls."""


@runtime_checkable
class RowPooler(Protocol):
    """A pooler that makes its result of one pooled row, so that a prompt's rows may come in parts.

    It is the same as `finish(pool(rows(hidden)))`, the modes' rows side by side.
    """

    @property
    def modes(self) -> Sequence[PoolingMode]:
        """How rows are pooled."""

    def rows(self, hidden: Tensor) -> Tensor:
        """What is pooled, `[T, D]` float32 of hidden states `[T, hidden]`."""

    def finish(self, pooled: Tensor, params: Sequence[PoolingParams]) -> list[Pooled]:
        """Results of pooled rows `[N, modes · D]`."""


@runtime_checkable
class LookupPooler(Protocol):
    """A pooler that answers some prompts from their token ids alone, without the model."""

    def lookup(self, token_ids: Sequence[int], params: PoolingParams) -> Pooled | None:
        """The result, or None where the model has to run."""
