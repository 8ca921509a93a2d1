"""Norms, embedding, rotary, pooling and MaxSim of the C++ library against plain torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_kernels import CODES, DTYPES, address, at_level, native, offsets, two_threads
from torch import Tensor
from torch.nn import functional

LEVELS = [
    level for level in native.isa_levels() if level in {"generic", "avx2", "avx512", "avx512_bf16"}
]
COLUMNS = [1, 3, 16, 33, 384, 1000]
LENGTHS = [1, 2, 0, 17, 64, 65, 200]
# A result rounded to bfloat16 is off by at most 2^-9 of its size.
BF16_ROUNDING = 2.0**-8


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    with at_level(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def _setting() -> Iterator[None]:
    torch.manual_seed(0)
    with two_threads():
        yield


def close(got: Tensor, wanted: Tensor, bound: float = 1e-5) -> bool:
    if got.dtype == torch.bfloat16:
        return torch.allclose(got.double(), wanted.double(), rtol=BF16_ROUNDING, atol=1e-5)
    return torch.allclose(got.double(), wanted.double(), rtol=0, atol=bound)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    scale = None if weight is None else weight.double()
    shift = None if bias is None else bias.double()
    return functional.layer_norm(x.double(), x.shape[-1:], scale, shift, eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x.double(), x.shape[-1:], weight.double(), eps)


# --- norms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", COLUMNS)
def test_layer_norm_of_a_sum(level: str, dtype: torch.dtype, columns: int) -> None:
    x = (torch.randn(50, columns) + 3).to(dtype)
    residual = torch.randn(50, columns)
    weight, bias = torch.randn(columns), torch.randn(columns)
    total, out, half = torch.empty(50, columns), torch.empty(50, columns), x.bfloat16().clone()
    native.layer_norm(
        address(x),
        CODES[dtype],
        50,
        columns,
        address(weight),
        address(bias),
        1e-5,
        residual=address(residual),
        sum_out=address(total),
        out_f32=address(out),
        out_bf16=address(half),
    )
    assert torch.equal(total, x.float() + residual)
    wanted = layer_norm(total, weight, bias, 1e-5)
    assert close(out, wanted)
    assert torch.equal(half, out.bfloat16())


@pytest.mark.parametrize("columns", COLUMNS)
def test_rms_norm_in_place(level: str, columns: int) -> None:
    x, weight = torch.randn(7, columns), torch.randn(columns)
    wanted = rms_norm(x, weight, 1e-6)
    native.rms_norm(address(x), native.F32, 7, columns, address(weight), 1e-6, out_f32=address(x))
    assert close(x, wanted)


def test_residual_without_the_sum_and_norm_without_parameters(level: str) -> None:
    x, residual, out = torch.randn(9, 40), torch.randn(9, 40), torch.empty(9, 40)
    native.layer_norm(
        address(x), native.F32, 9, 40, 0, 0, 1e-5, residual=address(residual), out_f32=address(out)
    )
    assert close(out, layer_norm(x + residual, None, None, 1e-5))


def test_norm_of_a_large_constant_row_is_small(level: str) -> None:
    x, out = torch.full((1, 384), 1000.0), torch.empty(1, 384)
    native.layer_norm(address(x), native.F32, 1, 384, 0, 0, 1e-5, out_f32=address(out))
    assert out.abs().max() < 0.05


@pytest.mark.parametrize("dtype", DTYPES)
def test_head_norm_leaves_the_other_columns_alone(level: str, dtype: torch.dtype) -> None:
    rows, heads, dim = 11, 3, 24
    x = torch.randn(rows, heads * dim + 10).to(dtype)
    weight = torch.randn(dim)
    wanted = rms_norm(x[:, : heads * dim].unflatten(1, (heads, dim)), weight, 1e-6).flatten(1)
    rest = x[:, heads * dim :].clone()
    native.head_norm(
        "rms", address(x), CODES[dtype], x.stride(0), rows, heads, dim, address(weight), 0, 1e-6
    )
    assert close(x[:, : heads * dim], wanted)
    assert torch.equal(x[:, heads * dim :], rest)


# --- embedding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
@pytest.mark.parametrize("hidden", [24, 384])
def test_embedding(level: str, dtype: torch.dtype, norm: str, hidden: int) -> None:
    words, places, kinds = (torch.randn(n, hidden).to(dtype) for n in (50, 20, 2))
    ids = torch.randint(50, (77,), dtype=torch.int32)
    positions = torch.randint(20, (77,), dtype=torch.int32)
    types = torch.randint(2, (77,), dtype=torch.int32)
    weight, bias = torch.randn(hidden), torch.randn(hidden)
    out, half = torch.empty(77, hidden), torch.empty(77, hidden, dtype=torch.bfloat16)
    native.embedding(
        address(ids),
        77,
        hidden,
        CODES[dtype],
        address(words),
        50,
        position_table=address(places),
        max_positions=20,
        positions=address(positions),
        type_table=address(kinds),
        type_count=2,
        types=address(types),
        scale=2.0,
        norm=norm,
        norm_weight=address(weight),
        norm_bias=address(bias) if norm == "layer" else 0,
        eps=1e-12,
        out_f32=address(out),
        out_bf16=address(half),
    )
    total = 2 * words[ids].double() + places[positions].double() + kinds[types].double()
    wanted = {
        "none": lambda: total,
        "layer": lambda: layer_norm(total, weight, bias, 1e-12),
        "rms": lambda: rms_norm(total, weight, 1e-12),
    }[norm]()
    assert close(out, wanted, 2e-5)
    assert torch.equal(half, out.bfloat16())


def test_words_alone_and_a_type_for_all() -> None:
    words, kinds = torch.randn(9, 20), torch.randn(2, 20)
    ids, out = torch.tensor([8, 0, 3], dtype=torch.int32), torch.empty(3, 20)
    native.embedding(address(ids), 3, 20, native.F32, address(words), 9, out_f32=address(out))
    assert torch.equal(out, words[ids])
    native.embedding(
        address(ids),
        3,
        20,
        native.F32,
        address(words),
        9,
        type_table=address(kinds),
        type_count=2,
        out_f32=address(out),
    )
    assert torch.equal(out, words[ids] + kinds[0])


@pytest.mark.parametrize("bad", [-1, 9])
def test_an_index_outside_its_table_is_an_error(bad: int) -> None:
    words, out = torch.randn(9, 20), torch.empty(1, 20)
    ids = torch.tensor([bad], dtype=torch.int32)
    with pytest.raises(IndexError, match="vocabulary"):
        native.embedding(address(ids), 1, 20, native.F32, address(words), 9, out_f32=address(out))


# --- rotary --------------------------------------------------------------------------------------


def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x: [tokens, heads, rotary_dim]."""
    cos, sin = cos.double()[:, None], sin.double()[:, None]
    if interleaved:
        a, b = x.double()[..., ::2], x.double()[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)
    a, b = x.double().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(64, 64), (32, 32), (80, 20), (24, 6)])
