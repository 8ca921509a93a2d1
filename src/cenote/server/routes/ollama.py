"""Ollama's /api/embed, /api/embeddings, /api/tags and /api/version, also under /ollama."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote import __version__
from cenote.outputs import Embedding
from cenote.server.dispatch import Answer, Finished
from cenote.server.openapi import describe
from cenote.server.routing import plain_router
from cenote.server.schemas.ollama import (
    OllamaEmbeddingsRequest,
    OllamaEmbeddingsResponse,
    OllamaEmbedRequest,
    OllamaEmbedResponse,
    OllamaTags,
)
from cenote.server.schemas.system import Version
from cenote.server.served import Entry
from cenote.server.state import Call, received, server_of

router = plain_router("ollama")

_describe = partial(describe, dialect="ollama")


@router.post("/api/embed", **_describe(OllamaEmbedResponse, OllamaEmbedRequest))
@router.post("/ollama/api/embed", include_in_schema=False)
async def embed(request: Request) -> Response:
    """Vectors of unit length for texts. Long texts are cut unless truncate is false."""
    body, call = await received(request, OllamaEmbedRequest)
    texts = body.texts()
    call.limit(texts, "input")
    if not texts:
        return _render(call, Finished([], 0, 0)).response
    inputs = body.to_input(call.request_id, call.target.adapter)
    return await call.run(
        partial(call.target.model.processors.embed, inputs), partial(_render, call)
    )


def _render(call: Call, finished: Finished[list[Embedding]]) -> Answer:
    cut = [index for index, item in enumerate(finished.result) if item.truncated]
    body: dict[str, Any] = {
        "model": call.target.name,
        "embeddings": [item.embedding for item in finished.result],
        "total_duration": int(call.seconds() * 1e9),
        "load_duration": 0,
        "prompt_eval_count": finished.prompt_tokens,
        **({"truncated_inputs": cut} if cut else {}),
    }
    return Answer.json(body, len(cut))


@router.post("/api/embeddings", **_describe(OllamaEmbeddingsResponse, OllamaEmbeddingsRequest))
@router.post("/ollama/api/embeddings", include_in_schema=False)
async def embed_one(request: Request) -> Response:
    """The vector of one text, in the older form."""
    body, call = await received(request, OllamaEmbeddingsRequest)
    inputs = body.to_input(call.request_id, call.target.adapter)

    def render(finished: Finished[list[Embedding]]) -> Answer:
        (result,) = finished.result
        return Answer.json({"embedding": result.embedding}, int(result.truncated))

    return await call.run(partial(call.target.model.processors.embed, inputs), render)


@router.get("/api/tags", **_describe(OllamaTags))
@router.get("/ollama/api/tags", include_in_schema=False)
async def list_tags(request: Request) -> Response:
    """Every name that requests may use."""
    models = [_tag(entry) for entry in server_of(request).models.entries]
    return Answer.json({"models": models}).response


@router.get("/api/version", **_describe(Version))
@router.get("/ollama/api/version", include_in_schema=False)
async def get_version(_: Request) -> Response:
    """The server's version."""
    return Answer.json({"version": __version__}).response


def _tag(entry: Entry) -> dict[str, Any]:
    config = entry.model.config
    return {
        "name": entry.name,
        "model": entry.name,
        "modified_at": datetime.fromtimestamp(entry.model.created, UTC).isoformat(),
        "size": 0,
        "digest": config.revision,
        "details": {"format": "safetensors", "family": config.model_type},
    }
