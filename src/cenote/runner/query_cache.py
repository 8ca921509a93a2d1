"""Late-interaction queries that may be reused across requests, bounded by bytes.

Keys are made by the processors and hold everything that the vectors depend on: the prompt, the
model's revision, the template and the cache salt. It knows no requests.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class QueryVectors:
    """A query's token vectors `[rows, dim]` float32 and the rows' positions in its prompt."""

    vectors: Tensor
    positions: Tensor | None = None

    @property
    def nbytes(self) -> int:
        positions = 0 if self.positions is None else self.positions.nbytes
        return int(self.vectors.nbytes + positions)


class QueryCache:
    """Least recently used out first. `hits` and `misses` count `get` since the start."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.nbytes = 0
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[str, QueryVectors] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> QueryVectors | None:
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self._entries.move_to_end(key)
        self.hits += 1
        return entry

    def put(self, key: str, entry: QueryVectors) -> None:
        """Keeps an entry; one that is larger than the whole cache is not kept."""
        if entry.nbytes > self.capacity:
            return
        old = self._entries.pop(key, None)
        self.nbytes += entry.nbytes - (0 if old is None else old.nbytes)
        self._entries[key] = entry
        while self.nbytes > self.capacity:
            _, oldest = self._entries.popitem(last=False)
            self.nbytes -= oldest.nbytes

    def clear(self) -> None:
        self._entries.clear()
        self.nbytes = 0
