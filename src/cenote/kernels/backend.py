"""Which implementation the operations of this process use: our C++ kernels, or plain torch.

One setting per process, made once by whoever loads the model. It knows no operation: each one asks
`native()` and keeps its torch form for every case that the kernels don't take (a GPU, float16).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch

from cenote.config import env
from cenote.config.engine import KernelChoice
from cenote.errors import ModelLoadError

# What the C++ side calls the two element types that it knows.
DTYPE_CODES: dict[torch.dtype, int] = {torch.float32: 0, torch.bfloat16: 1}

# The compiled module while it is in use. Any: `_native` need not exist on this machine.
_native: Any | None = None
_reason = "not configured"


def native() -> Any | None:
    """The compiled module if this process uses it, else None."""
    return _native


def compiled() -> Any:
    """The compiled module, for weights that are packed already, whatever was configured since."""
    return importlib.import_module("cenote._native") if _native is None else _native


def configure(
    choice: KernelChoice, device: torch.device, dtype: torch.dtype, *, threads: int = 0
) -> None:
    """Chooses the implementation for a model on `device` computing in `dtype`.

    `threads` bounds both thread pools (ours and torch's); 0 leaves them at one for each core.
    Raises ModelLoadError if the native kernels are demanded and can't be used.
    """
    global _native, _reason
    if choice == "auto":
        choice = cast(KernelChoice, env.KERNELS.read())
    module, _reason = _find(choice, device, dtype)
    if choice == "native" and module is None:
        raise ModelLoadError(f"kernels=native can't be used: {_reason}.", param="kernels")
    _native = module
    if threads:
        torch.set_num_threads(threads)
    if module is not None:
        module.set_num_threads(threads or torch.get_num_threads())


def compute_alone(alone: bool) -> None:
    """Whether the kernels that this thread calls use no other threads from now on."""
    if _native is not None:
        _native.set_alone(alone)


@contextmanager
def ahead_of_others() -> Iterator[None]:
    """Threads that compute alone stand still meanwhile, from their next kernel on; never for long,
    so that whoever comes all the time leaves them a share."""
    module = compiled()
    module.hold_alone(True)
    try:
        yield
    finally:
        module.hold_alone(False)


def pass_gate() -> None:
    """Lets others go ahead, between two kernels of a thread that computes alone."""
    if _native is not None:
        _native.pass_gate()


def describe() -> str:
    """One phrase for the log and the ready message: `native (avx512_bf16)` or `torch (why)`."""
    return f"torch ({_reason})" if _native is None else f"native ({_native.isa()})"


def instruction_set() -> str:
    """`torch`, or the instruction set that the native kernels run on."""
    return "torch" if _native is None else str(_native.isa())


def _find(choice: KernelChoice, device: torch.device, dtype: torch.dtype) -> tuple[Any | None, str]:
    """The compiled module, or None and the reason."""
    if choice == "torch":
        return None, "asked for"
    if device.type != "cpu":
        return None, f"the device is {device.type}, they run on CPUs"
    if dtype not in DTYPE_CODES:
        return None, f"they don't compute in {str(dtype).removeprefix('torch.')}"
    try:
        return importlib.import_module("cenote._native"), ""
    except ImportError:
        return None, "the native kernels are not built here"
