"""Which blocks hold the keys and values of which prefix, by chained hashes.

A block's hash covers its own tokens and, through its parent's, all before it; the chain starts with
what else the numbers depend on. So equal hashes mean equal contents, and a prompt under another
salt, adapter or revision shares nothing. Only full blocks have a hash. It knows no requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from cenote.engine.kv_cache import BlockPool


def first_hash(
    model: str, adapter: str | None = None, salt: str | None = None, media: Sequence[str] = ()
) -> bytes:
    """Where a chain starts. `model` names the weights; `media` are hashes of the prompt's images
    and sounds, in their order."""
    return hashlib.sha256(msgspec.msgpack.encode((model, adapter, salt, list(media)))).digest()


def block_hashes(token_ids: Sequence[int], block_size: int, first: bytes) -> Iterator[bytes]:
    """A hash for every full block of a prompt, in order."""
    tokens = np.asarray(token_ids, dtype="<i4").tobytes()
    width = 4 * block_size
    parent = first
    for end in range(width, len(tokens) + 1, width):
        parent = hashlib.sha256(parent + tokens[end - width : end]).digest()
        yield parent


class PrefixCache:
    """Finds blocks of `pool` by hash. `hits` of `queries` tokens that were looked up since the
    start were there."""

    def __init__(self, pool: BlockPool) -> None:
        self.hits = 0
        self.queries = 0
        self._pool = pool
        self._blocks: dict[bytes, int] = {}
        self._hashes: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: int) -> bool:
        """Whether a block can be found."""
        return block in self._hashes

    def find(self, hashes: Sequence[bytes]) -> list[int]:
        """The blocks of the longest prefix that is there."""
        found = []
        for one in hashes:
            block = self._blocks.get(one)
            if block is None:
                break
            found.append(block)
        return found

    def put(self, one: bytes, block: int) -> None:
        """Makes a block known that is in use. Where another holds the same, that one stays."""
        if one not in self._blocks:
            self._blocks[one] = block
            self._hashes[block] = one

    def forget(self, block: int) -> None:
        """A block can't be found any more; nothing happens if it can't now."""
        one = self._hashes.pop(block, None)
        if one is not None:
            del self._blocks[one]
            self._pool.drop(block)

    def clear(self) -> None:
        """Forgets all. Blocks in use stay in use; they are empty when they are let go."""
        for block in list(self._hashes):
            self.forget(block)
