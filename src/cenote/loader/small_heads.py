"""Two small linear heads that BGE-M3's release keeps beside its weights, in files of their own.

The release has them as `sparse_linear.pt` and `colbert_linear.pt`. These two names are the only
pickles that Cenote ever opens, and only as bare tensors (`weights_only`), which runs no code; a
`.safetensors` file of the same name is preferred. It knows no pooling.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cenote.errors import ModelLoadError

SmallHead = Literal["sparse_linear", "colbert_linear"]


def read_small_head(folder: Path, name: SmallHead, hidden: int) -> tuple[Tensor, Tensor]:
    """Weight `[out, hidden]` and bias `[out]`, float32. Raises `ModelLoadError`."""
    path = folder / f"{name}.safetensors"
    try:
        if path.is_file():
            tensors = load_file(path)
        else:
            path = folder / f"{name}.pt"
            tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, SafetensorError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ModelLoadError(f"{path} can't be read: {error}") from error
    shapes = {key: tuple(value.shape) for key, value in dict(tensors).items()}
    outputs = shapes.get("weight", (0,))[0]
    if not outputs or shapes != {"weight": (outputs, hidden), "bias": (outputs,)}:
        raise ModelLoadError(
            f"{path} must hold weight [n, {hidden}] and bias [n]; it has {shapes}."
        )
    return tensors["weight"].float(), tensors["bias"].float()
