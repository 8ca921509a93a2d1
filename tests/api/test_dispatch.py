"""From a request to the engine: who waits for a tokeniser thread, and what goes together."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest
from fake_engine import FakeEngine
from starlette.requests import Request
from starlette.types import Message

from cenote.config.server import ServerConfig
from cenote.engine.messages import EngineOutput, EnginePrompt, EngineRequest
from cenote.errors import Overloaded
from cenote.params import PoolingParams
from cenote.processors.prepared import Prepared
from cenote.server import dispatch
from cenote.server.dispatch import Answer, Dispatcher
from cenote.server.metrics import Metrics


class Blocked:
    """A dispatcher whose only thread is busy until `release`, and what was prepared behind it."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher(ServerConfig(tokenizer_threads=1), Metrics())
        self.prepared: list[str] = []
        self._busy = threading.Event()
        self.dispatcher._pool.submit(self._busy.wait, 10)

    def release(self) -> None:
        self._busy.set()

    async def ask(self, name: str, left: asyncio.Event) -> Any:
        async def receive() -> Message:
            await left.wait()
            return {"type": "http.disconnect"}

        def prepare() -> Prepared[None]:
            self.prepared.append(name)
            return Prepared([], lambda outputs: None)

        request = Request({"type": "http"}, receive)
        return await self.dispatcher.run(
            request, FakeEngine(), prepare, lambda finished: Answer.json({})
        )


def test_who_leaves_before_a_thread_is_free_is_never_tokenised() -> None:
    async def scene() -> None:
        blocked, left = Blocked(), asyncio.Event()
        gone = asyncio.create_task(blocked.ask("gone", left))
        stays = asyncio.create_task(blocked.ask("stays", asyncio.Event()))
        await asyncio.sleep(0)
        left.set()
        assert (await asyncio.wait_for(gone, 5)).status_code == dispatch.CLIENT_CLOSED_REQUEST
        blocked.release()
        assert (await asyncio.wait_for(stays, 5)).status_code == 200
        assert blocked.prepared == ["stays"]
        blocked.dispatcher.close()

    asyncio.run(scene())


def test_too_many_who_wait_for_a_thread_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "MOST_STARTING", 2)

    async def scene() -> None:
        blocked = Blocked()
        waiting = [asyncio.create_task(blocked.ask(n, asyncio.Event())) for n in "ab"]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="2 requests wait to be tokenised"):
            await blocked.ask("c", asyncio.Event())
        blocked.release()
        assert [(await one).status_code for one in waiting] == [200, 200]
        assert (await blocked.ask("d", asyncio.Event())).status_code == 200
        blocked.dispatcher.close()

    asyncio.run(scene())


class Corked(FakeEngine):
    """Tells what happened in which order."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def cork(self) -> None:
        self.events.append("cork")

    def uncork(self) -> None:
        self.events.append("uncork")

    def submit(self, requests: list[EngineRequest]) -> Future[list[EngineOutput]]:
        self.events.append(requests[0].request_id)
        return super().submit(requests)


def test_small_requests_of_one_turn_go_to_the_engine_together() -> None:
    engine = Corked()
    dispatcher = Dispatcher(ServerConfig(tokenizer_threads=1), Metrics())
    stays = asyncio.Event()

    async def receive() -> Message:
        await stays.wait()
        return {"type": "http.disconnect"}

    async def ask(name: str) -> Any:
        prompt = EngineRequest(name, EnginePrompt([1, 2]), PoolingParams(task="embed"))
        return await dispatcher.run(
            Request({"type": "http"}, receive),
            engine,
            lambda: Prepared([prompt], lambda outputs: None),
            lambda finished: Answer.json({}),
            is_small=True,
        )

    async def scene() -> None:
        answers = await asyncio.gather(ask("a"), ask("b"))
        assert [answer.status_code for answer in answers] == [200, 200]
        assert engine.events == ["cork", "a", "cork", "b", "uncork"]
        stays.set()

    asyncio.run(scene())
    dispatcher.close()
    engine.close()
