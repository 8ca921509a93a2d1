"""The contract of every pooler: a step's hidden states in, one result per request out.

It knows nothing of requests' lives: the pooling runner decides which rows reach which pooler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from cenote.config.pooling import PoolingMode
from cenote.layers.packed import PackedBatch
from cenote.params import PoolingParams


class Pooled(NamedTuple):
    """One request's result, float32, on the model's device.

    It is `source`, or the row `source[row]` of what a batch's results share: for short texts, views
    of their own cost more than all the rest that is done for them here. `indices` int32: the prompt
    positions of the rows of a token task, where some were left out, or the vocabulary ids of a
    sparse vector.
    """

    source: Tensor
    indices: Tensor | None = None
    row: int | None = None

    @property
    def data(self) -> Tensor:
        """The result as a tensor of its own."""
        return self.source if self.row is None else self.source[self.row]


def each_row(rows: Tensor) -> list[Pooled]:
    """Every row of `[N, D]` as one request's result `[D]`."""
    return [Pooled(rows, None, index) for index in range(rows.shape[0])]


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
class SelectivePooler(Protocol):
    """A pooler that reads some rows of a prompt and no others, or of some prompts.

    Of a batch of these rows alone it makes the same, indices included.
    """

    def reads(self, token_ids: Sequence[int], params: PoolingParams) -> Sequence[int] | None:
        """The positions of a prompt's rows that it reads, ascending; None: all."""


@runtime_checkable
class LookupPooler(Protocol):
    """A pooler that answers some prompts from their token ids alone, without the model."""

    def lookup(self, token_ids: Sequence[int], params: PoolingParams) -> Pooled | None:
        """The result, or None where the model has to run."""
