"""The routes about the server itself: health, models, version, metrics and load."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote import __version__
from cenote.errors import EngineUnavailable
from cenote.server.encoding import to_json
from cenote.server.metrics import CONTENT_TYPE
from cenote.server.openapi import describe
from cenote.server.routing import plain_router
from cenote.server.schemas.system import Load, ModelCard, ModelList, Version
from cenote.server.served import Entry
from cenote.server.state import server_of

router = plain_router("server")


@router.get("/health", **describe(None))
async def health(request: Request) -> Response:
    """200 with an empty body while requests can be answered, else 503. Needs no key."""
    server = server_of(request)
    if server.is_draining:
        raise EngineUnavailable("The server is shutting down.")
    if not server.models.are_alive:
        raise EngineUnavailable("The engine is starting again after it died.")
    return Response()


@router.get("/v1/models", **describe(ModelList))
@router.get("/models", include_in_schema=False)
async def list_models(request: Request) -> Response:
    """Every name that requests may use, with what stands behind it."""
    cards = [_card(entry) for entry in server_of(request).models.entries]
    return _json({"object": "list", "data": cards})


@router.get("/v1/models/{name:path}", **describe(ModelCard, finds_model=True))
async def get_model(request: Request) -> Response:
    """One of the names."""
    return _json(_card(server_of(request).models.find(request.path_params["name"])))


@router.get("/version", **describe(Version))
async def get_version(_: Request) -> Response:
    """The server's version."""
    return _json({"version": __version__})


@router.get("/metrics", **describe(None, other_kind="text/plain"))
async def get_metrics(request: Request) -> Response:
    """Prometheus' text format."""
    return Response(server_of(request).metrics.text(), media_type=CONTENT_TYPE)


@router.get("/load", **describe(Load))
async def get_load(request: Request) -> Response:
    """How many requests are under way, this one not counted."""
    return _json({"server_load": server_of(request).metrics.requests_in_flight - 1})


def _card(entry: Entry) -> dict[str, Any]:
    """What is known of a name. Of a model that has not been started, its folder's part only."""
    model, running = entry.model, entry.running
    ready = running.client.ready if running else None
    config = model.config
    return {
        "id": entry.name,
        "object": "model",
        "created": model.created,
        "owned_by": "cenote",
        "root": config.name,
        "parent": model.name if entry.adapter else None,
        "max_model_len": ready.max_model_len if ready else config.max_model_len,
        "permission": [],
        "loaded": running is not None,
        "tasks": ready.supported_tasks if ready else None,
        "score_kind": running.processors.score_kind if running else None,
        "embedding_size": ready.embedding_size if ready else None,
        "dimensions": list(config.pooler.matryoshka) or None,
        "prompts": sorted(config.pooler.prompts),
        "default_prompt_name": config.pooler.default_prompt_name,
        "dtype": ready.dtype if ready else None,
        "device": ready.device if ready else None,
        "kernels": ready.kernels if ready else None,
        "revision": config.revision,
    }


def _json(value: dict[str, Any]) -> Response:
    return Response(to_json(value), media_type="application/json")
