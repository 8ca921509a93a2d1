"""The models that this server answers for, and the one place that finds one by its name.

Several models on one port are several entries here: routes know only `ServedModels.find`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from time import time

from cenote.config.model import ModelConfig
from cenote.engine.client import EngineClient
from cenote.errors import InvalidRequest, ModelNotFound
from cenote.processors.registry import Processors
from cenote.processors.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedModel:
    """One model with everything that a route needs of it. `names[0]` is the one reported.

    `adapters` are names of LoRA adapters that requests may give as their `model`.
    """

    names: tuple[str, ...]
    config: ModelConfig
    tokenizer: Tokenizer
    processors: Processors
    client: EngineClient
    adapters: tuple[str, ...] = ()
    created: int = field(default_factory=lambda: int(time()))

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True)
class Target:
    """What a request's `model` field means: a model, the name to report, an adapter or none."""

    model: ServedModel
    name: str
    adapter: str | None = None


class ServedModels:
    """All served models by name, alias and adapter. A request without a name gets the first."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self._models = tuple(models)
        if not self._models:
            raise InvalidRequest("A server needs at least one model.", param="model")
        self._targets: dict[str, Target] = {}
        for model in self._models:
            for name in model.names:
                self._add(name, Target(model, name))
            for adapter in model.adapters:
                self._add(adapter, Target(model, adapter, adapter))
        self._default = Target(self._models[0], self._models[0].name)

    def _add(self, name: str, target: Target) -> None:
        if name in self._targets:
            raise InvalidRequest(f"Two served models have the name {name!r}.", param="model")
        self._targets[name] = target

    def __iter__(self) -> Iterator[ServedModel]:
        return iter(self._models)

    @property
    def targets(self) -> Iterable[Target]:
        """Every name that requests may use, in the order they were given."""
        return self._targets.values()

    def find(self, name: str | None) -> Target:
        """The target of a request's `model` field; raises `ModelNotFound` with the served names."""
        if name is None:
            return self._default
        target = self._targets.get(name)
        if target is None:
            raise ModelNotFound(name, self._targets)
        return target

    @property
    def are_alive(self) -> bool:
        """Whether every engine can answer now."""
        return all(model.client.is_alive for model in self._models)
