"""Matrix products with everything that may be fused into them: norms, activation, residual, gate.

A `LinearWeight` is a matrix prepared once, at load, for the implementation in use. It knows nothing
of layers or of which model the matrix belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from cenote.errors import ModelLoadError
from cenote.kernels import backend
from cenote.kernels.activation import NATIVE_CODES, activate
from cenote.kernels.backend import DTYPE_CODES
from cenote.kernels.norm import NormWeight, norm_torch

# Which half of a gated MLP's `up` product goes through the activation.
Gate = Literal["none", "first", "second"]
GATE_CODES: dict[Gate, int] = {"none": 0, "first": 1, "second": 2}

_KINDS = {torch.float32: "f32", torch.bfloat16: "bf16"}


@dataclass(frozen=True, slots=True)
class LinearWeight:
    """A matrix `[out_features, in_features]` and its bias, ready for `linear` and `mlp`.

    Either `packed` (our kernels; the bias is inside) or `weight` with `bias` is set. `dtype` is
    what the product is computed in (operands; sums are float32) and what it gives by default.
    """

    dtype: torch.dtype
    out_features: int
    in_features: int
    weight: Tensor | None = None
    bias: Tensor | None = None
    packed: Any | None = None

    @classmethod
    def prepare(
        cls,
        weight: Tensor,
        bias: Tensor | None,
        dtype: torch.dtype,
        *,
        int8: bool = False,
        halves: bool = False,
    ) -> LinearWeight:
        """Packs for the implementation in use. `halves`: `up` of a gated MLP.

        Raises ModelLoadError for int8 without the native kernels.
        """
        out_features, in_features = weight.shape
        module = backend.native()
        if module is None or not weight.is_cpu or dtype not in _KINDS:
            if int8:
                raise ModelLoadError(
                    "quantization=int8 needs the native kernels, and this process runs on "
                    f"{backend.describe()}.",
                    param="quantization",
                )
            bias = None if bias is None else bias.detach().to(dtype)
            return cls(dtype, out_features, in_features, weight.detach().to(dtype), bias)
        weight = weight.detach().contiguous()
        bias = None if bias is None else bias.detach().float().contiguous()
        packed = module.PackedWeight(
            weight.data_ptr(),
            DTYPE_CODES[weight.dtype],
            out_features,
            in_features,
            bias=0 if bias is None else bias.data_ptr(),
            kind="int8" if int8 else _KINDS[dtype],
            halves=halves,
        )
        return cls(dtype, out_features, in_features, packed=packed)


def linear(
    x: Tensor,
    weight: LinearWeight,
    *,
    pre_norm: NormWeight | None = None,
    activation: str = "identity",
    residual: Tensor | None = None,
    post_norm: NormWeight | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """post_norm(activation(pre_norm(x) · Wᵀ + b) + residual) of rows `[T, in]` → `[T, out]`.

    `residual` is float32 `[T, out]`. `out_dtype` is the weight's dtype if not given. With the
    native kernels a row's result doesn't depend, bit for bit, on the other rows.
    """
    out_dtype = out_dtype or weight.dtype
    if weight.packed is None:
        return linear_torch(
            x,
            weight,
            pre_norm=pre_norm,
            activation=activation,
            residual=residual,
            post_norm=post_norm,
            out_dtype=out_dtype,
        )
    code = NATIVE_CODES.get(activation)
    if code is None:
        y = activate(activation, linear(x, weight, pre_norm=pre_norm, out_dtype=torch.float32))
        return finish(y, residual, post_norm, out_dtype)
    rows = x.shape[0]
    out = torch.empty((rows, weight.out_features), dtype=out_dtype)
    backend.compiled().linear(
        x.data_ptr(),
        DTYPE_CODES[x.dtype],
        rows,
        weight.packed,
        out.data_ptr(),
        DTYPE_CODES[out_dtype],
        code,
        None if pre_norm is None else pre_norm.native,
        0 if residual is None else residual.data_ptr(),
        None if post_norm is None else post_norm.native,
        x.stride(0),
    )
    return out


def mlp(
    x: Tensor,
    up: LinearWeight,
    down: LinearWeight,
    *,
    activation: str,
    gate: Gate = "none",
    pre_norm: NormWeight | None = None,
    residual: Tensor | None = None,
    post_norm: NormWeight | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """post_norm(down(activation(up(pre_norm(x)))) + residual) of rows `[T, in]`.

    With a gate, `up` gives twice the width and the activated half multiplies the other one.
    """
    out_dtype = out_dtype or down.dtype
    code = NATIVE_CODES.get(activation)
    if up.packed is None or down.packed is None or code is None:
        hidden = linear(x, up, pre_norm=pre_norm)
        hidden = gated(hidden, activation, gate)
        return linear(hidden, down, residual=residual, post_norm=post_norm, out_dtype=out_dtype)
    rows = x.shape[0]
    out = torch.empty((rows, down.out_features), dtype=out_dtype)
    backend.compiled().mlp(
        x.data_ptr(),
        DTYPE_CODES[x.dtype],
        rows,
        up.packed,
        down.packed,
        out.data_ptr(),
        DTYPE_CODES[out_dtype],
        code,
        GATE_CODES[gate],
        None if pre_norm is None else pre_norm.native,
        0 if residual is None else residual.data_ptr(),
        None if post_norm is None else post_norm.native,
        x.stride(0),
    )
    return out


def gated(hidden: Tensor, activation: str, gate: Gate) -> Tensor:
    """activation(hidden), or the activated half of it times the other half."""
    if gate == "none":
        return activate(activation, hidden)
    first, second = hidden.chunk(2, dim=-1)
    if gate == "first":
        return activate(activation, first) * second
    return first * activate(activation, second)


def linear_torch(
    x: Tensor,
    weight: LinearWeight,
    *,
    pre_norm: NormWeight | None,
    activation: str,
    residual: Tensor | None,
    post_norm: NormWeight | None,
    out_dtype: torch.dtype,
) -> Tensor:
    """The oracle of `linear`."""
    if pre_norm is not None:
        x = norm_torch(x, pre_norm)
    y = activate(activation, _product(x, weight))
    return finish(y, residual, post_norm, out_dtype)


def finish(
    y: Tensor, residual: Tensor | None, post_norm: NormWeight | None, out_dtype: torch.dtype
) -> Tensor:
    """post_norm(y + residual) in float32, given as `out_dtype`."""
    if residual is not None:
        y = residual + y
    if post_norm is not None:
        y = norm_torch(y, post_norm)
    return y.to(out_dtype)


def _product(x: Tensor, weight: LinearWeight) -> Tensor:
    """x · Wᵀ + b in the weight's dtype.

    On CPUs, 16-bit products go through oneDNN, which keeps a program for every shape it ever saw
    (gigabytes after some thousands): so rows are padded to a short ladder of counts.
    """
    assert weight.weight is not None, "a packed weight has no torch form: this is a bug"
    rows = x.shape[0]
    if not x.is_cpu or weight.dtype == torch.float32:
        return F.linear(x.to(weight.dtype), weight.weight, weight.bias)
    padded = x.new_zeros((_ladder(rows), x.shape[1]), dtype=weight.dtype)
    padded[:rows] = x
    return F.linear(padded, weight.weight, weight.bias)[:rows]


@cache
def _ladder(rows: int) -> int:
    """The next allowed row count: eight steps to each doubling, so at most one eighth is waste."""
    if rows <= 16:
        return rows
    step: int = 1 << ((rows - 1).bit_length() - 4)
    return -(-rows // step) * step
