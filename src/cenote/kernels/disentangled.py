"""Disentangled attention (He et al. 2020, arXiv:2006.03654): content and distance have own vectors.

To a query's product with a key come its product with the vector of their distance, and the key's
product with another such vector. These terms differ from sequence to sequence, so they can't be
a bias table. It knows nothing of projections, or of where the distances' vectors come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from cenote.kernels.attention import AttentionSpec, Lengths
from cenote.kernels.groups import equal_lengths, rows_at

# Logits that exist at once: more sequences of a group than fit are taken in several calls.
_MAX_LOGITS = 1 << 23


@dataclass(frozen=True, slots=True)
class Distances:
    """Which row of a table of `2 · span` rows a distance (query - key position) has.

    The row is `span + distance`, kept inside the table. With `buckets` (even, 0: none), distances
    beyond half of it share rows that widen logarithmically up to `max_distance`.
    """

    span: int
    buckets: int
    max_distance: int

    def rows(self, distances: Tensor) -> Tensor:
        """int64 rows of int64 `distances`. In float32, as the reference does: a distance on a
        boundary has to fall on the same side."""
        if self.buckets:
            middle = self.buckets // 2
            away = distances.abs().clamp(min=middle)
            widest = torch.tensor((self.max_distance - 1) / middle).log()
            steps = (away / middle).log() / widest * (middle - 1)
            far = (steps.ceil() + middle).long() * distances.sign()
            distances = torch.where(distances.abs() <= middle, distances, far)
        return (distances + self.span).clamp(0, 2 * self.span - 1)


@dataclass(frozen=True, slots=True)
class DistanceVectors:
    """Tables `[2 · span, heads · dim]`: `keys` meet queries, `queries` meet keys; None: unused."""

    distances: Distances
    keys: Tensor | None
    queries: Tensor | None


def disentangled_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Lengths,
    spec: AttentionSpec,
    vectors: DistanceVectors,
    key_mask: Tensor | None = None,
) -> Tensor:
    """softmax(scale · (q·kᵀ + q·keys[distance] + k·queries[distance])) · v → `[T, heads · dim]`.

    q, k and v are `[T, heads · dim]`, the result has q's dtype. The softmax is in float32; on CPUs
    everything is, since oneDNN keeps a program for each shape of a 16-bit product that it ever saw.
    `key_mask` uint8 `[T]`, 0: hidden. Equal lengths share a call; nothing is padded.
    """
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    kind = torch.float32 if q.is_cpu else q.dtype
    tables = (_by_head(vectors.keys, spec, kind), _by_head(vectors.queries, spec, kind))
    seq_lens = tuple(lengths.seq_lens)
    for group in equal_lengths(seq_lens, seq_lens):
        n = group.queries
        index, used = _index(vectors.distances, n, q.device)
        at_once = max(_MAX_LOGITS // (spec.num_heads * n * n), 1)
        for first in range(0, len(group.query_starts), at_once):
            starts = group.query_starts[first : first + at_once]
            rows = rows_at(starts, n, q.device)
            shape = (len(starts), n, spec.num_heads, spec.head_dim)
            parts = [x[rows].to(kind).view(shape).transpose(1, 2) for x in (q, k, v)]
            logits = _logits(parts[0], parts[1], tables, index, used) * spec.scale
            if key_mask is not None:
                hidden = key_mask[rows].view(len(starts), 1, 1, n) == 0
                logits = logits.masked_fill(hidden, float("-inf"))
            weights = logits.softmax(dim=-1)
            if key_mask is not None:
                weights = weights.nan_to_num(0.0)  # a query without a key gives zeros
            result = weights.to(kind) @ parts[2]
            out[rows] = result.transpose(1, 2).reshape(len(starts) * n, spec.q_size).to(q.dtype)
    return out


def _logits(
    q: Tensor, k: Tensor, tables: tuple[Tensor | None, Tensor | None], index: Tensor, used: slice
) -> Tensor:
    """The three products' sum, float32 `[count, heads, n, n]`; q and k `[count, heads, n, d]`."""
    logits = (q @ k.transpose(-1, -2)).float()
    for side, table in zip((q, k), tables, strict=True):
        if table is None:
            continue
        by_distance = side @ table[:, used].transpose(-1, -2)  # [count, heads, n, rows used]
        # A key's products lie in its own row, so they are picked by key and then turned.
        where = (index if side is q else index.T).expand(logits.shape)
        picked = by_distance.gather(-1, where)
        logits += picked if side is q else picked.transpose(-1, -2)
    return logits


def _by_head(table: Tensor | None, spec: AttentionSpec, kind: torch.dtype) -> Tensor | None:
    """`[rows, heads · dim] → [heads, rows, dim]`."""
    if table is None:
        return None
    return table.to(kind).view(-1, spec.num_heads, spec.head_dim).transpose(0, 1)


def _index(distances: Distances, length: int, device: torch.device) -> tuple[Tensor, slice]:
    """For each query and key the row, counted from the first used one, int64 `[n, n]`; and which
    rows are used."""
    line, first = _line(distances, length)
    used = slice(first, first + int(line[0]) + 1)
    # The line starts at the largest distance: query q reads n rows from n - 1 - q on.
    return line.to(device).unfold(0, length, 1).flip(0), used


@lru_cache(maxsize=1024)
def _line(distances: Distances, length: int) -> tuple[Tensor, int]:
    """Rows of the distances n - 1 down to 1 - n, less the least of them; and the least."""
    rows = distances.rows(torch.arange(length - 1, -length, -1))
    return rows - rows[-1], int(rows[-1])
