"""What the machine could do at the most, measured beside the candidates in the same run.

The peak is the product instructions alone, on registers; oneDNN's rate is that of the model's own
products with prepacked weights, weighted by their arithmetic.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from cenote import _native

# Rows of oneDNN's products: from here on it gains nothing.
ROWS = 1024
_LAYER = re.compile(r".*?layers?\.\d+\.")
_DEPTH = ("num_hidden_layers", "n_layers")
KINDS = {"float32": "f32", "bfloat16": "bf16", "int8": "int8"}


@dataclass(frozen=True, slots=True)
class Shapes:
    """An encoder's products with weights: `(out, in)` of a layer's, and how often layers run."""

    products: tuple[tuple[int, int], ...]
    layers: int

    @classmethod
    def of(cls, folder: Path) -> Shapes:
        """As the checkpoint has them; all layers are alike."""
        layers: dict[str, list[tuple[int, int]]] = {}
        with safe_open(folder / "model.safetensors", "pt") as file:
            for name in file.keys():  # noqa: SIM118  (it is no mapping)
                shape = file.get_slice(name).get_shape()
                found = _LAYER.match(name)
                if found and len(shape) == 2:
                    layers.setdefault(found[0], []).append((shape[0], shape[1]))
        config = json.loads((folder / "config.json").read_text())
        depth = next(config[name] for name in _DEPTH if name in config)
        return cls(tuple(next(iter(layers.values()))), depth)

    @property
    def flops_per_token(self) -> int:
        """Of the products with weights; attention's own come on top."""
        return 2 * self.layers * sum(rows * columns for rows, columns in self.products)


def peak(dtype: str, seconds: float = 0.2) -> float:
    """Operations a second of the product instructions alone, all cores."""
    return float(_native.peak(KINDS[dtype], seconds))


def onednn(shapes: Shapes, dtype: torch.dtype, seconds: float = 0.2) -> float:
    """Operations a second of oneDNN on the model's products; 0 where it has none for the dtype."""
    took = 0.0
    for rows, columns in shapes.products:
        try:
            product = _prepacked(torch.randn(rows, columns), dtype)
            x = torch.randn(ROWS, columns).to(dtype)
            took += _seconds(partial(product, x), seconds / len(shapes.products))
        except RuntimeError:
            return 0.0
    return shapes.flops_per_token / shapes.layers * ROWS / took


def _prepacked(weight: torch.Tensor, dtype: torch.dtype) -> Callable[[torch.Tensor], Any]:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype), ROWS)
    return lambda x: torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


def _seconds(run: Callable[[], Any], at_least: float) -> float:
    """The median seconds of a call."""
    run()
    taken: list[float] = []
    until = time.perf_counter() + at_least
    while len(taken) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


class Limits:
    """Measured before and after the rounds; the better of each counts."""

    def __init__(self, folder: Path) -> None:
        self._shapes = Shapes.of(folder)
        self._peaks: dict[str, float] = {}
        self._onednn: dict[str, float] = {}

    @torch.inference_mode()
    def measure(self) -> None:
        for dtype in KINDS:
            self._peaks[dtype] = max(peak(dtype), self._peaks.get(dtype, 0.0))
            if dtype != "int8":
                rate = onednn(self._shapes, getattr(torch, dtype))
                self._onednn[dtype] = max(rate, self._onednn.get(dtype, 0.0))

    def rows(self) -> list[dict[str, Any]]:
        """A row for each number format: operations in 10⁹ a second, and the tokens they'd make."""
        return [
            {
                "name": dtype,
                "peak_gops": round(self._peaks[dtype] / 1e9),
                "onednn_gops": round(self._onednn.get(dtype, 0.0) / 1e9),
                "peak_tokens_per_s": round(self._peaks[dtype] / self._shapes.flops_per_token),
            }
            for dtype in KINDS
        ]

    def share(self, tokens_per_s: float, name: str) -> str:
        """How much of its number format's peak a candidate reached, in products with weights."""
        formats = {"int8": "int8", "bf16": "bfloat16"}
        dtype = next((value for key, value in formats.items() if key in name), "float32")
        share = tokens_per_s * self._shapes.flops_per_token / self._peaks[dtype]
        return f"{100 * share:.0f} %"
