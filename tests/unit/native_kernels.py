"""What the tests of the C++ kernels share. Importing it skips a module where they are not built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

native = pytest.importorskip("cenote._native", reason="the C++ kernels are not built")

CODES = {torch.float32: native.F32, torch.bfloat16: native.BF16}
DTYPES = list(CODES)
# All but one, which shares the varlen kernels of the next lower level.
VARLEN_LEVELS = [level for level in native.isa_levels() if level != "avx512_vnni"]


@contextmanager
def at_level(name: str) -> Iterator[str]:
    """Runs on that level; afterwards on the one before."""
    before = native.isa()
    native.set_isa(name)
    yield name
    native.set_isa(before)


@contextmanager
def two_threads() -> Iterator[None]:
    """Two for the kernels, one for torch: the oracle's shapes are too small to share out."""
    before = native.num_threads(), torch.get_num_threads()
    native.set_num_threads(2)
    torch.set_num_threads(1)
    yield
    native.set_num_threads(before[0])
    torch.set_num_threads(before[1])


def offsets(lengths: list[int]) -> Tensor:
    """Running sums, int32 `[n + 1]`."""
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def address(x: Tensor | None) -> int:
    """Of a tensor's data; 0 for none."""
    return 0 if x is None else x.data_ptr()
