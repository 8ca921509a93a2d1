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

from cenote.kernels.attention import (
    AttentionSpec,
    AttentionTerms,
    Lengths,
    attention_native,
    native_for,
)
from cenote.kernels.groups import equal_lengths, rows_at

# Logits that exist at once: more sequences of a group than fit are taken in several calls.
_MAX_LOGITS = 1 << 22
# Tables of rows are made for lengths in steps of this.
_SIZE_STEP = 64


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

    def to(self, dtype: torch.dtype) -> DistanceVectors:
        """The same in another dtype; nothing is copied where it is that already."""
        keys, queries = (None if x is None else x.to(dtype) for x in (self.keys, self.queries))
        return DistanceVectors(self.distances, keys, queries)


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

    q, k and v are `[T, heads · dim]`, they may be column slices of one product; the result has q's
    dtype. The softmax is in float32. `key_mask` uint8 `[T]`, 0: hidden.
    """
    module = native_for(q, spec)
    if module is None:
        return disentangled_torch(q, k, v, lengths, spec, vectors, key_mask)
    terms = AttentionTerms(key_mask=key_mask)
    if vectors.keys is None and vectors.queries is None:
        return attention_native(module, q, k, v, lengths, spec, terms)
    vectors = vectors.to(q.dtype)
    size = (max(lengths.seq_lens, default=0) // _SIZE_STEP + 1) * _SIZE_STEP
    rows = _row_table(vectors.distances, size)
    return attention_native(
        module,
        q,
        k,
        v,
        lengths,
        spec,
        terms,
        distance_keys=0 if vectors.keys is None else vectors.keys.data_ptr(),
        distance_queries=0 if vectors.queries is None else vectors.queries.data_ptr(),
        distance_count=2 * vectors.distances.span,
        distance_rows=rows.data_ptr(),
        distance_size=size,
    )


def disentangled_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lengths: Lengths,
    spec: AttentionSpec,
    vectors: DistanceVectors,
    key_mask: Tensor | None = None,
) -> Tensor:
    """The oracle of `disentangled_attention`: equal lengths share a call; nothing is padded.

    On CPUs all is in float32, since oneDNN keeps a program for each shape of a 16-bit product that
    it ever saw.
    """
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    kind = torch.float32 if q.is_cpu else q.dtype
    seq_lens = tuple(lengths.seq_lens)
    for group in equal_lengths(seq_lens, seq_lens):
        n = group.queries
        keys, queries = _rows_by_distance(vectors, n, spec, kind)
        at_once = max(_MAX_LOGITS // (spec.num_heads * n * n), 1)
        for first in range(0, len(group.query_starts), at_once):
            starts = group.query_starts[first : first + at_once]
            rows = rows_at(starts, n, q.device)
            shape = (len(starts), n, spec.num_heads, spec.head_dim)
            # Heads first, so that all sequences share a product with their head's table.
            parts = [
                x[rows].to(kind).view(shape).permute(2, 0, 1, 3).contiguous() for x in (q, k, v)
            ]
            logits = (parts[0] @ parts[1].transpose(-1, -2)).float()  # [heads, count, n, n]
            if keys is not None:
                logits += _by_key(parts[0], keys)
            if queries is not None:
                logits += _by_key(parts[1], queries).transpose(-1, -2)
            logits *= spec.scale
            if key_mask is not None:
                hidden = key_mask[rows].view(1, len(starts), 1, n) == 0
                logits = logits.masked_fill_(hidden, float("-inf"))
            weights = logits.softmax(dim=-1)
            if key_mask is not None:
                weights = weights.nan_to_num_(0.0)  # a query without a key gives zeros
            result = weights.to(kind) @ parts[2]
            result = result.permute(1, 2, 0, 3).reshape(len(starts) * n, spec.q_size)
            out[rows] = result.to(q.dtype)
    return out


def _by_key(side: Tensor, table: Tensor) -> Tensor:
    """Products of row i with the vector of its distance to row j, `[heads, count, n, n]`.

    `side` is `[heads, count, n, d]`, `table` `[heads, d, 2n - 1]` in the order in which row n - 1
    - i of the distances starts the ones of row i. So they are a slanted view, nothing is gathered.
    """
    heads, count, n, _ = side.shape
    products = side.flatten(1, 2) @ table  # [heads, count · n, 2n - 1]
    width = 2 * n - 1
    strides = (count * n * width, n * width, width - 1, 1)
    return products.as_strided((heads, count, n, n), strides, n - 1)


def _rows_by_distance(
    vectors: DistanceVectors, length: int, spec: AttentionSpec, kind: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """The tables with a column for each distance (query - key), `[heads, d, 2 · length - 1]`.

    For keys from the largest distance down, for queries, which are met by keys, upwards.
    """
    falling = _rows(vectors.distances, length)

    def laid_out(table: Tensor | None, rows: Tensor) -> Tensor | None:
        if table is None:
            return None
        picked = table[rows.to(table.device)].to(kind)
        return picked.view(-1, spec.num_heads, spec.head_dim).permute(1, 2, 0)

    return laid_out(vectors.keys, falling), laid_out(vectors.queries, falling.flip(0))


@lru_cache(maxsize=1024)
def _rows(distances: Distances, length: int) -> Tensor:
    """The row of each distance from length - 1 down to 1 - length."""
    return distances.rows(torch.arange(length - 1, -length, -1))


@lru_cache(maxsize=256)
def _row_table(distances: Distances, size: int) -> Tensor:
    """The row of each distance from 1 - size up to size - 1, int32."""
    return distances.rows(torch.arange(1 - size, size)).int()
