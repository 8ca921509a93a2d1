"""What the routes of one server share: its models, settings, metrics and dispatcher.

One object on the app; routes get it with `server_of(request)`. It knows no route.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, time
from typing import Any, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response

from cenote.config.server import ServerConfig
from cenote.errors import InvalidRequest, PayloadTooLarge
from cenote.processors.prepared import Prepared
from cenote.server.dialects import set_fields
from cenote.server.dispatch import Answer, Dispatcher, Finished
from cenote.server.metrics import Metrics
from cenote.server.parsing import check, read
from cenote.server.schemas.body import ModelBody
from cenote.server.served import ServedModels, Target

# A body of so many bytes is parsed and checked in less than 0.5 ms; larger ones in a thread.
SMALL_BODY_BYTES = 64 << 10

# The texts of a body of so many bytes are tokenised in less than 0.1 ms.
SHORT_BODY_BYTES = 512

ResultT = TypeVar("ResultT")
BodyT = TypeVar("BodyT", bound=ModelBody)


@dataclass(kw_only=True, slots=True)
class Server:
    """One server. `is_draining` becomes true at SIGTERM and stays so."""

    config: ServerConfig
    models: ServedModels
    metrics: Metrics
    dispatcher: Dispatcher
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One request that runs prompts: who asked for what, and the frame of its answer.

    `is_short`: by its body, preparing it takes next to no time.
    """

    server: Server
    request: Request
    target: Target
    request_id: str
    is_short: bool
    begin: float = field(default_factory=perf_counter)

    def seconds(self) -> float:
        """How long ago its body had been read."""
        return perf_counter() - self.begin

    def frame(self, prefix: str, finished: Finished[Any], kind: str = "list") -> dict[str, Any]:
        """The members that every answer has; `prefix` stands before the id."""
        tokens = finished.prompt_tokens
        cached = {"cached_tokens": finished.cached_tokens} if finished.cached_tokens else None
        return {
            "id": f"{prefix}-{self.request_id}",
            "object": kind,
            "created": int(time()),
            "model": self.target.name,
            "usage": {
                "prompt_tokens": tokens,
                "total_tokens": tokens,
                "completion_tokens": 0,
                "prompt_tokens_details": cached,
            },
        }

    def limit(self, items: Sized, param: str) -> None:
        """Refuses a list with more items than the server takes in one request."""
        most = self.server.config.max_items_per_request
        if len(items) > most:
            raise PayloadTooLarge(
                f"{param} has {len(items)} items; this server takes at most {most} in one "
                "request (max_items_per_request).",
                param=param,
            )

    async def run(
        self,
        prepare: Callable[[], Prepared[ResultT]],
        render: Callable[[Finished[ResultT]], Answer],
    ) -> Response:
        """Runs it on the target's engine; see `Dispatcher.run`."""
        run = self.server.dispatcher.run
        client = self.target.model.client
        return await run(self.request, client, prepare, render, is_small=self.is_short)


def server_of(request: Request) -> Server:
    """The server that the request came to."""
    return cast(Server, request.app.state.server)


async def received(
    request: Request, kind: type[BodyT] | Callable[[Mapping[str, Any]], type[BodyT]]
) -> tuple[BodyT, Call]:
    """A request's checked body, and the call for its model, which is started if need be.

    `kind` may be found by the body's fields. Raises what `read` and `check` raise, and
    `ModelNotFound`.
    """
    server = server_of(request)
    raw = await read(request)
    work = partial(check, raw, kind)
    body = work() if len(raw) <= SMALL_BODY_BYTES else await server.dispatcher.call(work)
    template = getattr(body, "chat_template", None)
    if template and not server.config.trust_request_chat_template:
        raise InvalidRequest(
            "This server takes no chat_template from requests; --trust-request-chat-template "
            "allows it.",
            param="chat_template",
        )
    set_fields(request.scope, body.model_fields_set)
    given = getattr(body, "request_id", None)
    request_id = request.scope["state"]["request_id"] if given is None else given
    # Clients that can be given an address only, and no name, put the name into the address.
    name = request.query_params.get("model") if body.model is None else body.model
    target = await server.models.start(name)
    # A template of a caller's own may take its time, however short it is.
    is_short = len(raw) <= SHORT_BODY_BYTES and not template
    call = Call(server, request, target, request_id, is_short)
    return body.resolved(target.model.processors), call
