"""Fills a model from a checkpoint, strictly both ways.

Names and shapes are matched before any weight is read, so a wrong checkpoint fails at once and
names everything that is wrong. Then one tensor at a time is read, converted and put in place: no
second copy of the model is made from a mapped file. It knows no architecture: a model brings its
rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from cenote.errors import ModelLoadError
from cenote.loader.checkpoint import Checkpoint, open_checkpoint
from cenote.loader.plan import Source, make_plan
from cenote.loader.rules import Rule


def load_weights(
    model: nn.Module,
    rules: Sequence[Rule],
    folder: Path,
    dtype: torch.dtype | None,
    made: Mapping[str, Tensor] | None = None,
) -> None:
    """Fills every parameter and persistent buffer of `model` from the safetensors of `folder`.

    A tensor that no rule matches fills the parameter of its own name. Tensors become `dtype` (None:
    the dtype of the parameter they fill); integers stay integers. Parameters on the meta device are
    made on the CPU, others are replaced on their own device. Parameters that are tied in the model
    are filled once, under the first of their names, and stay tied. Parameters in `made` get that
    tensor, and nothing of the checkpoint. Raises `ModelLoadError` that
    names every missing parameter, unused tensor and mismatched shape; the model is then as it was.
    """
    state = model.state_dict(keep_vars=True)
    first_name: dict[int, str] = {}
    for name, tensor in state.items():
        first_name.setdefault(id(tensor), name)
    given = dict(made or {})
    wanted = {name: tuple(state[name].shape) for name in first_name.values() if name not in given}
    with open_checkpoint(folder) as checkpoint:
        plan = make_plan(rules, checkpoint.shapes, wanted)
        filled = given | {
            name: _filled(state[name], sources, checkpoint, dtype) for name, sources in plan.items()
        }
    ready = {
        name: nn.Parameter(tensor, requires_grad=False)
        if isinstance(state[name], nn.Parameter)
        else tensor
        for name, tensor in filled.items()
    }
    for name, tensor in state.items():
        _put(model, name, ready[first_name[id(tensor)]])


def _filled(
    target: Tensor, sources: list[Source], checkpoint: Checkpoint, dtype: torch.dtype | None
) -> Tensor:
    """A new tensor in `target`'s shape with the sources laid into it on dimension 0."""
    device = torch.device("cpu") if target.is_meta else target.device
    kind = dtype if dtype is not None and target.is_floating_point() else target.dtype
    out = torch.empty(target.shape, dtype=kind, device=device)
    row = 0
    for source in sources:
        tensor = checkpoint.read(source.tensor)
        if tensor.is_floating_point() != target.is_floating_point():
            raise ModelLoadError(
                f"Tensor {source.tensor} is {tensor.dtype}; the model wants {target.dtype}. "
                "Quantised checkpoints are not supported."
            )
        if source.transpose:
            tensor = tensor.T
        if len(sources) == 1:
            out.copy_(tensor)
        else:
            out[row : row + tensor.shape[0]].copy_(tensor)
            row += tensor.shape[0]
    return out


def _put(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Puts `tensor` in the place of the parameter or buffer `name`."""
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, tensor)
