"""What vLLM's clients ask beside the shared routes: /invocations, /ping, and /vllm's own errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from cenote.errors import InvalidRequest
from cenote.server.openapi import describe
from cenote.server.parsing import read
from cenote.server.routes import classify, embed, pooling, rerank, score
from cenote.server.routes.huggingface import run_inputs
from cenote.server.routes.system import health
from cenote.server.routing import plain_router
from cenote.server.schemas.classify import ClassifyRequest, ClassifyResponse
from cenote.server.schemas.pooling import PoolingRequest, PoolingResponse
from cenote.server.schemas.score import PAIRS
from cenote.server.schemas.vllm import Invocation
from cenote.server.state import server_of

router = plain_router("vllm")


@router.post(
    "/vllm/pooling",
    **describe(PoolingResponse, PoolingRequest, dialect="vllm", other_kind=embed.RAW),
)
async def create_pooling(request: Request) -> Response:
    """/pooling with vLLM's errors."""
    return await pooling.create_pooling(request)


@router.post("/vllm/classify", **describe(ClassifyResponse, ClassifyRequest, dialect="vllm"))
async def create_classification(request: Request) -> Response:
    """/classify with vLLM's errors."""
    return await classify.create_classification(request)


@router.get("/ping", **describe(None))
@router.post("/ping", include_in_schema=False)
async def ping(request: Request) -> Response:
    """The same as /health, where SageMaker asks for it."""
    return await health(request)


@router.post(
    "/invocations", **describe(dict[str, Any] | list[Any], Invocation, other_kind=embed.RAW)
)
async def invoke(request: Request) -> Response:
    """SageMaker's one route: the body's fields say which of the others is meant.

    query: rerank. inputs: a text-embeddings-inference body. A pair of fields of /score: score.
    task: pooling. input or messages: embeddings, classify or pooling, by what the model does.
    """
    fields = _fields(await read(request))
    if "query" in fields:
        return await rerank.create_rerank(request)
    if "inputs" in fields:
        return await run_inputs(request)
    if any(name in fields for pair in PAIRS for name in pair):
        return await score.create_score(request)
    if "task" in fields:
        return await pooling.create_pooling(request)
    if not fields.keys() & {"input", "messages"}:
        raise InvalidRequest(
            "None of the fields that say what is meant is there: input, messages, inputs, query, "
            "queries, data_1, text_1, task.",
            param="input",
        )
    return await _by_model(request, fields)


async def _by_model(request: Request, fields: Mapping[str, Any]) -> Response:
    name = fields.get("model")
    target = await server_of(request).models.start(name if isinstance(name, str) else None)
    tasks = target.model.processors.supported_tasks
    if "embed" in tasks:
        return await embed.create_embeddings(request)
    if "classify" in tasks:
        return await classify.create_classification(request)
    return await pooling.create_pooling(request)


def _fields(body: bytes) -> Mapping[str, Any]:
    """The body's fields; the route that is meant checks them, and tells what is wrong."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}.") from None
    if not isinstance(fields, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return fields
