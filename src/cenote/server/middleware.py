"""What happens to every HTTP request before and after its route: pure ASGI, no buffering.

`Guard` is one layer, not five, because each costs every request: request id, metrics, API key,
draining, and the limit of the body. It knows no routes and no models.
"""

from __future__ import annotations

import hmac
import logging
import re
from collections.abc import Callable, Collection
from itertools import count
from time import perf_counter
from typing import cast
from uuid import uuid4

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cenote.config.server import ServerConfig
from cenote.errors import EngineUnavailable, PayloadTooLarge, Unauthorized
from cenote.server.error_handlers import report
from cenote.server.metrics import Metrics

access = logging.getLogger("cenote.access")

# The only routes that answer without an API key.
OPEN_ROUTES = frozenset({"/health", "/infinity/health", "/ping"})
# What may still be asked while the server finishes its last requests.
ROUTES_WHILE_DRAINING = OPEN_ROUTES | {"/metrics", "/load"}

# Ids of one server: unlike those of any other, and counted, since each random one is a system call.
_PREFIX = uuid4().hex[:20].encode()
_numbers = count()

_SAFE_ID = re.compile(rb"[\x21-\x7e]{1,128}")


def new_id() -> bytes:
    """An id that no other request of any server has."""
    return b"%b%012x" % (_PREFIX, next(_numbers))


class Guard:
    """Request id, metrics, API key, draining and body limit around an app.

    `routes` are the paths that metrics may use as a label: others count as `other`, so that a
    scanner can't make the metrics grow. `is_draining` is asked at each request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        config: ServerConfig,
        metrics: Metrics,
        routes: Collection[str],
        is_draining: Callable[[], bool],
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._routes = frozenset(routes)
        self._is_draining = is_draining
        self._keys = [key.encode() for key in config.api_key]
        self._max_body = config.max_body_bytes
        self._log = config.access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = perf_counter()
        exchange = _Exchange(scope, receive, send, self._max_body)
        self._metrics.requests_in_flight += 1
        try:
            await self._answer(scope, exchange)
        finally:
            self._metrics.requests_in_flight -= 1
            self._record(scope, exchange.status, perf_counter() - start)

    async def _answer(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            self._check(scope, exchange.headers)
            exchange.check_length()
            await self._app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            return  # it went away while it sent its body
        except Exception as error:
            response = report(error, scope, self._metrics)
            if exchange.status:
                raise  # a part of the answer is out: only closing the connection is honest
            await response(scope, exchange.receive, exchange.send)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path = scope["path"]
        if self._keys and path not in OPEN_ROUTES and not _has_key(headers, self._keys):
            raise Unauthorized("The API key is missing or wrong. Send: Authorization: Bearer KEY.")
        if self._is_draining() and path not in ROUTES_WHILE_DRAINING:
            raise EngineUnavailable("The server is shutting down. Ask another one, or again soon.")

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope["path"] if scope["path"] in self._routes else "other"
        # 499: the client went away before there was an answer.
        self._metrics.answered(route, status or 499, seconds)
        if self._log:
            access.info(
                "%s %s %s %.1f ms %s",
                scope["method"],
                scope["path"],
                status or 499,
                seconds * 1000,
                scope["state"]["request_id"],
            )


class _Exchange:
    """One request's `receive` and `send`, with the id added and the body's bytes counted."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body: int) -> None:
        # Of several with one name the first.
        self.headers = dict(reversed(cast("list[tuple[bytes, bytes]]", scope["headers"])))
        self._receive = receive
        self._send = send
        self._max_body = max_body
        self._received = 0
        self.status = 0
        given = self.headers.get(b"x-request-id")
        self._id = given if given and _SAFE_ID.fullmatch(given) else new_id()
        scope.setdefault("state", {})["request_id"] = self._id.decode("ascii")

    def check_length(self) -> None:
        """Refuses a body by its declared length, before any of it is read."""
        declared = self.headers.get(b"content-length")
        if declared and declared.isdigit() and int(declared) > self._max_body:
            raise self._too_large(f"{int(declared)} bytes")

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._received += len(message.get("body", b""))
            if self._received > self._max_body:
                raise self._too_large("more bytes")
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._id)]
            if self.status == PayloadTooLarge.status:
                # The rest of the body is still on its way: this connection can't be used again.
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)

    def _too_large(self, size: str) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"The body has {size}; this server takes at most {self._max_body} (max_body_bytes)."
        )


def _has_key(headers: dict[bytes, bytes], keys: list[bytes]) -> bool:
    """Whether the Bearer token is one of `keys`; compared in constant time."""
    value = headers.get(b"authorization", b"")
    scheme, _, token = value.partition(b" ")
    if scheme.lower() != b"bearer":
        return False
    # Every key is compared, whichever fits, so the time tells nothing.
    return sum(hmac.compare_digest(token.strip(), key) for key in keys) > 0
