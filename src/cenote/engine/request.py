"""One prompt's run through the engine, and who waits for it.

    waiting → running → finished | aborted | failed
       ↑ ←── preempted ──┘

It knows no scheduling order, no tensors and no processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec

from cenote.engine.messages import EngineRequest
from cenote.params import LateInteractionParams, PoolingParams
from cenote.step import PooledResult, ScheduledRequest


class RequestState(Enum):
    WAITING = auto()
    RUNNING = auto()
    FINISHED = auto()
    ABORTED = auto()
    FAILED = auto()


@dataclass(slots=True, eq=False)
class Submission:
    """Requests that came together. Once one has begun, all run on the same weights.

    `is_small`: somebody waits for a few tokens, not for the end of a job.
    """

    begun: bool = False
    is_small: bool = False


@dataclass(slots=True, eq=False)
class Waiter:
    """Whoever asked for a run: one request id of one submission, and since when (seconds)."""

    request_id: str
    since: float
    submission: Submission


@dataclass(slots=True, eq=False)
class Request:
    """A run. Identical inputs that wait at the same time share one, so it may have many waiters.

    `request_id` is the first waiter's and names the run in the runner even after that waiter has
    gone. `rank` is its place among the waiting: the smallest runs first.

    Of a causal model's prompt `num_computed_tokens` have run or were found in the prefix cache;
    `num_cached_tokens` were found there at its first start. `alone`: a step with it has failed, so
    it runs in a step of its own.
    """

    request_id: str
    token_ids: list[int]
    params: PoolingParams
    rank: float
    waiters: dict[str, Waiter]
    adapter: str | None = None
    cache_salt: str | None = None
    share_key: bytes | None = None
    state: RequestState = RequestState.WAITING
    num_computed_tokens: int = 0
    num_cached_tokens: int | None = None
    block_hashes: list[bytes] | None = None
    alone: bool = False
    started: float = 0.0
    queue_entry: int = field(default=-1)
    queued_as_small: bool = False

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_left(self) -> int:
        """Tokens that have not run yet."""
        return len(self.token_ids) - self.num_computed_tokens

    def run_part(self, num_tokens: int, blocks: list[int] | None) -> ScheduledRequest:
        """So many of its tokens more have run, once the step that they are put into has."""
        start = self.num_computed_tokens
        self.num_computed_tokens += num_tokens
        return ScheduledRequest(
            self.request_id, self.token_ids, self.params, start, num_tokens, self.adapter, blocks
        )

    @property
    def late_interaction(self) -> LateInteractionParams | None:
        return self.params.late_interaction

    @property
    def has_begun(self) -> bool:
        """Whether any of its waiters' submissions has begun."""
        return any(waiter.submission.begun for waiter in self.waiters.values())

    @property
    def is_small(self) -> bool:
        """Whether any of its waiters' submissions is small."""
        return any(waiter.submission.is_small for waiter in self.waiters.values())

    @property
    def submissions(self) -> Iterable[Submission]:
        return (waiter.submission for waiter in self.waiters.values())


@dataclass(slots=True)
class Ended:
    """A run that is over: its result or error is for each of `request.waiters`."""

    request: Request
    result: PooledResult


def spread_begun(requests: Sequence[Request]) -> None:
    """Marks submissions as begun that share a run with one that has, until there are no more."""
    spreading = True
    while spreading:
        spreading = False
        for request in requests:
            if request.has_begun and not all(one.begun for one in request.submissions):
                spreading = True
                for submission in request.submissions:
                    submission.begun = True


_encoder = msgspec.msgpack.Encoder(order="deterministic")


def share_key(request: EngineRequest) -> bytes | None:
    """Equal for requests that would get the same result; None for those that never share.

    Late-interaction prompts never share: each has its own part in its score group.
    """
    if request.params.late_interaction is not None:
        return None
    try:
        return _encoder.encode((request.prompt, request.params, request.adapter))
    except (TypeError, ValueError, OverflowError):
        return None  # A value in `extra_kwargs` that has no bytes: what equals it can't be known.
