"""POST /v1/embed and /v2/embed: Cohere's embeddings. Its rerank is with the others in `rerank`."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote.errors import InputTooLong
from cenote.outputs import Embedding
from cenote.processors.prepared import Prepared
from cenote.processors.quantize import check_precision
from cenote.server.dispatch import Answer, Finished
from cenote.server.encoding import VectorType, typed
from cenote.server.openapi import describe
from cenote.server.routing import plain_router
from cenote.server.schemas.cohere import CohereEmbedRequest, CohereEmbedResponse
from cenote.server.state import Call, received

router = plain_router("cohere")

PARAM = "embedding_types"


@router.post("/v2/embed", **describe(CohereEmbedResponse, CohereEmbedRequest))
async def create_embed(request: Request) -> Response:
    """Vectors of texts, by their form."""
    return await _embed(request, 2)


@router.post("/v1/embed", **describe(CohereEmbedResponse, CohereEmbedRequest))
async def create_embed_1(request: Request) -> Response:
    """Vectors of texts; a plain list unless embedding_types asks for more."""
    return await _embed(request, 1)


@router.post(
    "/cohere/v2/embed", **describe(CohereEmbedResponse, CohereEmbedRequest, dialect="cohere")
)
async def create_cohere_embed(request: Request) -> Response:
    """/v2/embed with Cohere's errors."""
    return await _embed(request, 2)


@router.post(
    "/cohere/v1/embed", **describe(CohereEmbedResponse, CohereEmbedRequest, dialect="cohere")
)
async def create_cohere_embed_1(request: Request) -> Response:
    """/v1/embed with Cohere's errors."""
    return await _embed(request, 1)


@router.post("/vllm/v2/embed", **describe(CohereEmbedResponse, CohereEmbedRequest, dialect="vllm"))
async def create_vllm_embed(request: Request) -> Response:
    """/v2/embed with vLLM's errors."""
    return await _embed(request, 2)


async def _embed(request: Request, version: int) -> Response:
    body, call = await received(request, CohereEmbedRequest)
    ready = call.target.model.client.ready
    texts = body.prompts()
    call.limit(texts, "texts")
    for kind in body.kinds():
        if kind not in ("float", "base64"):
            check_precision(kind, body.output_dimension or ready.embedding_size, param=PARAM)
    inputs = body.to_input(call.request_id, call.target.adapter, ready.max_model_len)

    def prepare() -> Prepared[list[Embedding]]:
        prepared = call.target.model.processors.embed(inputs)
        if body.truncate == "NONE" and body.max_tokens is not None:
            longest = max(len(item.prompt.token_ids) for item in prepared.requests)
            if longest > body.max_tokens:
                raise InputTooLong(longest, body.max_tokens, param="max_tokens")
        return prepared

    # Version 1 gives a plain list to those who don't ask for forms.
    by_type = version == 2 or body.embedding_types is not None
    render = partial(_render, call, version, body.kinds() if by_type else None, texts)
    return await call.run(prepare, render)


def _render(
    call: Call,
    version: int,
    kinds: list[VectorType] | None,
    texts: list[str],
    finished: Finished[list[Embedding]],
) -> Answer:
    results = finished.result
    vectors: Any = [item.embedding for item in results]
    if kinds is not None:
        quantizer = call.target.model.processors.quantizer
        vectors = {
            kind: [typed(item.embedding, kind, quantizer, param=PARAM) for item in results]
            for kind in kinds
        }
    cut = [f"texts[{index}] was truncated." for index, item in enumerate(results) if item.truncated]
    meta: dict[str, Any] = {
        "api_version": {"version": str(version)},
        "billed_units": {"input_tokens": finished.prompt_tokens},
    }
    if cut:
        meta["warnings"] = cut
    body = {
        "id": call.request_id,
        "response_type": "embeddings_floats" if kinds is None else "embeddings_by_type",
        "embeddings": vectors,
        "texts": texts,
        "meta": meta,
    }
    return Answer.json(body, len(cut))
