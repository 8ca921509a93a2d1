"""Disentangled attention of the C++ kernel against its torch form, level by level."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from native_kernels import VARLEN_LEVELS, at_level, native, offsets, two_threads
from torch import Tensor

from cenote.kernels import backend
from cenote.kernels.attention import AttentionSpec
from cenote.kernels.disentangled import (
    Distances,
    DistanceVectors,
    disentangled_attention,
    disentangled_torch,
)
from cenote.layers.packed import PackedBatch

# bfloat16 against float32 on the same rounded inputs: weights and results have 8 bits.
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
# Two groups of query rows, tiles that are full, half full and nearly empty, and nothing.
LENGTHS = [5, 300, 17, 0, 64, 1, 33]
BUCKETS = Distances(span=32, buckets=32, max_distance=128)
PLAIN = Distances(span=21, buckets=0, max_distance=21)


@pytest.fixture(params=VARLEN_LEVELS, autouse=True)
def _level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(backend, "_native", native)
    torch.manual_seed(0)
    with at_level(request.param), two_threads():
        yield


def batch(lengths: list[int]) -> PackedBatch:
    tokens = torch.zeros(sum(lengths), dtype=torch.int32)
    return PackedBatch(tokens, tokens, cu_seqlens=offsets(lengths), seq_lens=lengths)


def spec_of(head_dim: int) -> AttentionSpec:
    return AttentionSpec(3, 3, head_dim, scale=(3 * head_dim) ** -0.5)


def parts(qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, as column slices."""
    q, k, v = qkv.chunk(3, dim=1)
    return q, k, v


def inputs(spec: AttentionSpec, distances: Distances, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The fused projection of `LENGTHS`, and both tables."""
    qkv = torch.randn(sum(LENGTHS), 3 * spec.q_size).to(dtype)
    return qkv, torch.randn(2, 2 * distances.span, spec.q_size).to(dtype)


@pytest.mark.parametrize("dtype", list(BOUNDS))
@pytest.mark.parametrize("head_dim", [24, 32])
@pytest.mark.parametrize("distances", [BUCKETS, PLAIN], ids=["buckets", "plain"])
@pytest.mark.parametrize("used", [(True, True), (True, False), (False, True), (False, False)])
def test_it_is_the_torch_form(
    dtype: torch.dtype, head_dim: int, distances: Distances, used: tuple[bool, bool]
) -> None:
    spec = spec_of(head_dim)
    qkv, tables = inputs(spec, distances, dtype)
    keys, queries = (x if wanted else None for x, wanted in zip(tables, used, strict=True))
    mask = (torch.rand(len(qkv)) > 0.3).to(torch.uint8)
    for key_mask in (None, mask):
        got = disentangled_attention(
            *parts(qkv),
            batch(LENGTHS),
            spec,
            DistanceVectors(distances, keys, queries),
            key_mask,
        )
        wanted = disentangled_torch(
            *parts(qkv.float()),
            batch(LENGTHS),
            spec,
            DistanceVectors(distances, keys, queries).to(torch.float32),
            key_mask,
        )
        assert got.dtype == dtype
        assert (got.float() - wanted).abs().max() <= BOUNDS[dtype]


@pytest.mark.parametrize("dtype", list(BOUNDS))
def test_a_sequence_alone_is_the_same(dtype: torch.dtype) -> None:
    spec = spec_of(32)
    qkv, tables = inputs(spec, BUCKETS, dtype)
    vectors = DistanceVectors(BUCKETS, tables[0], tables[1])
    together = disentangled_attention(*parts(qkv), batch(LENGTHS), spec, vectors)
    for threads in (1, 3):
        native.set_num_threads(threads)
        start = 0
        for length in LENGTHS:
            rows = slice(start, start + length)
            alone = disentangled_attention(*parts(qkv[rows]), batch([length]), spec, vectors)
            assert torch.equal(alone, together[rows])
            start += length


def test_wrong_sizes_are_refused() -> None:
    x = torch.zeros(3, 32)
    rows = torch.zeros(2 * 3 - 1, dtype=torch.int32)
    cu_seqlens = offsets([3])
    heads = {"kv_heads": 1, "distance_size": 3, "distance_count": 1}
    wrong: list[tuple[dict[str, int], type[Exception], str]] = [
        ({**heads, "distance_size": 2}, ValueError, "distance_size"),
        ({**heads, "distance_count": 0}, IndexError, "outside its table"),
        ({**heads, "kv_heads": 2, "heads": 4}, ValueError, "kv_heads"),
    ]
    for options, error, message in wrong:
        with pytest.raises(error, match=message):
            native.attention(
                *(x.data_ptr() for _ in range(4)),
                native.F32,
                *(32 for _ in range(4)),
                cu_seqlens.data_ptr(),
                1,
                **{"heads": 1, "head_dim": 8, "scale": 1, **options},
                distance_keys=x.data_ptr(),
                distance_rows=rows.data_ptr(),
            )
