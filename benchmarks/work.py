"""What candidates are given and give back. Read in every environment, so it imports only numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
WorkT = TypeVar("WorkT", contravariant=True)


@dataclass(frozen=True, slots=True)
class RerankWork:
    """One query and the documents to be scored with it."""

    query: str
    documents: Sequence[str]


@dataclass(frozen=True, slots=True)
class MaxSimWork:
    """A query's token vectors `[Q, dim]` and those of each document `[rows, dim]`, to be scored
    `times` times in a row."""

    query: Array
    documents: Sequence[Array]
    times: int


class Candidate(Protocol[WorkT]):
    """Something that can do the work: ours or a peer's, loaded and ready."""

    name: str

    def run(self, work: WorkT) -> Array:
        """The results, one row (or one number) for each item of the work, in its order."""

    def close(self) -> None:
        """Frees its memory and threads."""
