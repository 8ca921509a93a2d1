"""The block pool and the prefix cache: who gets which block, what can be found, and what can't."""

from __future__ import annotations

import pytest

from cenote.engine.kv_cache import BlockPool
from cenote.engine.prefix_cache import PrefixCache, block_hashes, first_hash

ROOT = first_hash("model")


def hashes(tokens: list[int], first: bytes = ROOT, size: int = 4) -> list[bytes]:
    return list(block_hashes(tokens, size, first))


# --- the pool -----------------------------------------------------------------------------------


def test_blocks_are_given_once_until_they_are_let_go() -> None:
    pool = BlockPool(4)
    taken = pool.allocate(3)
    assert len(set(taken)) == 3
    assert (pool.num_used, pool.num_free) == (3, 1)
    pool.release(taken[0], keep=False)
    assert sorted([*pool.allocate(2), *taken[1:]]) == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="1 blocks wanted, 0 free"):
        pool.allocate(1)


def test_a_block_is_free_after_its_last_reference() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.retain([block])
    pool.release(block, keep=False)
    assert pool.references(block) == 1
    pool.release(block, keep=False)
    assert pool.references(block) == 0
    with pytest.raises(KeyError):
        pool.release(block, keep=False)


def test_only_what_keeps_something_or_is_in_use_can_be_retained() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.release(block, keep=True)
    pool.retain([block])
    assert pool.references(block) == 1
    pool.release(block, keep=False)
    with pytest.raises(KeyError):
        pool.retain([block])


def test_empty_blocks_go_first_then_new_ones_then_the_longest_let_go() -> None:
    pool = BlockPool(5)
    a, b, c, d = pool.allocate(4)
    for block, keep in ((c, True), (a, True), (b, False)):
        pool.release(block, keep=keep)
    pool.retain([a])
    pool.release(a, keep=True)  # used again: after c now
    assert [pool.allocate(1)[0] for _ in range(4)] == [b, 4, c, a]
    assert pool.references(d) == 1


def test_a_dropped_block_is_empty() -> None:
    pool = BlockPool(2)
    a, _ = pool.allocate(2)
    pool.release(a, keep=True)
    assert pool.num_kept == 1
    pool.drop(a)
    assert (pool.num_kept, pool.num_free) == (0, 1)
    assert pool.allocate(1) == [a]


# --- hashes -------------------------------------------------------------------------------------


def test_only_full_blocks_have_a_hash() -> None:
    assert [len(hashes([1] * n)) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]


def test_a_hash_covers_all_tokens_before_it() -> None:
    one, other = hashes([1, 2, 3, 4, 5, 6, 7, 8]), hashes([9, 2, 3, 4, 5, 6, 7, 8])
    assert not set(one) & set(other)
    longer = hashes([1, 2, 3, 4, 5, 6, 7, 9])
    assert longer[0] == one[0]
    assert longer[1] != one[1]


def test_equal_blocks_at_other_places_differ() -> None:
    first, second = hashes([1, 2, 3, 4, 1, 2, 3, 4])
    assert first != second


def test_salt_adapter_model_and_media_start_chains_of_their_own() -> None:
    starts = [
        first_hash("model"),
        first_hash("other"),
        first_hash("model", "lora"),
        first_hash("model", None, "salt"),
        first_hash("model", "salt"),
        first_hash("model", "lora", "salt"),
        first_hash("model", None, None, ["image"]),
        first_hash("model", None, None, ["image", "image"]),
    ]
    assert len({hashes([1, 2, 3, 4], start)[0] for start in starts}) == len(starts)
    assert first_hash("model", None, "salt") == first_hash("model", None, "salt")


# --- finding ------------------------------------------------------------------------------------


def test_the_longest_known_prefix_is_found() -> None:
    pool = BlockPool(8)
    cache = PrefixCache(pool)
    made = hashes(list(range(12)))
    blocks = pool.allocate(3)
    for one, block in zip(made[:2], blocks, strict=False):
        cache.put(one, block)
    assert cache.find(made) == blocks[:2]
    assert cache.find(hashes([7] * 12)) == []
    assert (blocks[0] in cache, blocks[2] in cache) == (True, False)


def test_a_gap_ends_the_prefix() -> None:
    pool = BlockPool(8)
    cache = PrefixCache(pool)
    made = hashes(list(range(12)))
    for one, block in zip(made, pool.allocate(3), strict=True):
        cache.put(one, block)
    cache.forget(1)
    assert cache.find(made) == [0]


def test_of_equal_blocks_the_first_stays_known() -> None:
    pool = BlockPool(8)
    cache = PrefixCache(pool)
    (one,) = hashes([1, 2, 3, 4])
    first, second = pool.allocate(2)
    cache.put(one, first)
    cache.put(one, second)
    assert cache.find([one]) == [first]
    cache.forget(second)
    assert cache.find([one]) == [first]


def test_what_is_cleared_is_empty_once_it_is_let_go() -> None:
    pool = BlockPool(2)
    cache = PrefixCache(pool)
    held, kept = pool.allocate(2)
    for one, block in zip(hashes(list(range(8))), (held, kept), strict=True):
        cache.put(one, block)
    pool.release(kept, keep=kept in cache)
    cache.clear()
    assert len(cache) == 0
    assert (pool.num_kept, pool.num_used) == (0, 1)
    pool.release(held, keep=held in cache)
    assert pool.num_kept == 0
