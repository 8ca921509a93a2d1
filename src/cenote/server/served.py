"""The models that this server answers for, and the one place that finds one by its name.

Several models on one port are several entries here, and some may start at their first request:
routes know only `ServedModels.start`, which gives a model that runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import time

from cenote.config.model import ModelConfig
from cenote.engine.client import EngineClient
from cenote.errors import CenoteError, EngineUnavailable, InvalidRequest, ModelNotFound
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


class LazyModel:
    """A model whose folder has been read, and whose engine starts at its first request.

    `begin` starts it; it is called again only after it failed. `on_start` is told of what started.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        config: ModelConfig,
        begin: Callable[[], ServedModel],
        *,
        adapters: tuple[str, ...] = (),
    ) -> None:
        self.names = names
        self.config = config
        self.adapters = adapters
        self.created = int(time())
        self.running: ServedModel | None = None
        self.on_start: Callable[[ServedModel], None] = lambda _: None
        self._begin = begin
        self._starting: asyncio.Task[ServedModel] | None = None

    @property
    def name(self) -> str:
        return self.names[0]

    async def start(self) -> ServedModel:
        """The running model; all who ask while it starts wait for the same start.

        Raises `EngineUnavailable` where it can't be started: the message says why.
        """
        if self.running is not None:
            return self.running
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> ServedModel:
        try:
            # A thread of its own: those of the tokeniser pool serve the other models.
            running = await asyncio.to_thread(self._begin)
        except CenoteError as error:
            message = f"Model {self.name} could not be started: {error.message}"
            raise EngineUnavailable(message) from error
        finally:
            self._starting = None
        self.running = running
        self.on_start(running)
        return running


@dataclass(frozen=True, slots=True)
class Target:
    """What a request's `model` field means: a running model, the name to report, an adapter."""

    model: ServedModel
    name: str
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """A name that requests may use: its model, running or not yet, and an adapter or none."""

    model: ServedModel | LazyModel
    name: str
    adapter: str | None = None

    @property
    def running(self) -> ServedModel | None:
        """The model if it runs."""
        return self.model.running if isinstance(self.model, LazyModel) else self.model


class ServedModels:
    """All served models by name, alias and adapter. A request without a name gets the first."""

    def __init__(self, models: Iterable[ServedModel | LazyModel]) -> None:
        self._models = tuple(models)
        if not self._models:
            raise InvalidRequest("A server needs at least one model.", param="model")
        self._entries: dict[str, Entry] = {}
        for model in self._models:
            for name in model.names:
                self._add(Entry(model, name))
            for adapter in model.adapters:
                self._add(Entry(model, adapter, adapter))

    def _add(self, entry: Entry) -> None:
        if entry.name in self._entries:
            raise InvalidRequest(f"Two served models have the name {entry.name!r}.", param="model")
        self._entries[entry.name] = entry

    def on_start(self, listener: Callable[[ServedModel], None]) -> None:
        """Calls `listener` with every model that runs, now or once it does."""
        for model in self._models:
            if isinstance(model, LazyModel):
                model.on_start = listener
            else:
                listener(model)

    @property
    def running(self) -> list[ServedModel]:
        """The models whose engines have been started."""
        entries = (Entry(model, model.name) for model in self._models)
        return [entry.running for entry in entries if entry.running is not None]

    @property
    def entries(self) -> Iterable[Entry]:
        """Every name that requests may use, in the order they were given."""
        return self._entries.values()

    def find(self, name: str | None) -> Entry:
        """The entry of a request's `model` field; raises `ModelNotFound` with the served names."""
        found = self._entries.get(self._models[0].name if name is None else name)
        if found is None:
            raise ModelNotFound(str(name), self._entries)
        return found

    async def start(self, name: str | None) -> Target:
        """`find`, and the model started if it does not run yet. Raises what both raise."""
        found = self.find(name)
        model = found.model
        running = await model.start() if isinstance(model, LazyModel) else model
        return Target(running, found.name, found.adapter)

    @property
    def are_alive(self) -> bool:
        """Whether every engine that was started can answer now."""
        return all(model.client.is_alive for model in self.running)
