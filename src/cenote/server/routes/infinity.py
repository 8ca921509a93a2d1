"""Infinity's /classify and /models, under its prefix: those paths without it are others' already.

Its embeddings and rerank are with the others in `embed` and `rerank`.
"""

from __future__ import annotations

from functools import partial
from time import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote.outputs import Classification
from cenote.server.dispatch import Answer, Finished
from cenote.server.openapi import describe
from cenote.server.routes.system import health
from cenote.server.routes.tei import label_scores
from cenote.server.routing import plain_router
from cenote.server.schemas.infinity import (
    InfinityClassifyRequest,
    InfinityClassifyResponse,
    InfinityHealth,
    InfinityModels,
)
from cenote.server.served import Entry
from cenote.server.state import Call, received, server_of

router = plain_router("infinity")


@router.post(
    "/infinity/classify",
    **describe(InfinityClassifyResponse, InfinityClassifyRequest, dialect="infinity"),
)
async def classify(request: Request) -> Response:
    """Classes of texts, best first. Long texts are cut, as Infinity does."""
    body, call = await received(request, InfinityClassifyRequest)
    call.limit(body.input, "input")
    inputs = body.to_input(call.request_id, call.target.adapter)
    return await call.run(
        partial(call.target.model.processors.classify, inputs), partial(_render, call)
    )


def _render(call: Call, finished: Finished[list[Classification]]) -> Answer:
    frame = call.frame("classify", finished, "classify")
    frame["data"] = [label_scores(item) for item in finished.result]
    return Answer.json(frame, sum(item.truncated for item in finished.result))


@router.get("/infinity/models", **describe(InfinityModels, dialect="infinity"))
async def list_models(request: Request) -> Response:
    """Every name that requests may use, with what stands behind it."""
    cards = [_card(entry) for entry in server_of(request).models.entries]
    return Answer.json({"object": "list", "data": cards}).response


@router.get("/infinity/health", **describe(InfinityHealth, dialect="infinity"))
async def get_health(request: Request) -> Response:
    """The time while requests can be answered, else 503. Needs no key."""
    await health(request)
    return Answer.json({"unix": time()}).response


def _card(entry: Entry) -> dict[str, Any]:
    running = entry.running
    stats: dict[str, Any] = {}
    capabilities: list[str] = []
    if running is not None:
        now = running.client.stats
        limit = running.processors.limits.max_waiting_requests
        stats = {
            "queue_fraction": now.waiting / limit,
            "queue_absolute": now.waiting,
            "results_pending": now.running,
            "batch_size": running.processors.limits.max_num_seqs,
        }
        tasks = running.processors.supported_tasks
        capabilities = [task for task in ("embed", "classify") if task in tasks]
        capabilities += ["rerank"] if running.processors.score_kind else []
    return {
        "id": entry.name,
        "object": "model",
        "owned_by": "infinity",  # its own client takes no other
        "created": entry.model.created,
        "backend": "cenote",
        "capabilities": capabilities,
        "stats": stats,
    }
