"""Chunk after chunk through an engine: the next is prepared while those before it run.

Enough chunks are with the engine that it never idles, and few enough that a million texts don't lie
in memory as tokens. It knows no tasks and no models.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from cenote import garbage
from cenote.config.engine import EngineConfig
from cenote.engine.client import EngineClient
from cenote.engine.messages import EngineOutput
from cenote.errors import Overloaded
from cenote.processors.prepared import Prepared
from cenote.progress import bar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

WINDOW_CHUNKS = 8

# Prompts tokenised at a time; fewer at first, so that the engine doesn't wait for long.
CHUNK_PROMPTS = 256
FIRST_PROMPTS = 32


def run_chunks(
    client: EngineClient,
    config: EngineConfig,
    items: Iterable[ItemT],
    prepare: Callable[[list[ItemT]], Prepared[list[ResultT]]],
    *,
    label: str,
    progress: bool,
    first: int = FIRST_PROMPTS,
) -> list[ResultT]:
    """All items' results in order: chunk after chunk is prepared while those before it run. The
    first one has at most `first` items, and each of the next ones twice as many."""
    size = chunk_size(client, config)
    total = len(items) if isinstance(items, Sized) else None
    shown = progress and (total is None or total > size)
    window: Window[ResultT] = Window(client, config.max_waiting_tokens // 2)
    results: list[ResultT] = []
    with garbage.rarely(), bar(label, total, shown=shown) as advance:
        for done in window.run(prepare(chunk) for chunk in chunks(items, size, first)):
            results += done
            advance(len(done))
    return results


def chunk_size(client: EngineClient, config: EngineConfig) -> int:
    """A chunk must fit into the engine's queue even when all its prompts have full length."""
    by_tokens = config.max_waiting_tokens // (2 * client.ready.max_model_len)
    return max(1, min(CHUNK_PROMPTS, config.max_waiting_requests // 2, by_tokens))


def chunks(items: Iterable[ItemT], size: int, first: int) -> Iterator[list[ItemT]]:
    """Lists in order of `first` items, then of twice as many, and so on up to `size`; one empty
    list where there are no items."""
    iterator = iter(items)
    now = min(first, size)
    chunk = list(islice(iterator, now))
    yield chunk
    while chunk:
        now = min(2 * now, size)
        chunk = list(islice(iterator, now))
        if chunk:
            yield chunk


@dataclass(frozen=True, slots=True)
class Submitted(Generic[ResultT]):
    prepared: Prepared[list[ResultT]]
    future: Future[list[EngineOutput]]
    num_tokens: int


class Window(Generic[ResultT]):
    """Chunks that the engine has, oldest first. Not thread-safe: one caller, one window.

    `max_tokens` bounds what is with the engine at a time, but for a single chunk that has more.
    """

    def __init__(self, client: EngineClient, max_tokens: int) -> None:
        self._client = client
        self._max_tokens = max_tokens
        self._pending: deque[Submitted[ResultT]] = deque()

    def run(self, chunks: Iterable[Prepared[list[ResultT]]]) -> Iterator[list[ResultT]]:
        """Each chunk's results, in order. Chunks are read (so: prepared) as there is room for them.

        On any error the chunks that are still with the engine are aborted.
        """
        try:
            for prepared in chunks:
                tokens = sum(len(request.prompt.token_ids) for request in prepared.requests)
                while self._is_full(tokens):
                    yield self._oldest()
                while not self._submitted(prepared, tokens):
                    yield self._oldest()
            while self._pending:
                yield self._oldest()
        finally:
            for item in self._pending:
                item.future.cancel()
            self._pending.clear()

    def _submitted(self, prepared: Prepared[list[ResultT]], tokens: int) -> bool:
        """Gives a chunk to the engine; False where its queue is full, but of our own chunks."""
        try:
            future = self._client.submit(prepared.requests)
        except Overloaded:
            if not self._pending:
                raise
            return False
        self._pending.append(Submitted(prepared, future, tokens))
        return True

    def _oldest(self) -> list[ResultT]:
        """Waits for the oldest chunk's results."""
        oldest = self._pending[0]
        outputs = oldest.future.result()
        self._pending.popleft()
        return oldest.prepared.finish(outputs)

    def _is_full(self, tokens: int) -> bool:
        if len(self._pending) >= WINDOW_CHUNKS:
            return True
        waiting = sum(item.num_tokens for item in self._pending)
        return bool(self._pending) and waiting + tokens > self._max_tokens
