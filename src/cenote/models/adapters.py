"""Puts LoRA adapters on a loaded model's matrices and tables, found through its own weight rules.

A query, key or value matrix that the model keeps in one fused matrix gets its change on its own
rows of that. It knows no family and no request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from cenote.errors import ModelLoadError
from cenote.layers.adapters import Change, TableChange
from cenote.layers.embedding import TokenEmbedding
from cenote.layers.linear import Linear
from cenote.loader.checkpoint import open_checkpoint
from cenote.loader.peft import Adapter, LowRank, read_adapter
from cenote.loader.plan import Plan, Shapes, Source, assign, assign_all
from cenote.models.base import PoolingModel


@dataclass(frozen=True, slots=True)
class _Place:
    """Rows of a matrix, a bias or a table of `layer`, that a checkpoint's tensor has filled."""

    layer: Linear | TokenEmbedding
    leaf: str
    rows: slice
    turned: bool  # the checkpoint's tensor is [in, out]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a model has put its checkpoint's tensors."""

    model: PoolingModel
    parameters: Shapes
    tensors: Shapes
    plan: Plan

    @classmethod
    def of(cls, model: PoolingModel) -> _Layout:
        parameters = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        with open_checkpoint(model.config.transformer_path) as checkpoint:
            plan, _ = assign_all(model.weight_rules, checkpoint.shapes, parameters)
            return cls(model, parameters, checkpoint.shapes, plan)

    def place(self, tensor: str) -> _Place | None:
        """Where a tensor of this name is; None where the served model has no use for it.

        Raises ModelLoadError, without saying which adapter it was, where it can't be changed.
        """
        target, source = assign(self.model.weight_rules, tensor, self.parameters)
        if target is None:
            if self.model.info.head == "vocab" and "pooler" not in tensor:
                raise ModelLoadError("the word table and what is tied to it can't be changed")
            return None
        module, _, leaf = target.rpartition(".")
        if target not in self.parameters:
            raise ModelLoadError("the model has no such matrix")
        layer = self.model.get_submodule(module)
        is_table = isinstance(layer, TokenEmbedding) and leaf in ("words", "types")
        if not is_table and not (isinstance(layer, Linear) and layer.adaptable):
            raise ModelLoadError("only plain matrix products and tables of words can be changed")
        layer = cast(Linear | TokenEmbedding, layer)
        return _Place(layer, leaf, self._rows(target, source), source.transpose)

    def _rows(self, target: str, source: Source) -> slice:
        """The rows that a tensor has, or would have, in the parameter that it is for."""
        rows = self.parameters[target][0]
        sizes = [part.shape(self.tensors)[0] for part in self.plan.get(target, ())]
        if source.count == 1:
            return slice(0, rows)
        if len(sizes) != source.count:
            # The checkpoint has them in one: where they don't have equal parts, no shape fits.
            sizes = [rows // source.count] * source.count
        first = sum(sizes[: source.index])
        return slice(first, first + sizes[source.index])


def attach_adapters(model: PoolingModel, folders: Mapping[str, Path]) -> None:
    """Gives a filled model, not packed yet, the adapters of these folders under these names.

    Raises ModelLoadError that names the adapter and every module that can't be changed.
    """
    layout = _Layout.of(model)
    model.adapters.add(folders)
    for name, folder in folders.items():
        problems, number, used = [], model.adapters.numbers[name], False
        for tensor, change in _changes(read_adapter(folder)):
            try:
                used |= _attach(layout, number, tensor, change)
            except ModelLoadError as error:
                problems.append(f"{tensor}: {error.message}")
        if not (used or problems):
            problems.append("it changes nothing that this model uses")
        if problems:
            raise ModelLoadError(
                f"Adapter {name!r} does not fit the model:\n  " + "\n  ".join(problems),
                param="adapters",
            )


def _changes(adapter: Adapter) -> Iterator[tuple[str, LowRank | Tensor]]:
    """Each changed tensor's name, with its low-rank change or with what replaces it."""
    for module, low in adapter.low.items():
        yield f"{module}.weight", low
    yield from adapter.whole.items()


def _attach(layout: _Layout, number: int, tensor: str, change: LowRank | Tensor) -> bool:
    """Whether the served model has a use for the tensor. Raises ModelLoadError, as `place`."""
    place = layout.place(tensor)
    if place is None:
        return False
    now: Tensor = getattr(place.layer, place.leaf)[place.rows]
    if isinstance(change, Tensor) and place.turned:
        change = change.T
    wanted, found = list(now.shape), _shape(change)
    if found != wanted:
        raise ModelLoadError(f"its shape is {found}, the model's is {wanted}")
    if isinstance(place.layer, TokenEmbedding):
        table = place.layer.adapted_by(layout.model.adapters)[place.leaf]
        scale = place.layer.scale if place.leaf == "words" else 1.0
        table.add(number, _table_change(change, now, scale))
    else:
        adapters = place.layer.adapted_by(layout.model.adapters)
        adapters.add(number, _matrix_change(change, now, place))
    return True


def _shape(change: LowRank | Tensor) -> list[int]:
    """The shape of what is changed."""
    if isinstance(change, Tensor):
        return list(change.shape)
    shape = [change.b.shape[0], change.a.shape[1]]
    return shape[::-1] if change.is_table else shape


def _table_change(change: LowRank | Tensor, now: Tensor, scale: float) -> TableChange:
    if isinstance(change, Tensor):
        return TableChange((change.to(now.device) - now.float()) * scale)
    if not change.is_table:
        raise ModelLoadError("a table is changed by lora_embedding_A and lora_embedding_B")
    return TableChange(change.a.T.to(now.device), change.b.T.to(now.device) * scale)


def _matrix_change(change: LowRank | Tensor, now: Tensor, place: _Place) -> Change:
    if isinstance(change, Tensor):
        difference = change.to(now.device) - now.float()
        if place.leaf == "bias":
            return Change(place.rows, bias=difference)
        return Change(place.rows, matrix=difference)
    if change.is_table:
        raise ModelLoadError("a matrix is changed by lora_A and lora_B")
    a, b = change.a.to(now.device), change.b.to(now.device)
    if change.magnitude is None:
        return Change(place.rows, low=(a, b))
    whole = now.float() + b @ a
    lengths = torch.linalg.vector_norm(whole, dim=1, keepdim=True)
    scaled = whole * (change.magnitude.to(now.device)[:, None] / lengths)
    return Change(place.rows, matrix=scaled - now.float())
