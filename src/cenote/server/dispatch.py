"""The one way from a route's request to its answer, for all routes alike.

prepare and submit → wait, unless the client goes away → finish and encode. What is small is done on
the loop, since handing it over costs more than doing it; all else in a tokeniser thread. What a
request costs is measured here, once. It knows no route and no schema.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Generic, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from cenote.config.server import ServerConfig
from cenote.engine.awaiting import FutureBridge
from cenote.engine.client import EngineClient
from cenote.engine.messages import EngineOutput
from cenote.errors import Overloaded
from cenote.processors.prepared import Prepared
from cenote.server.encoding import to_json
from cenote.server.metrics import Metrics

ResultT = TypeVar("ResultT")

# So many bytes of float32 are written as JSON in less than 0.4 ms.
SMALL_RESULT_BYTES = 64 << 10

CLIENT_CLOSED_REQUEST = 499

# So many requests may wait for a tokeniser thread: the engine's own bound begins behind them.
MOST_STARTING = 4096


@dataclass(frozen=True, slots=True)
class Finished(Generic[ResultT]):
    """A processor's result, the tokens that ran for it (each engine prompt once), and its times.

    Times are seconds: of tokenising all prompts, and the mean wait and run of one of them.
    """

    result: ResultT
    prompt_tokens: int
    cached_tokens: int
    tokenize_time: float = 0.0
    queue_time: float = 0.0
    run_time: float = 0.0


class JsonBytes(Response):
    """A body that is JSON already, with as little made around it as can be."""

    media_type = "application/json"

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        if headers is not None:
            super().init_headers(headers)
            return
        length = b"%d" % len(self.body)
        self.raw_headers = [(b"content-length", length), (b"content-type", b"application/json")]


@dataclass(frozen=True, slots=True)
class Answer:
    """A rendered answer: the response, and how many of its inputs were cut."""

    response: Response
    truncated: int = 0

    @classmethod
    def json(
        cls, body: Any, truncated: int = 0, *, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """An answer whose body is JSON; NumPy arrays may stand in it."""
        return cls(JsonBytes(to_json(body), headers=headers), truncated)


class Dispatcher:
    """Runs requests; one for a server. `close` waits for its threads."""

    def __init__(self, config: ServerConfig, metrics: Metrics) -> None:
        self._pool = ThreadPoolExecutor(config.threads, thread_name_prefix="tokenize")
        self._timeout = config.request_timeout or None
        self._metrics = metrics
        self._bridge: FutureBridge | None = None
        self._starting = 0
        self._corked: set[EngineClient] = set()

    async def run(
        self,
        request: Request,
        client: EngineClient,
        prepare: Callable[[], Prepared[ResultT]],
        render: Callable[[Finished[ResultT]], Answer],
        *,
        is_small: bool = False,
    ) -> Response:
        """The answer to one request. Raises what `prepare`, the engine or `finish` raise.

        `is_small`: preparing takes so little time that the event loop may do it. It also doesn't
        wait behind large requests then.
        """

        def start() -> tuple[Prepared[ResultT], Future[list[EngineOutput]]]:
            prepared = prepare()
            # Together: packing thousands of prompts would hold all others up, as tokenising would.
            return prepared, client.submit(prepared.requests)

        watch = _Watch(request.receive)
        begin = perf_counter()
        if is_small:
            self._cork(client)
        started = start() if is_small else await self._started(watch, start)
        if started is None:
            return self._gone()
        prepared, future = started
        tokenize_time = perf_counter() - begin
        self._metrics.tokenize_seconds.observe(tokenize_time)
        tokens = sum(len(item.prompt.token_ids) for item in prepared.requests)
        self._metrics.prompt_tokens.inc(tokens)
        outputs = await self._outputs(watch, future)
        if outputs is None:
            return self._gone()

        def finish() -> Answer:
            self._observe(outputs)
            cached = sum(output.num_cached_tokens for output in outputs)
            queue, run = _mean_times(outputs)
            result = prepared.finish(outputs)
            return render(Finished(result, tokens, cached, tokenize_time, queue, run))

        is_small = sum(len(output.data) for output in outputs) <= SMALL_RESULT_BYTES
        answer = finish() if is_small else await self.call(finish)
        if answer.truncated:
            self._metrics.truncated.inc(answer.truncated)
        return answer.response

    async def call(self, work: Callable[[], ResultT]) -> ResultT:
        """Runs `work` in a tokeniser thread."""
        return await self._wait(self._pool.submit(work))

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _started(self, watch: _Watch, start: Callable[[], ResultT]) -> ResultT | None:
        """What a tokeniser thread makes of `start`, or None where the client left before that.

        Raises `Overloaded` where too many requests wait for a thread.
        """
        if self._starting >= MOST_STARTING:
            raise Overloaded(
                f"{self._starting} requests wait to be tokenised, which is the most this server "
                "keeps."
            )
        self._starting += 1
        work = self._pool.submit(start)
        watch.over(work)
        try:
            return await self._wait(work)
        except CancelledError:  # The thread's future, by the watch.
            return None
        finally:
            self._starting -= 1

    def _cork(self, client: EngineClient) -> None:
        """What this turn of the loop submits goes to the engine together, at the turn's end."""
        if not self._corked:
            asyncio.get_running_loop().call_soon(self._uncork)
        self._corked.add(client)
        client.cork()

    def _uncork(self) -> None:
        corked, self._corked = self._corked, set()
        for client in corked:
            client.uncork()

    def _gone(self) -> Response:
        self._metrics.cancelled.inc()
        return Response(status_code=CLIENT_CLOSED_REQUEST)

    async def _outputs(
        self, watch: _Watch, future: Future[list[EngineOutput]]
    ) -> list[EngineOutput] | None:
        """The engine's outputs, or None where the client went away: then the engine aborts."""
        watch.over(future)
        try:
            if self._timeout is None:
                return await self._wait(future)
            async with asyncio.timeout(self._timeout):
                return await self._wait(future)
        except TimeoutError:
            raise HTTPException(
                504, f"No answer within {self._timeout} s (request_timeout)."
            ) from None
        except CancelledError:  # The engine's future, by the watch; the task's own passes on.
            return None

    def _wait(self, future: Future[ResultT]) -> Awaitable[ResultT]:
        """A thread's or an engine's result, by one bridge while the loop is the same."""
        loop = asyncio.get_running_loop()
        if self._bridge is None or self._bridge.loop is not loop:
            self._bridge = FutureBridge(loop)
        return self._bridge.wait(future)

    def _observe(self, outputs: list[EngineOutput]) -> None:
        for output in outputs:
            self._metrics.queue_seconds.observe(output.queue_time)
            self._metrics.run_seconds.observe(output.run_time)


def _mean_times(outputs: list[EngineOutput]) -> tuple[float, float]:
    """Mean wait and run of a request's prompts."""
    count = len(outputs) or 1
    queue = sum(output.queue_time for output in outputs)
    return queue / count, sum(output.run_time for output in outputs) / count


class _Watch:
    """Waits for a request's client to go away, and then cancels what the request waits for.

    A server says that it went away after every answer too, which ends the watch: nobody stops it.
    """

    def __init__(self, receive: Receive) -> None:
        self.is_gone = False
        self._waits: Future[Any] | None = None
        self._task = asyncio.create_task(self._run(receive))

    def over(self, future: Future[Any]) -> None:
        """From now on the request waits for `future`."""
        self._waits = future
        if self.is_gone:
            future.cancel()

    async def _run(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_gone = True
        if self._waits is not None:
            self._waits.cancel()
