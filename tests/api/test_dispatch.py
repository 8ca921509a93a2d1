"""Requests that wait for a tokeniser thread: dropped with their client, and bounded in number."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from fake_engine import FakeEngine
from starlette.requests import Request
from starlette.types import Message

from cenote.config.server import ServerConfig
from cenote.errors import Overloaded
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
