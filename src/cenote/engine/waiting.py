"""The waiting requests in the order of their rank. It knows no budget and no score groups.

A heap with lazy removal: an entry counts only while its request says that it is the current one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from cenote.engine.request import Request

_GONE = -1


class WaitingQueue:
    """A priority queue with removal. Pushing a request that is in it moves it to its new rank."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._entries = 0
        self._live = 0
        self.num_tokens = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[Request]:
        """The waiting requests in no particular order."""
        return (request for _, entry, request in self._heap if request.queue_entry == entry)

    def push(self, request: Request) -> None:
        self.discard(request)
        request.queue_entry = self._entries
        heapq.heappush(self._heap, (request.rank, self._entries, request))
        self._entries += 1
        self._live += 1
        self.num_tokens += request.num_left

    def pop(self) -> Request | None:
        """The request with the smallest rank (the first pushed of equals), or None if empty."""
        while self._heap:
            _, entry, request = heapq.heappop(self._heap)
            if request.queue_entry == entry:
                self._forget(request)
                return request
        return None

    def discard(self, request: Request) -> None:
        """Takes a request out; nothing happens if it isn't in."""
        if request.queue_entry != _GONE:
            self._forget(request)
            self._sweep()

    def _forget(self, request: Request) -> None:
        request.queue_entry = _GONE
        self._live -= 1
        self.num_tokens -= request.num_left

    def _sweep(self) -> None:
        """Drops dead entries when they are the most part, so that mass aborts free their memory."""
        if len(self._heap) > 2 * self._live + 64:
            self._heap = [item for item in self._heap if item[2].queue_entry == item[1]]
            heapq.heapify(self._heap)
