"""Sequences of a pack that have the same length, so that one call takes them without padding."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Sequences with the same number of queries and of keys, by the rows where they start."""

    queries: int
    keys: int
    query_starts: list[int]
    key_starts: list[int]


@lru_cache(maxsize=4)
def equal_lengths(query_lens: tuple[int, ...], key_lens: tuple[int, ...]) -> tuple[Group, ...]:
    """Equal shapes together. Cached, since every layer of a step asks for the same."""
    groups: dict[tuple[int, int], Group] = {}
    query_start = key_start = 0
    for queries, keys in zip(query_lens, key_lens, strict=True):
        group = groups.setdefault((queries, keys), Group(queries, keys, [], []))
        group.query_starts.append(query_start)
        group.key_starts.append(key_start)
        query_start += queries
        key_start += keys
    return tuple(group for group in groups.values() if group.queries)


def rows_at(starts: list[int], length: int, device: torch.device) -> Tensor | slice:
    """The rows of sequences: a slice where they lie side by side, else int64 `[rows]`."""
    if starts[-1] - starts[0] == length * (len(starts) - 1):
        return slice(starts[0], starts[-1] + length)
    first = torch.tensor(starts, device=device)
    return (first[:, None] + torch.arange(length, device=device)).reshape(-1)
