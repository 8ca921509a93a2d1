"""Elementwise functions, and the softmax of a row, by their canonical names.

GELU by the error function and GELU by tanh are different names: they differ by up to 5e-4, which
is fifty times what parity allows. It knows nothing of where a name came from.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

# The codes of `cenote._native.ACTIVATIONS`, which a test compares with these.
NATIVE_CODES: dict[str, int] = {
    "identity": 0,
    "relu": 1,
    "gelu_erf": 2,
    "gelu_tanh": 3,
    "silu": 4,
    "tanh": 5,
    "quick_gelu": 6,
}


def _identity(x: Tensor) -> Tensor:
    return x


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def _relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": _identity,
    "relu": F.relu,
    "gelu_erf": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "quick_gelu": _quick_gelu,
    "relu2": _relu_squared,
    "sigmoid": torch.sigmoid,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
    "relu6": F.relu6,
    "softmax": partial(torch.softmax, dim=-1),
}


def activate(name: str, x: Tensor) -> Tensor:
    """The function called `name` of x, in x's dtype."""
    return FUNCTIONS[name](x)
