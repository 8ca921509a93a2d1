"""The waiting requests in the order of their rank. It knows no budget and no score groups.

A heap with lazy removal: an entry counts only while its request says that it is the current one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from cenote.engine.request import Request

_GONE = -1


class WaitingQueue:
    """A priority queue with removal. Pushing a request that is in it moves it to its new rank.

    Small requests have a heap of their own, so that they can be taken past the others.
    """

    def __init__(self) -> None:
        self._heaps: dict[bool, list[tuple[float, int, Request]]] = {True: [], False: []}
        self._live = {True: 0, False: 0}
        self._entries = 0
        self.num_tokens = 0

    def __len__(self) -> int:
        return self._live[True] + self._live[False]

    def __iter__(self) -> Iterator[Request]:
        """The waiting requests in no particular order."""
        for heap in self._heaps.values():
            yield from (request for _, entry, request in heap if request.queue_entry == entry)

    def has(self, *, small: bool) -> bool:
        """Whether a small request waits, or one that isn't."""
        return self._live[small] > 0

    def push(self, request: Request) -> None:
        self.discard(request)
        request.queue_entry = self._entries
        request.queued_as_small = request.is_small
        entry = (request.rank, self._entries, request)
        heapq.heappush(self._heaps[request.queued_as_small], entry)
        self._entries += 1
        self._live[request.queued_as_small] += 1
        self.num_tokens += request.num_left

    def pop(self, *, small_only: bool = False) -> Request | None:
        """The request with the smallest rank (the first pushed of equals), or None if there is
        none."""
        heaps = [self._heaps[True]] if small_only else list(self._heaps.values())
        for heap in heaps:
            while heap and heap[0][2].queue_entry != heap[0][1]:
                heapq.heappop(heap)
        first = min((heap for heap in heaps if heap), key=lambda heap: heap[0][:2], default=None)
        if first is None:
            return None
        request = heapq.heappop(first)[2]
        self._forget(request)
        return request

    def discard(self, request: Request) -> None:
        """Takes a request out; nothing happens if it isn't in."""
        if request.queue_entry != _GONE:
            self._forget(request)
            self._sweep(request.queued_as_small)

    def _forget(self, request: Request) -> None:
        request.queue_entry = _GONE
        self._live[request.queued_as_small] -= 1
        self.num_tokens -= request.num_left

    def _sweep(self, small: bool) -> None:
        """Drops dead entries when they are the most part, so that mass aborts free their memory."""
        heap = self._heaps[small]
        if len(heap) > 2 * self._live[small] + 64:
            self._heaps[small] = [item for item in heap if item[2].queue_entry == item[1]]
            heapq.heapify(self._heaps[small])
