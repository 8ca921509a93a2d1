"""Engine futures for an event loop, thousands a second: one wake-up for many answers.

`asyncio.wrap_future` wakes the loop (a system call) for every future; the engine answers a whole
step at once. It knows no engine.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


class FutureBridge:
    """One per event loop. `wait` is for coroutines of that loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._done: deque[asyncio.Future[None]] = deque()
        self._woken = False

    async def wait(self, future: Future[ResultT]) -> ResultT:
        """The future's result, or its error. Cancelling the coroutine cancels the future."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        future.add_done_callback(partial(self._on_done, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            future.cancel()
            raise
        return future.result()

    def _on_done(self, waiter: asyncio.Future[None], future: Future[Any]) -> None:
        """In the thread that answered. The flag may be set late, never cleared early: `_flush`
        clears it before it looks."""
        self._done.append(waiter)
        if not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._flush)
            except RuntimeError:
                self._done.clear()  # The loop is closed: nobody waits.

    def _flush(self) -> None:
        self._woken = False
        while self._done:
            waiter = self._done.popleft()
            if not waiter.done():
                waiter.set_result(None)
