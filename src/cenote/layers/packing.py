"""The step after loading: weights become what the kernels read, and the originals are let go.

A layer that has something to pack has a `pack(form)` method; the rest is walked through. It knows
no layer and no kernel by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class WeightForm:
    """What matrices are to become. `dtype` is what products compute in; int8 only packs smaller.

    `spare`: matrices whose rounding costs most stay in `dtype` (`Linear.sensitive`).
    """

    dtype: torch.dtype
    int8: bool = False
    spare: bool = False

    @property
    def load_dtype(self) -> torch.dtype:
        """What to read matrices as: quantising starts from the full numbers."""
        return torch.float32 if self.int8 else self.dtype


@runtime_checkable
class Packable(Protocol):
    """A layer that prepares its own weights, and its children's."""

    def pack(self, form: WeightForm) -> None: ...


def pack_weights(module: nn.Module, form: WeightForm) -> None:
    """Packs a filled model, layer by layer, so that at no time two copies of all of it exist."""
    if isinstance(module, Packable):
        module.pack(form)
        return
    for child in module.children():
        pack_weights(child, form)
