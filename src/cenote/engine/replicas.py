"""Several engines of one model behind one client, for machines with many cores.

A submission is split into parts that belong together (a score group: a query and its documents).
A part goes to the engine with the fewest tokens waiting, but a query's group goes where that query
went before: its engine may still have it encoded. It knows no transport and no model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from dataclasses import replace as with_fields
from functools import partial
from typing import Any
from zlib import crc32

from msgspec.structs import replace

from cenote.config.engine import EngineConfig
from cenote.config.profile import usable_cores
from cenote.engine.base_client import BaseClient
from cenote.engine.messages import EngineOutput, EngineReady, EngineRequest, StepStats
from cenote.engine.placement import share_cores


@dataclass(slots=True)
class Part:
    """Requests that must run on one engine, and their places in the submission."""

    places: list[int] = field(default_factory=list)
    requests: list[EngineRequest] = field(default_factory=list)
    affinity: int | None = None

    @property
    def tokens(self) -> int:
        return sum(len(request.prompt.token_ids) for request in self.requests)


class ReplicatedClient:
    """An `EngineClient` over others, which it closes. Thread-safe as they are."""

    def __init__(self, clients: Sequence[BaseClient]) -> None:
        self._clients = list(clients)
        self._waiting = [0] * len(self._clients)
        self._lock = threading.Lock()

    @property
    def ready(self) -> EngineReady:
        """That of the first: all serve the same model with the same settings."""
        return self._clients[0].ready

    @property
    def is_alive(self) -> bool:
        """Whether any engine can answer."""
        return any(client.is_alive for client in self._clients)

    @property
    def stats(self) -> StepStats:
        """The first engine's record with all engines' running and waiting counts."""
        stats = [client.stats for client in self._clients]
        running, waiting = sum(one.running for one in stats), sum(one.waiting for one in stats)
        return replace(stats[0], running=running, waiting=waiting)

    @property
    def restarts(self) -> int:
        """Of all engines."""
        return sum(client.restarts for client in self._clients)

    def on_step(self, listener: Callable[[StepStats], None]) -> None:
        """Calls `listener` with every engine's steps."""
        for client in self._clients:
            client.on_step(listener)

    def submit(self, requests: list[EngineRequest]) -> Future[list[EngineOutput]]:
        """See `EngineClient.submit`. An engine that refuses its part fails the whole."""
        shares: dict[int, Part] = {}
        for part in split(requests):
            share = shares.setdefault(self._choose(part), Part())
            share.places += part.places
            share.requests += part.requests
        gathered = _Gathered(len(requests), len(shares))
        left = dict(shares)
        try:
            for index, share in shares.items():
                future = self._clients[index].submit(share.requests)
                del left[index]
                gathered.add(future)
                future.add_done_callback(partial(self._done, gathered, index, share))
        except BaseException:
            for index, share in left.items():
                self._release(index, share.tokens)
            gathered.future.cancel()
            raise
        return gathered.future

    def cork(self) -> None:
        """See `EngineClient.cork`."""
        for client in self._clients:
            client.cork()

    def uncork(self) -> None:
        """See `EngineClient.uncork`."""
        for client in self._clients:
            client.uncork()

    def _choose(self, part: Part) -> int:
        """The engine for a part, whose tokens wait there from now on."""
        with self._lock:
            alive = [i for i, client in enumerate(self._clients) if client.is_alive]
            alive = alive or list(range(len(self._clients)))
            chosen = min(alive, key=self._waiting.__getitem__)
            if part.affinity is not None:
                chosen = alive[part.affinity % len(alive)]
            self._waiting[chosen] += part.tokens
        return chosen

    def _release(self, index: int, tokens: int) -> None:
        with self._lock:
            self._waiting[index] -= tokens

    def _done(
        self, gathered: _Gathered, index: int, share: Part, done: Future[list[EngineOutput]]
    ) -> None:
        self._release(index, share.tokens)
        gathered.receive(share.places, done)

    def control(self, method: str, **args: Any) -> Future[Any]:
        """Asks all engines; the result is the first one's, or the first error."""
        futures = [client.control(method, **args) for client in self._clients]
        answer: Future[Any] = Future()
        left = len(futures)
        lock = threading.Lock()

        def note(_: Future[Any]) -> None:
            nonlocal left
            with lock:
                left -= 1
                is_last = left == 0
            if is_last and answer.set_running_or_notify_cancel():
                failed = next((one for one in futures if one.exception() is not None), None)
                if failed is None:
                    answer.set_result(futures[0].result())
                else:
                    answer.set_exception(failed.exception())

        for future in futures:
            future.add_done_callback(note)
        return answer

    def close(self) -> None:
        """Closes all, at the same time."""
        threads = [threading.Thread(target=client.close) for client in self._clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def start_replicas(
    config: EngineConfig, start: Callable[[EngineConfig, frozenset[int]], BaseClient]
) -> ReplicatedClient:
    """Starts `config.replicas` engines at the same time, each with its share of the threads, the
    cores and the queue. None is left running where one can't start: then it raises what `start`
    raised."""
    count = config.replicas
    cores = usable_cores()
    share = with_fields(
        config,
        replicas=1,
        threads=max(1, (config.threads or len(cores)) // count),
        max_waiting_tokens=-(-config.max_waiting_tokens // count),
        max_waiting_requests=-(-config.max_waiting_requests // count),
    )
    with ThreadPoolExecutor(count) as pool:
        starts = [pool.submit(start, share, own) for own in share_cores(count, cores)]
    failed = next((one.exception() for one in starts if one.exception() is not None), None)
    if failed is None:
        return ReplicatedClient([one.result() for one in starts])
    for one in starts:
        if one.exception() is None:
            one.result().close()
    raise failed


class _Gathered:
    """One future out of several parts'. It fails with the first error; the others are aborted."""

    def __init__(self, size: int, parts: int) -> None:
        self.future: Future[list[EngineOutput]] = Future()
        self._outputs: list[EngineOutput | None] = [None] * size
        self._left = parts
        self._parts: list[Future[list[EngineOutput]]] = []
        self._lock = threading.Lock()
        self.future.add_done_callback(self._cancel_parts)
        if parts == 0:
            self.future.set_result([])

    def add(self, part: Future[list[EngineOutput]]) -> None:
        self._parts.append(part)
        if self.future.done():
            part.cancel()

    def receive(self, places: list[int], done: Future[list[EngineOutput]]) -> None:
        try:
            outputs = done.result()
        except CancelledError:
            return
        except Exception as error:
            self._answer(error)
            return
        for place, output in zip(places, outputs, strict=True):
            self._outputs[place] = output
        with self._lock:
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            self._answer(None)

    def _answer(self, error: Exception | None) -> None:
        with self._lock:
            if self.future.done() or not self.future.set_running_or_notify_cancel():
                return
        if error is not None:
            self.future.set_exception(error)
            self._cancel_parts(self.future)
        else:
            self.future.set_result([one for one in self._outputs if one is not None])

    def _cancel_parts(self, _: Future[list[EngineOutput]]) -> None:
        for part in self._parts:
            part.cancel()


def split(requests: Sequence[EngineRequest]) -> list[Part]:
    """A submission's parts: each score group whole, every other request by itself.

    A group's `affinity` is made of its query's tokens and salt.
    """
    parts: list[Part] = []
    groups: dict[str, Part] = {}
    for place, request in enumerate(requests):
        score = request.params.late_interaction
        part = Part() if score is None else groups.setdefault(score.query_key, Part())
        if not part.requests:
            parts.append(part)
        if score is not None and score.mode == "cache_query":
            part.affinity = _key(request)
        part.places.append(place)
        part.requests.append(request)
    return parts


def _key(request: EngineRequest) -> int:
    prompt = request.prompt
    return crc32(repr((prompt.token_ids, prompt.cache_salt)).encode())
