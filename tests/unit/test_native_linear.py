"""The fused products of the C++ library against float64, shape by shape and level by level."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from native_kernels import CODES, at_level, native, two_threads
from torch import Tensor
from torch.nn import functional

LEVELS = native.isa_levels()
KINDS = ["f32", "bf16", "int8"]
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu_erf": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
    "tanh": torch.tanh,
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
}
# Largest error allowed, relative to the largest result. The oracle rounds weights and activations
# as the kernels do, so what is left is float32 summation and, in bf16 and int8, rounding ties that
# fall to the other side because the sum before them differed in its last bit.
BOUNDS = {"f32": 2e-6, "bf16": 2e-6, "int8": 2e-6}
MLP_BOUNDS = {"f32": 4e-6, "bf16": 2e-3, "int8": 1e-2}


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    with at_level(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    with two_threads():
        yield


def rounds_rows(level: str) -> bool:
    """Whether bf16 products take their rows as bfloat16: other levels keep them in float32."""
    return level in {"avx512_bf16", "amx", "amx_emulated"}


# --- the oracle: float64, with the kernels' roundings -------------------------------------------


def quantised(x: Tensor) -> Tensor:
    scale = x.abs().amax(-1, keepdim=True).float() / 127
    whole = torch.round(x.float() * torch.where(scale > 0, 1 / scale, 0))
    return whole.double() * scale.double()


def as_rows(x: Tensor, kind: str, level: str) -> Tensor:
    if kind == "int8":
        return quantised(x)
    if kind == "bf16" and rounds_rows(level):
        return x.float().bfloat16().double()
    return x


def as_weight(w: Tensor, kind: str) -> Tensor:
    if kind == "int8":
        return quantised(w.double())
    return w.bfloat16().double() if kind == "bf16" else w.double()


def product(x: Tensor, w: Tensor, bias: Tensor | None, kind: str, level: str) -> Tensor:
    y = as_rows(x, kind, level) @ as_weight(w, kind).T
    return y if bias is None else y + bias.double()


@dataclass
class Norm:
    kind: str
    weight: Tensor
    bias: Tensor | None
    eps: float = 1e-5

    @classmethod
    def random(cls, kind: str, size: int) -> Norm:
        bias = torch.randn(size) if kind == "layer" else None
        return cls(kind, torch.randn(size), bias)

    def packed(self) -> native.Norm:
        bias = 0 if self.bias is None else self.bias.data_ptr()
        return native.Norm(self.kind, self.weight.data_ptr(), bias, len(self.weight), self.eps)

    def __call__(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True) if self.kind == "layer" else x
        y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.eps)
        y = y * self.weight.double()
        return y if self.bias is None else y + self.bias.double()


# --- the kernels --------------------------------------------------------------------------------


def pack(w: Tensor, bias: Tensor | None, kind: str, halves: bool = False) -> native.PackedWeight:
    address = 0 if bias is None else bias.data_ptr()
    return native.PackedWeight(w.data_ptr(), CODES[w.dtype], *w.shape, address, kind, halves)


def linear(
    x: Tensor,
    weight: native.PackedWeight,
    activation: str = "none",
    pre: Norm | None = None,
    residual: Tensor | None = None,
    post: Norm | None = None,
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
) -> Tensor:
    if out is None:
        out = torch.full((len(x), weight.out_features), torch.nan, dtype=dtype)
    native.linear(
        x.data_ptr(), CODES[x.dtype], len(x), weight, out.data_ptr(), CODES[out.dtype],
        native.ACTIVATIONS[activation], pre and pre.packed(),
        0 if residual is None else residual.data_ptr(), post and post.packed(), x.stride(0),
    )  # fmt: skip
    return out


def mlp(
    x: Tensor,
    up: native.PackedWeight,
    down: native.PackedWeight,
    activation: str,
    gated: int = 0,
    pre: Norm | None = None,
    residual: Tensor | None = None,
    post: Norm | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    out = torch.full((len(x), down.out_features), torch.nan, dtype=dtype)
    native.mlp(
        x.data_ptr(), CODES[x.dtype], len(x), up, down, out.data_ptr(), CODES[dtype],
        native.ACTIVATIONS[activation], gated, pre and pre.packed(),
        0 if residual is None else residual.data_ptr(), post and post.packed(),
    )  # fmt: skip
    return out


def assert_near(ours: Tensor, exact: Tensor, bound: float) -> None:
    assert not ours.isnan().any()
    if exact.numel():
        error = (ours.double() - exact).abs().max() / exact.abs().max().clamp_min(1e-30)
        assert error.item() <= bound


# --- tests --------------------------------------------------------------------------------------

SHAPES = [
    (0, 8, 8), (1, 1, 1), (1, 384, 384), (2, 33, 7), (3, 64, 130), (5, 100, 33), (8, 96, 64),
    (14, 65, 31), (15, 31, 65), (33, 129, 257), (70, 48, 96), (101, 71, 39), (230, 384, 192),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_linear_agrees_on_every_shape(level: str, kind: str) -> None:
    torch.manual_seed(0)
    for rows, features, outputs in SHAPES:
        x, w, bias = (
            torch.randn(rows, features),
            torch.randn(outputs, features),
            torch.randn(outputs),
        )
        ours = linear(x, pack(w, bias, kind))
        assert_near(ours, product(x.double(), w, bias, kind, level), BOUNDS[kind])


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_activations(level: str, activation: str) -> None:
    """Exact in float32 products, coarser (but far below bfloat16's step of 4e-3) in others."""
    x = torch.linspace(-9, 9, 37)[:, None] * torch.tensor([1.0, 0.3])
    w = torch.eye(2)
    ours = linear(x, pack(w, None, "f32"), activation)
    assert_near(ours, ACTIVATIONS[activation](x.double()), 1e-6)
    rounded = x.bfloat16()
    coarse = linear(rounded, pack(w, None, "bf16"), activation)
    exact = ACTIVATIONS[activation](rounded.double())
    bound = 1.4e-4 + 2.5e-4 * exact.abs()
    assert ((coarse.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("activation", list(ACTIVATIONS))
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_activations_far_out(level: str, activation: str, kind: str) -> None:
    x = torch.tensor([[-3e38], [-1e4], [-100.0], [100.0], [1e4]])
    ours = linear(x.bfloat16(), pack(torch.ones(1, 1), None, kind), activation)
    exact = ACTIVATIONS[activation](x.bfloat16().double())
    assert torch.allclose(ours.double(), exact, rtol=3e-4, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_norms_and_residual(level: str, kind: str, norm: str) -> None:
    torch.manual_seed(2)
    for rows, in_dtype, out_dtype in itertools.product(
        (3, 119), (torch.float32, torch.bfloat16), (torch.float32, torch.bfloat16)
    ):
        x, w, bias = torch.randn(rows, 75).to(in_dtype), torch.randn(51, 75), torch.randn(51)
        residual = torch.randn(rows, 51)
        pre, post = Norm.random(norm, 75), Norm.random(norm, 51)
        ours = linear(x, pack(w, bias, kind), "none", pre, residual, post, out_dtype)
        exact = post(product(pre(x.double()), w, bias, kind, level) + residual.double())
        # Normalised rows differ in their last bit, so some fall to the other side of a tie.
        bound = {"f32": 4e-6, "bf16": 2e-3, "int8": 1e-2}[kind]
        assert_near(ours, exact, bound + (4e-3 if out_dtype == torch.bfloat16 else 0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gated", [0, 1, 2])
def test_mlp_agrees(level: str, kind: str, gated: int) -> None:
    torch.manual_seed(3)
    for rows, features, wide, activation in (
        (1, 64, 96, "gelu_erf"), (7, 33, 75, "silu"), (40, 48, 130, "gelu_tanh"),
        (131, 64, 100, "gelu_erf"),
    ):  # fmt: skip
        x = torch.randn(rows, features)
        w1 = torch.randn(wide * (2 if gated else 1), features) / features**0.5
        w2 = torch.randn(features, wide) / wide**0.5
        b1, b2 = torch.randn(len(w1)), torch.randn(features)
        up, down = pack(w1, b1, kind, halves=bool(gated)), pack(w2, b2, kind)
        post = Norm.random("layer", features)
        ours = mlp(x, up, down, activation, gated, None, x, post)
        inner = product(x.double(), w1, b1, kind, level)
        act = ACTIVATIONS[activation]
        if gated == 0:
            inner = act(inner)
        else:
            first, second = inner.chunk(2, -1)
            inner = act(first) * second if gated == 1 else first * act(second)
        exact = post(product(inner, w2, b2, kind, level) + x.double())
        assert_near(ours, exact, MLP_BOUNDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_does_not_depend_on_the_batch(level: str, kind: str) -> None:
    """Bit for bit, through small batches (columns shared out) and large ones (blocks of rows)."""
    torch.manual_seed(4)
    features, wide = 96, 200
    x = torch.randn(300, features)
    w1, w2 = torch.randn(wide, features), torch.randn(features, wide)
    up, down, norm = (
        pack(w1, torch.randn(wide), kind),
        pack(w2, None, kind),
        Norm.random("layer", 96),
    )
    whole = linear(x, up, "gelu_erf")
    whole_mlp = mlp(x, up, down, "gelu_erf", 0, norm, x, norm)
    for start, stop in ((0, 1), (7, 10), (50, 57), (100, 113), (120, 150), (0, 95), (37, 299)):
        part = x[start:stop].contiguous()
        assert torch.equal(linear(part, up, "gelu_erf"), whole[start:stop])
        assert torch.equal(
            mlp(part, up, down, "gelu_erf", 0, norm, part, norm), whole_mlp[start:stop]
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [5, 150])
def test_output_may_be_the_residual_or_the_input(level: str, kind: str, rows: int) -> None:
    torch.manual_seed(5)
    weight, norm = pack(torch.randn(80, 80), None, kind), Norm.random("layer", 80)
    x, residual = torch.randn(rows, 80), torch.randn(rows, 80)
    expected = linear(x, weight, residual=residual, post=norm)
    assert torch.equal(linear(x, weight, residual=residual, post=norm, out=residual), expected)
    expected = linear(x, weight, residual=x, post=norm)
    assert torch.equal(linear(x, weight, residual=x, post=norm, out=x), expected)


def test_strided_rows_and_bfloat16_weights(level: str) -> None:
    torch.manual_seed(6)
    wide = torch.randn(20, 100)
    x, w = wide[:, 10:74], torch.randn(24, 64).bfloat16()
    ours = linear(x, pack(w, None, "bf16"))
    assert_near(ours, product(x.double(), w.float(), None, "bf16", level), BOUNDS["bf16"])


def test_zero_rows_of_int8_stay_zero(level: str) -> None:
    out = linear(torch.zeros(3, 40), pack(torch.randn(9, 40), None, "int8"))
    assert torch.equal(out, torch.zeros(3, 9))


def test_one_thread_gives_the_same_bits() -> None:
    torch.manual_seed(7)
    x, weight = torch.randn(200, 256), pack(torch.randn(512, 256), None, "bf16")
    two = linear(x, weight)
    native.set_num_threads(1)
    assert torch.equal(linear(x, weight), two)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gated", [0, 1])
def test_columns_of_many_tiles_give_the_same_bits(level: str, kind: str, gated: int) -> None:
    """More tiles than take turns at a panel, shared out by columns over many threads."""
    torch.manual_seed(8)
    rows, features, wide = 600, 96, 130
    x = torch.randn(rows, features)
    up = pack(torch.randn(wide * (1 + gated), features), None, kind, halves=bool(gated))
    down = pack(torch.randn(features, wide), None, kind)
    native.set_num_threads(1)
    alone = mlp(x, up, down, "gelu_erf", gated)
    native.set_num_threads(16)
    assert torch.equal(mlp(x, up, down, "gelu_erf", gated), alone)


@pytest.mark.parametrize("kind", KINDS)
def test_panels_too_long_for_the_cache_give_the_same_bits(level: str, kind: str) -> None:
    """The tile unit takes them in parts when many rows come; 30 rows take them whole."""
    torch.manual_seed(10)
    native.set_num_threads(1)
    x, w = torch.randn(150, 1300), torch.randn(70, 1300)
    weight = pack(w, torch.randn(70), kind)
    whole = linear(x, weight, "relu")
    for start in range(0, 150, 30):
        part = x[start : start + 30].contiguous()
        assert torch.equal(whole[start : start + 30], linear(part, weight, "relu"))
    bits = linear(x, weight, dtype=torch.bfloat16)
    assert torch.equal(bits[:30], linear(x[:30].contiguous(), weight, dtype=torch.bfloat16))


@pytest.mark.parametrize("gated", [0, 1, 2])
@pytest.mark.parametrize("wide", [1536, 1601])
def test_a_middle_made_in_slices_gives_the_same_bits(level: str, wide: int, gated: int) -> None:
    """So many rows are one block of slices to the tile unit; a hundred are taken whole."""
    torch.manual_seed(9)
    native.set_num_threads(1)
    rows, features = 500, 40
    x = torch.randn(rows, features)
    w = torch.randn(wide * (2 if gated else 1), features)
    up = pack(w, torch.randn(len(w)), "bf16", halves=bool(gated))
    down, norm = pack(torch.randn(50, wide), torch.randn(50), "bf16"), Norm.random("rms", features)
    after = Norm.random("layer", 50)
    whole = mlp(x, up, down, "gelu_tanh", gated, norm, torch.zeros(rows, 50), after)
    for start in range(0, rows, 100):
        part = x[start : start + 100].contiguous()
        alone = mlp(part, up, down, "gelu_tanh", gated, norm, torch.zeros(100, 50), after)
        assert torch.equal(whole[start : start + 100], alone)


def test_wrong_calls_are_refused() -> None:
    w = torch.randn(6, 4)
    with pytest.raises(ValueError, match="kind"):
        pack(w, None, "int4")
    with pytest.raises(ValueError, match="halves"):
        linear(torch.randn(2, 4), pack(w, None, "f32", halves=True))
    with pytest.raises(ValueError, match="norm"):
        linear(torch.randn(2, 4), pack(w, None, "f32"), pre=Norm.random("rms", 3))
    with pytest.raises(ValueError, match="fit"):
        mlp(torch.randn(2, 4), pack(w, None, "f32"), pack(w, None, "f32"), "relu")
    with pytest.raises(ValueError, match="no level"):
        native.set_isa("sse9")