def test_rotary(
    level: str, dtype: torch.dtype, interleaved: bool, head_dim: int, rotary_dim: int
) -> None:
    tokens, heads = 19, 3
    x = torch.randn(tokens, (heads + 1) * head_dim).to(dtype)
    before = x.clone().unflatten(1, (heads + 1, head_dim))
    angles = torch.rand(40, rotary_dim // 2) * 6
    cos, sin = angles.cos(), angles.sin()
    positions = torch.randint(40, (tokens,), dtype=torch.int32)
    native.rotary(
        address(x),
        CODES[dtype],
        x.stride(0),
        tokens,
        heads,
        head_dim,
        rotary_dim,
        address(cos),
        address(sin),
        40,
        address(positions),
        interleaved,
    )
    after = x.unflatten(1, (heads + 1, head_dim))
    turned = before[:, :heads, :rotary_dim]
    wanted = rotated(turned, cos[positions], sin[positions], interleaved)
    assert close(after[:, :heads, :rotary_dim], wanted)
    assert torch.equal(after[:, :heads, rotary_dim:], before[:, :heads, rotary_dim:])
    assert torch.equal(after[:, heads], before[:, heads])


# --- pooling -------------------------------------------------------------------------------------


def mean_of(x: Tensor, power: float) -> Tensor:
    return x.sum(0) / len(x) ** power


def weighted_mean(x: Tensor, skip: int) -> Tensor:
    weights = torch.arange(skip + 1, len(x) + 1, dtype=torch.float64)[:, None]
    return (x[skip:] * weights).sum(0) / weights.sum()


POOLERS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "cls": lambda x, skip: x[0],
    "last": lambda x, skip: x[-1],
    "mean": lambda x, skip: mean_of(x[skip:], 1.0),
    "max": lambda x, skip: x[skip:].amax(0),
    "mean_sqrt_len": lambda x, skip: mean_of(x[skip:], 0.5),
    "weighted_mean": weighted_mean,
}


