"""Disentangled attention against its formula, sequence by sequence in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cenote.kernels import disentangled
from cenote.kernels.attention import AttentionSpec
from cenote.kernels.disentangled import Distances, DistanceVectors, disentangled_attention
from cenote.layers.packed import PackedBatch

SPEC = AttentionSpec(num_heads=3, num_kv_heads=3, head_dim=5, scale=0.3)
LENGTHS = [4, 1, 30, 4, 9, 4]


def packed(lengths: list[int]) -> PackedBatch:
    return PackedBatch(
        input_ids=torch.zeros(sum(lengths), dtype=torch.int32),
        positions=torch.cat([torch.arange(n) for n in lengths]).int(),
        cu_seqlens=torch.tensor([0, *lengths]).cumsum(0).int(),
        seq_lens=lengths,
    )


def formula(q: Tensor, k: Tensor, v: Tensor, vectors: DistanceVectors, mask: Tensor) -> Tensor:
    """One sequence, with a vector looked up for every pair of tokens."""
    n = q.shape[0]
    at = torch.arange(n)
    rows = vectors.distances.rows(at[:, None] - at[None, :])
    out = torch.zeros(n, SPEC.q_size, dtype=torch.float64)
    for head in range(SPEC.num_heads):
        part = slice(head * SPEC.head_dim, (head + 1) * SPEC.head_dim)
        a, b, c = (x[:, part].double() for x in (q, k, v))
        logits = a @ b.T
        if vectors.keys is not None:
            logits += torch.einsum("id,ijd->ij", a, vectors.keys[rows][..., part].double())
        if vectors.queries is not None:
            logits += torch.einsum("jd,ijd->ij", b, vectors.queries[rows][..., part].double())
        logits[:, mask == 0] = float("-inf")
        out[:, part] = (logits * SPEC.scale).softmax(-1).nan_to_num(0.0) @ c
    return out


@pytest.mark.parametrize("used", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("distances", [Distances(8, 8, 64), Distances(6, 0, 6)])
@pytest.mark.parametrize("at_once", [1, 1 << 23])
def test_attention_is_the_formula(
    used: tuple[bool, bool], distances: Distances, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disentangled, "_MAX_LOGITS", at_once)
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, sum(LENGTHS), SPEC.q_size, generator=generator)
    tables = torch.randn(2, 2 * distances.span, SPEC.q_size, generator=generator)
    vectors = DistanceVectors(
        distances, *(table if wanted else None for table, wanted in zip(tables, used, strict=True))
    )
    mask = (torch.rand(sum(LENGTHS), generator=generator) > 0.3).to(torch.uint8)
    mask[4] = 0  # the sequence of one token sees no key
    found = disentangled_attention(q, k, v, packed(LENGTHS), SPEC, vectors, mask)
    whole = disentangled_attention(q, k, v, packed(LENGTHS), SPEC, vectors)
    start = 0
    for n in LENGTHS:
        rows = slice(start, start + n)
        parts = q[rows], k[rows], v[rows], vectors
        assert (found[rows] - formula(*parts, mask[rows])).abs().max() <= 1e-5
        assert (whole[rows] - formula(*parts, torch.ones(n))).abs().max() <= 1e-5
        start += n
    assert (found[4] == 0).all()


def test_buckets_are_single_distances_near_and_shared_ones_far() -> None:
    rows = Distances(span=8, buckets=8, max_distance=64).rows(torch.arange(-80, 81))
    middle = rows[80 - 4 : 80 + 5]
    assert middle.tolist() == list(range(4, 13))
    assert (rows.diff() >= 0).all()
    assert rows.min() >= 0
    assert rows.max() <= 15
