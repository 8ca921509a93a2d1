"""LayerNorm and RMSNorm on rows, always computed in float32.

It knows nothing of where in a layer the norm stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from cenote.kernels import backend
from cenote.kernels.backend import DTYPE_CODES

NormKind = Literal["layer", "rms"]


@dataclass(frozen=True, slots=True)
class NormWeight:
    """A norm's parameters, float32 `[size]`; `native` is the C++ side's copy of them."""

    kind: NormKind
    weight: Tensor
    bias: Tensor | None
    eps: float
    native: Any | None = None

    @classmethod
    def prepare(cls, kind: NormKind, weight: Tensor, bias: Tensor | None, eps: float) -> NormWeight:
        """Float32 parameters, copied to the native side where that is in use."""
        weight = weight.detach().float().contiguous()
        bias = None if bias is None else bias.detach().float().contiguous()
        module = backend.native()
        if module is None or not weight.is_cpu:
            return cls(kind, weight, bias, eps)
        bias_address = 0 if bias is None else bias.data_ptr()
        native = module.Norm(kind, weight.data_ptr(), bias_address, weight.numel(), eps)
        return cls(kind, weight, bias, eps, native)


def norm(x: Tensor, weight: NormWeight, *, residual: Tensor | None = None) -> Tensor:
    """norm(x + residual) of rows `[T, size]`; the result is float32."""
    module = backend.native()
    if module is None or weight.native is None or x.dtype not in DTYPE_CODES:
        return norm_torch(x, weight, residual=residual)
    x = x.contiguous()
    out = torch.empty(x.shape, dtype=torch.float32)
    address = 0 if residual is None else residual.data_ptr()
    args = (x.data_ptr(), DTYPE_CODES[x.dtype], x.shape[0], x.shape[1], weight.weight.data_ptr())
    if weight.kind == "rms":
        module.rms_norm(*args, weight.eps, residual=address, out_f32=out.data_ptr())
        return out
    bias = 0 if weight.bias is None else weight.bias.data_ptr()
    module.layer_norm(*args, bias, weight.eps, residual=address, out_f32=out.data_ptr())
    return out


def norm_heads(x: Tensor, weight: NormWeight) -> None:
    """The norm of each head of `[T, heads · size]` in place, whose rows may lie apart."""
    size = weight.weight.numel()
    module = backend.native()
    if module is None or weight.native is None or x.dtype not in DTYPE_CODES:
        x.copy_(norm_torch(x.reshape(-1, size), weight).view(x.shape))
        return
    module.head_norm(
        weight.kind,
        x.data_ptr(),
        DTYPE_CODES[x.dtype],
        x.stride(0),
        x.shape[0],
        x.shape[1] // size,
        size,
        weight.weight.data_ptr(),
        0 if weight.bias is None else weight.bias.data_ptr(),
        weight.eps,
    )


def norm_torch(x: Tensor, weight: NormWeight, *, residual: Tensor | None = None) -> Tensor:
    """The oracle of `norm`."""
    x = x.float()
    if residual is not None:
        x = x + residual
    if weight.kind == "rms":
        return F.rms_norm(x, (x.shape[-1],), weight.weight, weight.eps)
    return F.layer_norm(x, (x.shape[-1],), weight.weight, weight.bias, weight.eps)