def pooled(
    method: str, x: Tensor, lengths: list[int], skip: Tensor | None = None, normalize: bool = False
) -> Tensor:
    out = torch.full((len(lengths), x.shape[1]), math.nan)
    cu = offsets(lengths)
    native.pool(
        method,
        address(x),
        CODES[x.dtype],
        x.stride(0),
        x.shape[1],
        address(cu),
        len(lengths),
        address(out),
        skip=address(skip),
        normalize=normalize,
    )
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", list(POOLERS))
@pytest.mark.parametrize("skipping", [False, True])
def test_pooling(level: str, dtype: torch.dtype, method: str, skipping: bool) -> None:
    x = torch.randn(sum(LENGTHS), 300).to(dtype)[:, :277]
    skip = torch.tensor([0, 1, 0, 5, 63, 1, 150], dtype=torch.int32) if skipping else None
    got = pooled(method, x, LENGTHS, skip)
    unit = pooled(method, x, LENGTHS, skip, normalize=True)
    for s, rows in enumerate(x.double().split(LENGTHS)):
        if len(rows) == 0:
            assert got[s].eq(0).all()
            continue
        wanted = POOLERS[method](rows, int(skip[s]) if skip is not None else 0)
        assert close(got[s], wanted)
        assert close(unit[s], functional.normalize(wanted, dim=0))


@pytest.mark.parametrize("method", ["mean", "max", "mean_sqrt_len", "weighted_mean"])
def test_a_prompt_that_is_everything_pools_to_zero(method: str) -> None:
    x = torch.randn(4, 8)
    assert pooled(method, x, [4], torch.tensor([9], dtype=torch.int32)).eq(0).all()


def test_pooling_a_sequence_alone_is_the_same(level: str) -> None:
    x = torch.randn(sum(LENGTHS), 384)
    together = pooled("mean", x, LENGTHS)
    for s, rows in enumerate(x.split(LENGTHS)):
        assert torch.equal(pooled("mean", rows, [LENGTHS[s]])[0], together[s])


@pytest.mark.parametrize("columns", COLUMNS)
def test_normalize(level: str, columns: int) -> None:
    x = torch.randn(9, columns)
    x[3] = 0
    x[4] *= 1e-13
    out = torch.empty_like(x)
    native.l2_normalize(address(x), address(out), 9, columns)
    assert close(out, functional.normalize(x.double(), dim=1))


# --- MaxSim --------------------------------------------------------------------------------------


