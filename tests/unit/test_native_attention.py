"""The varlen attention kernel against float64, option by option and level by level."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_kernels import (
    CODES,
    DTYPES,
    VARLEN_LEVELS,
    address,
    at_level,
    native,
    offsets,
    two_threads,
)
from torch import Tensor

LENGTHS = [1, 2, 0, 15, 16, 17, 33, 130]
# float32: the kernel's own sums and its exponential. bfloat16, against float64 on the same rounded
# inputs: weights and results are rounded to 8 bits (relative 2^-9 each, of values up to about 3.5),
# and the errors of the weights average out.
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@dataclass(frozen=True)
class Options:
    causal: bool = False
    left: int = -1
    right: int = -1
    softcap: float = 0.0
    slopes: Tensor | None = None
    bias: Tensor | None = None
    key_mask: Tensor | None = None


@dataclass
class Pack:
    """Queries, keys and values side by side, as a fused projection leaves them."""

    lengths: list[int]
    heads: int = 2
    kv_heads: int = 2
    head_dim: int = 32
    dtype: torch.dtype = torch.float32
    key_lengths: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key_lengths = self.key_lengths or self.lengths
        self.cu = offsets(self.lengths)
        self.cu_keys = offsets(self.key_lengths)
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        if self.key_lengths is self.lengths:
            rows = torch.randn(sum(self.lengths), width + 2 * kv_width)
            self.q, self.k, self.v = rows.to(self.dtype).split([width, kv_width, kv_width], dim=1)
        else:
            self.q = torch.randn(sum(self.lengths), width).to(self.dtype)
            keys = torch.randn(sum(self.key_lengths), 2 * kv_width).to(self.dtype)
            self.k, self.v = keys.chunk(2, dim=1)

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5


@pytest.fixture(params=VARLEN_LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    with at_level(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def _setting() -> Iterator[None]:
    torch.manual_seed(0)
    with two_threads():
        yield


def run(pack: Pack, options: Options | None = None) -> Tensor:
    o = options or Options()
    out = torch.full((pack.q.shape[0], pack.heads * pack.head_dim), math.nan, dtype=pack.dtype)
    native.attention(
        address(pack.q),
        address(pack.k),
        address(pack.v),
        address(out),
        CODES[pack.dtype],
        pack.q.stride(0),
        pack.k.stride(0),
        pack.v.stride(0),
        out.stride(0),
        address(pack.cu),
        len(pack.lengths),
        pack.heads,
        pack.kv_heads,
        pack.head_dim,
        pack.scale,
        cu_seqlens_k=address(pack.cu_keys),
        causal=o.causal,
        window_left=o.left,
        window_right=o.right,
        softcap=o.softcap,
        alibi_slopes=address(o.slopes),
        bias=address(o.bias),
        bias_size=0 if o.bias is None else o.bias.shape[-1],
        key_mask=address(o.key_mask),
    )
    return out


def expected(pack: Pack, options: Options | None = None) -> Tensor:
    parts = [torch.empty(0, pack.heads * pack.head_dim, dtype=torch.float64)]
    for s in range(len(pack.lengths)):
        parts.append(one_sequence(pack, options or Options(), s))
    return torch.cat(parts)


def heads_of(x: Tensor, dim: int, repeats: int = 1) -> Tensor:
    return x.double().unflatten(1, (-1, dim)).transpose(0, 1).repeat_interleave(repeats, dim=0)


def one_sequence(pack: Pack, o: Options, s: int) -> Tensor:
    queries = slice(int(pack.cu[s]), int(pack.cu[s + 1]))
    keys = slice(int(pack.cu_keys[s]), int(pack.cu_keys[s + 1]))
    repeats = pack.heads // pack.kv_heads
    q = heads_of(pack.q[queries], pack.head_dim)
    k, v = (heads_of(x[keys], pack.head_dim, repeats) for x in (pack.k, pack.v))
    n, m = q.shape[1], k.shape[1]
    i, j = torch.arange(m - n, m)[:, None], torch.arange(m)[None]
    logits = q @ k.transpose(1, 2) * pack.scale
    if o.softcap:
        logits = o.softcap * torch.tanh(logits / o.softcap)
    if o.bias is not None:
        logits = logits + o.bias[:, m - n : m, :m].double()
    if o.slopes is not None:
        logits = logits - o.slopes.double()[:, None, None] * (i - j).abs()
    visible = torch.ones(n, m, dtype=torch.bool)
    if o.causal:
        visible &= j <= i
    if o.left >= 0:
        visible &= j >= i - o.left
    if o.right >= 0:
        visible &= j <= i + o.right
    if o.key_mask is not None:
        visible &= o.key_mask[keys].bool()[None]
    weights = logits.masked_fill(~visible, -math.inf).softmax(-1).nan_to_num(0)
    return (weights @ v).transpose(0, 1).flatten(1)


def check(pack: Pack, options: Options | None = None, highest: float = 1) -> None:
    """`highest`: about the size of the scores, whose own rounding the weights feel."""
    got = run(pack, options)
    assert got.isfinite().all()
    error = (got.double() - expected(pack, options)).abs()
    assert error.numel() == 0 or error.max() < BOUNDS[pack.dtype] + 5e-7 * highest


# --- against the oracle --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [8, 16, 32, 64, 80, 128, 256])
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_head_sizes(level: str, dtype: torch.dtype, head_dim: int, kv_heads: int) -> None:
    check(Pack(LENGTHS, kv_heads=kv_heads, head_dim=head_dim, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 33, 127, 128, 129, 512, 1000])
def test_lengths(level: str, dtype: torch.dtype, length: int) -> None:
    check(Pack([length], dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "options",
    [
        Options(causal=True),
        Options(left=5, right=3),
        Options(left=0, right=0),
        Options(left=64, right=64),
        Options(causal=True, left=7),
        Options(softcap=2.0),
        Options(slopes=torch.tensor([0.5, 0.01])),
        Options(bias=torch.randn(2, 300, 300, generator=torch.Generator().manual_seed(0))),
    ],
    ids=["causal", "window", "self", "wide window", "causal window", "softcap", "alibi", "bias"],
)
def test_options(level: str, dtype: torch.dtype, options: Options) -> None:
    check(Pack([*LENGTHS, 300], dtype=dtype), options)


def test_everything_at_once(level: str) -> None:
    pack = Pack([40, 300, 3], heads=4, kv_heads=2, head_dim=80)
    check(
        pack,
        Options(
            causal=True,
            left=50,
            softcap=3.0,
            slopes=torch.rand(4),
            bias=torch.randn(4, 300, 300),
            key_mask=(torch.rand(343) > 0.3).to(torch.uint8),
        ),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_key_mask_hides_keys_but_computes_their_rows(level: str, dtype: torch.dtype) -> None:
    pack = Pack(LENGTHS, dtype=dtype)
    mask = (torch.rand(sum(LENGTHS)) > 0.5).to(torch.uint8)
    check(pack, Options(key_mask=mask))
    assert run(pack, Options(key_mask=torch.zeros_like(mask))).eq(0).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_are_aligned_to_the_end_of_the_keys(level: str, dtype: torch.dtype) -> None:
    pack = Pack([1, 7, 40], heads=4, kv_heads=2, dtype=dtype, key_lengths=[300, 7, 129])
    for options in (Options(), Options(causal=True), Options(causal=True, left=20)):
        check(pack, options)


def test_no_tokens(level: str) -> None:
    assert run(Pack([])).shape[0] == 0
    assert run(Pack([0, 0, 0])).shape[0] == 0


def test_output_may_replace_the_queries(level: str) -> None:
    pack = Pack(LENGTHS)
    wanted = run(pack)
    strides = [x.stride(0) for x in (pack.q, pack.k, pack.v, pack.q)]
    native.attention(
        *(address(x) for x in (pack.q, pack.k, pack.v, pack.q)),
        CODES[pack.dtype],
        *strides,
        address(pack.cu),
        len(LENGTHS),
        pack.heads,
        pack.kv_heads,
        pack.head_dim,
        pack.scale,
    )
    assert torch.equal(pack.q, wanted)


def test_large_logits_stay_finite(level: str) -> None:
    pack = Pack([33, 200])
    pack.q.mul_(1e4)
    check(pack)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", [-900.0, -300.0, -61.0, 61.0, 300.0, 900.0])
def test_scores_that_are_all_high_or_low(level: str, dtype: torch.dtype, shift: float) -> None:
    pack = Pack([200, 33, 5], dtype=dtype)
    q, k = (x.unflatten(1, (-1, pack.head_dim)) for x in (pack.q, pack.k))
    q[..., 0], k[..., 0] = 1, shift / pack.scale
    check(pack, highest=abs(shift))
    check(pack, Options(causal=True), highest=abs(shift))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("spread", [10.0, 60.0, 2000.0])
def test_scores_far_apart(level: str, dtype: torch.dtype, spread: float) -> None:
    pack = Pack([300, 33, 2], dtype=dtype)
    pack.q.mul_(spread)
    check(pack, highest=5 * spread)
    check(pack, Options(left=40, right=40), highest=5 * spread)


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_sum_to_one(level: str, dtype: torch.dtype) -> None:
    pack = Pack([1, 300, 33], dtype=dtype)
    pack.q.mul_(4)
    pack.v.fill_(1)
    bound = 2e-6 if dtype == torch.float32 else 0
    assert (run(pack).float() - 1).abs().max() <= bound


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("part", ["q", "k", "v"])
def test_nan_reaches_what_it_touches_and_nothing_else(
    level: str, dtype: torch.dtype, part: str
) -> None:
    pack = Pack([40, 300, 33], dtype=dtype)
    wanted = run(pack)
    getattr(pack, part)[150, 3] = math.nan  # of the second sequence, first head
    got = run(pack)
    nan = got.isnan()
    touched = torch.zeros_like(nan)
    rows = slice(150, 151) if part == "q" else slice(40, 340)
    touched[rows, slice(3, 4) if part == "v" else slice(pack.head_dim)] = True
    assert torch.equal(nan, touched)
    assert torch.equal(got[~touched], wanted[~touched])


def test_wrong_sizes_are_refused() -> None:
    for wrong in (Pack([3], head_dim=12), Pack([3], head_dim=264), Pack([3], heads=3, kv_heads=2)):
        with pytest.raises(ValueError, match="head"):
            run(wrong)
    with pytest.raises(ValueError, match="bias_size"):
        run(Pack([3]), Options(bias=torch.zeros(2, 2, 2)))
    backwards = Pack([3])
    backwards.cu[1] = -1
    with pytest.raises(ValueError, match="decrease"):
        run(backwards)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan])
def test_a_scale_that_is_not_above_0_is_refused(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pack, "scale", scale)
    with pytest.raises(ValueError, match="scale must be above 0"):
        run(Pack([3]))


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=5),
    more_keys=st.integers(0, 150),
    head_dim=st.sampled_from([8, 24, 40, 64]),
    groups=st.sampled_from([1, 3]),
    causal=st.booleans(),
    left=st.integers(-1, 80),
    dtype=st.sampled_from(DTYPES),
)
def test_odd_shapes(
    lengths: list[int],
    more_keys: int,
    head_dim: int,
    groups: int,
    causal: bool,
    left: int,
    dtype: torch.dtype,
) -> None:
    key_lengths = [n + more_keys for n in lengths]
    pack = Pack(lengths, groups * 2, 2, head_dim, dtype, key_lengths)
    check(pack, Options(causal=causal, left=left))


# --- the same, bit for bit -----------------------------------------------------------------------

MANY = [5, 300, 17, 64, 1, 700, 33]
SETTINGS = [Options(), Options(left=20, right=20), Options(causal=True), Options(softcap=2.0)]


def alone(pack: Pack, s: int) -> Pack:
    """Sequence `s` as a pack of its own."""
    rows = slice(int(pack.cu[s]), int(pack.cu[s + 1]))
    single = replace(pack, lengths=[pack.lengths[s]], key_lengths=[])
    single.q, single.k, single.v = pack.q[rows], pack.k[rows], pack.v[rows]
    return single


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", SETTINGS, ids=["plain", "window", "causal", "softcap"])
def test_a_sequence_alone_is_the_same(level: str, dtype: torch.dtype, options: Options) -> None:
    pack = Pack(MANY, heads=3, kv_heads=3, dtype=dtype)
    together = run(pack, options).split(MANY)
    for threads in (1, 2, 3):
        native.set_num_threads(threads)
        for s in range(len(MANY)):
            assert torch.equal(run(alone(pack, s), options), together[s])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [-1, 20])
def test_queries_in_chunks_are_the_same(level: str, dtype: torch.dtype, left: int) -> None:
    options = Options(causal=True, left=left)
    whole = Pack([700], dtype=dtype)
    wanted = run(whole, options)
    start = 0
    for size in (1, 7, 31, 64, 100, 129, 368):
        end = start + size
        chunk = replace(whole, lengths=[size], key_lengths=[end])
        chunk.q, chunk.k, chunk.v = whole.q[start:end], whole.k[:end], whole.v[:end]
        assert torch.equal(run(chunk, options), wanted[start:end])
        start = end
    assert start == 700


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", SETTINGS, ids=["plain", "window", "causal", "softcap"])
def test_a_row_beside_one_of_high_scores_is_the_same(
    level: str, dtype: torch.dtype, options: Options
) -> None:
    pack = Pack([300, 33], heads=3, kv_heads=3, dtype=dtype)
    wanted = run(pack, options)
    pack.q[[7, 290, 310]] *= 1000
    got = run(pack, options)
    others = torch.ones(333, dtype=torch.bool)
    others[[7, 290, 310]] = False
    assert torch.equal(got[others], wanted[others])
    assert not torch.equal(got[7], wanted[7])


def test_levels_that_differ_in_products_only_share_these_kernels() -> None:
    before = native.isa()
    try:
        for name in native.isa_levels():
            native.set_isa(name)
            check(Pack([33, 5], dtype=torch.bfloat16))
    finally:
        native.set_isa(before)
