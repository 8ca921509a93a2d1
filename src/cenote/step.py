"""One engine step: what the scheduler asks the runner for, and what the runner gives back.

Room 0, so that the scheduler (which knows no torch) and the runner (which knows no scheduler) can
share the words. It knows nothing of text, HTTP or processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cenote.errors import CenoteError
from cenote.params import PoolingParams, Task


@dataclass(frozen=True, slots=True)
class KVSpace:
    """A causal model's pool of keys and values, as the runner has made it.

    `model` names the weights in the keys of the prefix cache. `last_row_tasks` are the tasks whose
    result is made of a prompt's last row alone, so that a prefix needn't run to give rows.
    """

    num_blocks: int
    block_size: int  # tokens
    model: str = ""
    last_row_tasks: frozenset[Task] = frozenset()
    prefix_caching: bool = True
    chunked: bool = True


@dataclass(frozen=True, slots=True)
class KVUse:
    """How the pool is used: blocks held by requests, free ones that keep a prefix, and how many of
    the `queries` tokens that were looked up since the start were `hits`."""

    num_blocks: int = 0
    held: int = 0
    kept: int = 0
    hits: int = 0
    queries: int = 0


@dataclass(slots=True)
class ScheduledRequest:
    """The part `[start, start + num_tokens)` of one prompt that runs in this step.

    Bidirectional models always run whole prompts. `block_ids` are the blocks of the prompt's keys
    and values up to this part's end, for causal models only. A causal prompt may start after 0 in
    its first step: the tokens before are in its blocks, and give no rows.
    """

    request_id: str
    token_ids: list[int]
    params: PoolingParams
    start: int
    num_tokens: int
    adapter: str | None = None
    block_ids: list[int] | None = None

    @property
    def is_last_chunk(self) -> bool:
        """Whether the prompt is complete after this step."""
        return self.start + self.num_tokens == len(self.token_ids)


@dataclass(slots=True)
class ScheduledStep:
    """All that one step runs, and what ended since the step before.

    `finished_ids` are finished, failed or aborted for good; `preempted_ids` went back to waiting
    and will be scheduled again. The runner is told of the two apart, in this order. `is_bulk`: it
    has requests of a large submission in it.
    """

    requests: list[ScheduledRequest]
    finished_ids: set[str] = field(default_factory=set)
    preempted_ids: set[str] = field(default_factory=set)
    is_bulk: bool = False

    @property
    def num_tokens(self) -> int:
        return sum(request.num_tokens for request in self.requests)


@dataclass(slots=True)
class PooledResult:
    """One finished prompt's result on the host: float32 data, or the error it failed with.

    `indices`: int32 positions of kept rows (token tasks) or vocabulary ids (sparse vectors).
    `more` holds the results of `PoolingParams.also`, in that order.
    """

    request_id: str
    data: NDArray[Any] | None = None
    indices: NDArray[np.int32] | None = None
    error: CenoteError | None = None
    more: list[PooledResult] = field(default_factory=list)
