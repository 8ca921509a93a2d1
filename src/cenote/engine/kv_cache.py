"""Which blocks of a causal model's pool of keys and values are in use, and by how many.

A block is a number; what lies in it is the runner's, and which prompt it belongs to the caller's.
It knows no tensors, no tokens and no requests.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable


class BlockPool:
    """Blocks 0 … num_blocks - 1 with reference counts.

    A block that nobody uses is empty, or keeps its contents for whoever may want them again. Empty
    blocks are given out first (the last used first: they are warm), then those never used, then
    the ones that keep something, those that were let go longest ago first.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._references: dict[int, int] = {}
        self._empty: list[int] = []
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._untouched = 0  # no block from this one on was ever used

    @property
    def num_used(self) -> int:
        return len(self._references)

    @property
    def num_free(self) -> int:
        """Blocks that can be given out, those that keep something included."""
        return self.num_blocks - len(self._references)

    @property
    def num_kept(self) -> int:
        """Free blocks that keep their contents."""
        return len(self._kept)

    def references(self, block: int) -> int:
        """How many use a block."""
        return self._references.get(block, 0)

    def allocate(self, count: int) -> list[int]:
        """Blocks to be written, each with one reference; what they kept is lost.

        Ask `num_free` first: RuntimeError where there are not enough.
        """
        if count > self.num_free:
            raise RuntimeError(f"{count} blocks wanted, {self.num_free} free; this is a bug.")
        blocks = [self._next() for _ in range(count)]
        self._references.update(dict.fromkeys(blocks, 1))
        return blocks

    def _next(self) -> int:
        if self._empty:
            return self._empty.pop()
        if self._untouched < self.num_blocks:
            self._untouched += 1
            return self._untouched - 1
        return self._kept.popitem(last=False)[0]

    def retain(self, blocks: Iterable[int]) -> None:
        """One more reference to each: to blocks in use, or free ones that keep their contents."""
        for block in blocks:
            if block in self._references:
                self._references[block] += 1
            else:
                del self._kept[block]
                self._references[block] = 1

    def release(self, block: int, *, keep: bool) -> None:
        """One reference less. `keep`: the contents may be wanted again once it was the last."""
        left = self._references[block] - 1
        if left:
            self._references[block] = left
            return
        del self._references[block]
        if keep:
            self._kept[block] = None
        else:
            self._empty.append(block)

    def drop(self, block: int) -> None:
        """A block's contents are worth nothing any more; nothing happens if it keeps none."""
        if block in self._kept:
            del self._kept[block]
            self._empty.append(block)