def similarities(
    queries: list[Tensor], documents: list[Tensor], ranges: list[tuple[int, int]], explain: bool
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = [len(q) * (end - start) for q, (start, end) in zip(queries, ranges, strict=True)]
    scores = torch.full((sum(max(end - start, 0) for start, end in ranges),), math.nan)
    matches = max(sum(sizes), 0)
    rows, best = torch.full((matches,), -7, dtype=torch.int32), torch.full((matches,), 9.0)
    q, d, limits = torch.cat(queries), torch.cat(documents), torch.tensor(ranges, dtype=torch.int32)
    cu_queries = offsets([len(x) for x in queries])
    cu_documents = offsets([len(x) for x in documents])
    native.maxsim(
        address(q),
        address(cu_queries),
        len(queries),
        address(d),
        address(cu_documents),
        address(limits),
        q.shape[1],
        CODES[q.dtype],
        address(scores),
        best_row=address(rows) if explain else 0,
        best_score=address(best) if explain else 0,
    )
    return scores, rows, best


def pairs(
    queries: list[Tensor], documents: list[Tensor], ranges: list[tuple[int, int]]
) -> list[Tensor]:
    """The matrix of similarities of each pair, in the order of the scores."""
    return [
        query.double() @ document.double().T
        for query, (start, end) in zip(queries, ranges, strict=True)
        for document in documents[start:end]
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [2, 48, 96, 128])
def test_maxsim(level: str, dtype: torch.dtype, dim: int) -> None:
    def vectors(lengths: list[int]) -> list[Tensor]:
        return [functional.normalize(torch.randn(n, dim), dim=1).to(dtype) for n in lengths]

    queries, documents = vectors([32, 1, 16, 40, 70]), vectors([1, 7, 8, 9, 64, 130, 300])
    ranges = [(0, 7), (2, 5), (3, 3), (6, 7), (1, 4)]
    scores, rows, best = similarities(queries, documents, ranges, explain=True)
    plain, _, _ = similarities(queries, documents, ranges, explain=False)
    assert torch.equal(scores, plain)
    matrices = pairs(queries, documents, ranges)
    wanted = torch.stack([m.amax(1).sum() for m in matrices])
    # Inputs are the same in both; products of bfloat16 are exact in float32.
    assert close(scores, wanted, 5e-5)
    assert close(best, torch.cat([m.amax(1) for m in matrices]), 2e-6)
    for part, matrix in zip(rows.split([len(m) for m in matrices]), matrices, strict=True):
        reached = matrix.gather(1, part.long()[:, None])[:, 0]
        assert close(reached, matrix.amax(1), 2e-6)


def test_maxsim_of_nothing(level: str) -> None:
    query = torch.randn(3, 8)
    scores, rows, best = similarities([query], [torch.randn(0, 8)], [(0, 1)], explain=True)
    assert scores.tolist() == [0]
    assert rows.tolist() == [-1] * 3
    assert best.tolist() == [0] * 3
    assert similarities([query], [query], [(0, 0)], explain=False)[0].numel() == 0
    assert similarities([torch.randn(0, 8)], [query], [(0, 1)], explain=False)[0].tolist() == [0]


def test_a_document_alone_scores_the_same(level: str) -> None:
    query = torch.randn(32, 128)
    documents = [torch.randn(n, 128) for n in (5, 180, 64, 77)]
    together, _, _ = similarities([query], documents, [(0, 4)], explain=False)
    for i, document in enumerate(documents):
        alone, _, _ = similarities([query], [document], [(0, 1)], explain=False)
        assert torch.equal(alone[0], together[i])


def test_wrong_arguments_are_refused() -> None:
    x = torch.randn(4, 7).bfloat16()
    with pytest.raises(ValueError, match="even"):
        similarities([x], [x], [(0, 1)], explain=False)
    with pytest.raises(ValueError, match="reversed"):
        similarities([x[:, :6].contiguous()], [x[:, :6].contiguous()], [(1, 0)], explain=False)
    with pytest.raises(ValueError, match="median"):
        pooled("median", torch.randn(3, 3), [3])


# --- odd shapes ----------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 90), min_size=1, max_size=6),
    columns=st.integers(1, 150),
    method=st.sampled_from(list(POOLERS)),
    dtype=st.sampled_from(DTYPES),
)
def test_odd_pools(lengths: list[int], columns: int, method: str, dtype: torch.dtype) -> None:
    x = torch.randn(sum(lengths), columns).to(dtype)
    got = pooled(method, x, lengths)
    for s, rows in enumerate(x.double().split(lengths)):
        assert close(got[s], POOLERS[method](rows, 0) if len(rows) else torch.zeros(columns))


@settings(max_examples=25, deadline=None)
@given(
    query=st.integers(1, 80),
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=4),
    half_dim=st.integers(1, 70),
    dtype=st.sampled_from(DTYPES),
)
def test_odd_matches(query: int, lengths: list[int], half_dim: int, dtype: torch.dtype) -> None:
    q = torch.randn(query, 2 * half_dim).to(dtype) / half_dim**0.5
    documents = [torch.randn(n, 2 * half_dim).to(dtype) for n in lengths]
    scores, _, _ = similarities([q], documents, [(0, len(lengths))], explain=False)
    wanted = torch.stack([m.amax(1).sum() for m in pairs([q], documents, [(0, len(lengths))])])
    assert close(scores, wanted, 1e-3)
