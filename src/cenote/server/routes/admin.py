"""What an operator may ask of a running engine. Served only with `enable_admin`.

Weights and caches are the engine's: these routes pass the call on and wait for its answer.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from cenote.errors import InvalidRequest, ModelLoadError
from cenote.server.dispatch import Answer
from cenote.server.openapi import describe
from cenote.server.parsing import check
from cenote.server.routing import plain_router
from cenote.server.schemas.body import ModelBody
from cenote.server.schemas.system import AdminRequest, AdminResponse, ReloadRequest
from cenote.server.state import server_of

router = plain_router("admin")

BodyT = TypeVar("BodyT", bound=ModelBody)


@router.post("/reload_weights", **describe(AdminResponse, ReloadRequest))
async def reload_weights(request: Request) -> Response:
    """Loads new weights of the same architecture; requests under way finish on one set.

    Caches that depend on weights are cleared. A bad checkpoint leaves the old weights serving.
    """
    body = await _body(request, ReloadRequest)
    args = {} if body.folder is None else {"folder": body.folder}
    try:
        return await _control(request, body, "reload_weights", args)
    except ModelLoadError as error:
        message = f"The old weights go on serving: {error.message}"
        raise InvalidRequest(message, param="folder") from None


@router.post("/reset_encoder_cache", **describe(AdminResponse, AdminRequest))
async def reset_encoder_cache(request: Request) -> Response:
    """Drops what was made with the weights: cached query vectors and late-interaction state."""
    return await _control(request, await _body(request, AdminRequest), "reset_encoder_cache")


@router.post("/reset_mm_cache", **describe(AdminResponse, AdminRequest))
async def reset_mm_cache(request: Request) -> Response:
    """Drops preprocessed multimodal inputs, and nothing else."""
    return await _control(request, await _body(request, AdminRequest), "reset_mm_cache")


@router.post("/reset_prefix_cache", **describe(AdminResponse, AdminRequest))
async def reset_prefix_cache(request: Request) -> Response:
    """Drops the blocks of causal models that equal prefixes share."""
    return await _control(request, await _body(request, AdminRequest), "reset_prefix_cache")


@router.get("/engine_stats", **describe(AdminResponse, finds_model=True))
async def engine_stats(request: Request) -> Response:
    """The engine's latest step, and what it keeps: all but the caches is 0 once all is done."""
    return await _control(request, AdminRequest(model=request.query_params.get("model")), "stats")


async def _body(request: Request, kind: type[BodyT]) -> BodyT:
    """The body; an empty one is an empty object, since most of these calls need no fields."""
    return check(await request.body() or b"{}", kind)


async def _control(
    request: Request, body: ModelBody, method: str, args: dict[str, Any] | None = None
) -> Response:
    target = await server_of(request).models.start(body.model)
    result = await asyncio.wrap_future(target.model.client.control(method, **(args or {})))
    return Answer.json({"model": target.name, "method": method, "result": result}).response
