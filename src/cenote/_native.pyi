"""The C++ kernels' binding: addresses and sizes in, nothing out; the caller owns every buffer.

Addresses come from `tensor.data_ptr()`; all tensors are contiguous unless a stride is given.
Dtypes are codes: F32 = 0, BF16 = 1. Every call releases the GIL.
"""

from typing import Final

F32: Final[int]
BF16: Final[int]

ACTIVATIONS: Final[dict[str, int]]
"""none, relu, gelu_erf, gelu_tanh, silu, tanh, quick_gelu → code."""

# --- levels and threads -------------------------------------------------------------------------

def isa() -> str:
    """Level in use: generic, avx2, avx512, avx512_vnni, avx512_bf16, amx (or amx_emulated)."""

def isa_report() -> str:
    """One line per level: chosen, passed over and why (not built, no such processor, check failed)."""

def isa_levels() -> list[str]:
    """Levels that are built and can run here, best first; amx_emulated last."""

def set_isa(name: str) -> None:
    """Use another level from now on. A PackedWeight keeps the level it was packed for. For tests."""

def set_num_threads(count: int) -> None: ...
def num_threads() -> int: ...
def peak(kind: str, seconds: float = 0.2) -> float:
    """Operations a second of the level's product instructions on registers alone, all threads."""

# --- products -----------------------------------------------------------------------------------

class PackedWeight:
    """A copy of a row-major `[out, in]` matrix in the order that the current level's kernels read.

    `kind` is "f32", "bf16" or "int8" (symmetric, per output channel). `bias`, if not 0, is the
    address of float32 `[out]`. `halves=True` is for the `up` matrix of a gated MLP: each half of
    the outputs is padded on its own.
    """

    def __init__(
        self,
        weight: int,
        dtype: int,
        out_features: int,
        in_features: int,
        bias: int = 0,
        kind: str = "bf16",
        halves: bool = False,
    ) -> None: ...
    @property
    def out_features(self) -> int: ...
    @property
    def in_features(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def isa(self) -> str: ...
    @property
    def nbytes(self) -> int: ...

class Norm:
    """A copy of a norm's float32 parameters. `kind` is "layer" or "rms"; `bias` may be 0."""

    def __init__(self, kind: str, weight: int, bias: int, size: int, eps: float) -> None: ...
    @property
    def size(self) -> int: ...

def linear(
    x: int,
    x_dtype: int,
    rows: int,
    weight: PackedWeight,
    out: int,
    out_dtype: int,
    activation: int = 0,
    pre_norm: Norm | None = None,
    residual: int = 0,
    post_norm: Norm | None = None,
    x_stride: int = 0,
) -> None:
    """out = post_norm(act(pre_norm(x) @ W.T + b) + residual).

    x is `[rows, in]` with rows `x_stride` elements apart (0: contiguous); out is `[rows, out]`;
    residual is float32 `[rows, out]`. A row's result doesn't depend on the other rows.

    out may be residual itself, and may be x itself where in = out, x is contiguous and the dtypes
    are equal; any other overlap is an error of the caller.
    """

def mlp(
    x: int,
    x_dtype: int,
    rows: int,
    up: PackedWeight,
    down: PackedWeight,
    out: int,
    out_dtype: int,
    activation: int,
    gated: int = 0,
    pre_norm: Norm | None = None,
    residual: int = 0,
    post_norm: Norm | None = None,
    x_stride: int = 0,
) -> None:
    """out = post_norm(down(act(up(pre_norm(x)))) + residual); aliasing as for `linear`.

    gated=1: act(first half of up) * second half; gated=2: first half * act(second half). Then `up`
    must be packed with halves=True. Both weights must be packed for the same level and kind.
    """
