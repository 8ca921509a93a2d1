"""A model's layers, one after another: in one call where the kernels take them all, so that a few
sequences at a time go through the whole model; else module by module.

It knows no family: a layer that may run so says what it is made of.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from cenote.kernels import backend
from cenote.kernels.attention import AttentionTerms
from cenote.kernels.layers import LayerStack, LayerWeights
from cenote.layers.linear import Linear
from cenote.layers.packed import PackedBatch
from cenote.layers.rotary import Rotary


@runtime_checkable
class WholeLayer(Protocol):
    """A layer that the kernels may take as a whole, once it is packed."""

    def weights(self) -> LayerWeights | None:
        """All that it does; None where it does anything else as well."""


class RunLayers:
    """`[T, hidden]` → `[R, hidden]` float32, through `layers` in their order.

    A layer may be there more than once."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        self._layers = list(layers)

    def __call__(self, hidden: Tensor, batch: PackedBatch, terms: AttentionTerms) -> Tensor:
        """All layers see all rows of the one before, and only the last one leaves out those that
        nobody reads. `hidden` is used up."""
        stack = self._stack
        if stack is not None and self._may_stack(stack, batch, terms):
            return stack.run(
                hidden,
                batch,
                positions=batch.positions,
                terms=terms,
                read=batch.read,
                kept=batch.kv,
            )
        *before, last = self._layers
        whole = batch.whole()
        for layer in before:
            hidden = layer(hidden, whole, terms)
            backend.pass_gate()
        out: Tensor = last(hidden, batch, terms)
        return out

    @cached_property
    def _stack(self) -> LayerStack | None:
        """The layers for one call. Weights are packed by the first batch, and stay."""
        found = []
        for layer in self._layers:
            weights = layer.weights() if isinstance(layer, WholeLayer) else None
            if weights is None:
                return None
            found.append(weights)
        return LayerStack.of(found)

    def _may_stack(self, stack: LayerStack, batch: PackedBatch, terms: AttentionTerms) -> bool:
        """Whether nothing about this batch asks for the modules."""
        kv = batch.kv
        if kv is not None and kv.entries.dtype != stack.dtype:
            return False
        if kv is not None and kv.read is not None and not terms.is_empty:
            return False
        if any(product.is_changed for product in self._products):
            return False
        return not any(rotary.is_stretched(batch) for rotary in self._rotaries)

    @cached_property
    def _modules(self) -> set[nn.Module]:
        return {module for layer in self._layers for module in layer.modules()}

    @cached_property
    def _products(self) -> list[Linear]:
        return [module for module in self._modules if isinstance(module, Linear)]

    @cached_property
    def _rotaries(self) -> list[Rotary]:
        found = (module for module in self._modules if isinstance(module, Rotary))
        return [rotary for rotary in found if rotary.varies]
