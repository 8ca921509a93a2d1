"""The runs that are not over, by who waits for them and by what they are of.

Identical inputs that wait at the same time share a run. It knows no queue and no budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cenote.engine.messages import EngineRequest
from cenote.engine.request import Request, Waiter, share_key


class Runs:
    """`shared` counts requests that found a run to join."""

    def __init__(self) -> None:
        self.shared = 0
        self._by_waiter: dict[str, Request] = {}
        self._by_input: dict[bytes, Request] = {}

    def __contains__(self, request_id: str) -> bool:
        """Whether somebody waits under this id."""
        return request_id in self._by_waiter

    def __len__(self) -> int:
        """How many wait."""
        return len(self._by_waiter)

    def __iter__(self) -> Iterator[Request]:
        """Each run, once for each of its waiters."""
        return iter(self._by_waiter.values())

    def join(
        self, request: EngineRequest, rank: float, waiter: Waiter, *, alone: bool
    ) -> tuple[Request, bool]:
        """The request's run, and whether it is a new one; `alone`: don't look for another's."""
        key = share_key(request)
        run = None if key is None or alone else self._by_input.get(key)
        if run is not None:
            run.waiters[waiter.request_id] = waiter
            self._by_waiter[waiter.request_id] = run
            self.shared += 1
            return run, False
        run = Request(
            request.request_id,
            request.prompt.token_ids,
            request.params,
            rank,
            {waiter.request_id: waiter},
            request.adapter,
            request.prompt.cache_salt,
            key,
        )
        self._by_waiter[waiter.request_id] = run
        if key is not None:
            self._by_input.setdefault(key, run)
        return run, True

    def leave(self, request_ids: Iterable[str]) -> list[Request]:
        """Takes waiters away, unknown ones too; the runs that nobody waits for any more."""
        unwanted: list[Request] = []
        for request_id in request_ids:
            run = self._by_waiter.pop(request_id, None)
            if run is not None:
                del run.waiters[request_id]
                if not run.waiters:
                    unwanted.append(run)
        return unwanted

    def close(self, run: Request) -> None:
        """Nobody may join a run any more."""
        if run.share_key is not None and self._by_input.get(run.share_key) is run:
            del self._by_input[run.share_key]

    def end(self, run: Request) -> None:
        """A run is over; its waiters are left in it, to be answered."""
        self.close(run)
        for request_id in run.waiters:
            del self._by_waiter[request_id]
