"""POST /v1/embeddings: OpenAI's embeddings, and what Jina's and Voyage's callers ask on that path.

The same under the prefixes of vLLM, Jina, Voyage and Infinity, which settle defaults and errors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote.errors import InvalidRequest
from cenote.outputs import Embedding, TokenEmbeddings
from cenote.server.dispatch import Answer, Finished
from cenote.server.encoding import sparse_json
from cenote.server.openapi import describe
from cenote.server.raw import RawItem, raw_response
from cenote.server.routing import plain_router
from cenote.server.schemas.embed import EmbeddingRequest, EmbeddingResponse
from cenote.server.schemas.infinity import InfinityEmbeddingRequest
from cenote.server.schemas.jina import MultiVectorRequest
from cenote.server.schemas.voyage import VoyageEmbeddingRequest
from cenote.server.state import Call, received
from cenote.server.vectors import Wire

router = plain_router("embeddings")

# What encoding_format bytes and bytes_only answer with.
RAW = "application/octet-stream"


@router.post("/v1/embeddings", **describe(EmbeddingResponse, EmbeddingRequest, other_kind=RAW))
@router.post("/embeddings", include_in_schema=False)
async def create_embeddings(request: Request) -> Response:
    """One vector for each input, in the order of the input."""
    return await _answer(*await received(request, EmbeddingRequest))


@router.post(
    "/vllm/v1/embeddings",
    **describe(EmbeddingResponse, EmbeddingRequest, other_kind=RAW, dialect="vllm"),
)
async def create_vllm_embeddings(request: Request) -> Response:
    """/v1/embeddings with vLLM's errors."""
    return await _answer(*await received(request, EmbeddingRequest))


@router.post(
    "/jina/v1/embeddings",
    **describe(EmbeddingResponse, EmbeddingRequest, other_kind=RAW, dialect="jina"),
)
async def create_jina_embeddings(request: Request) -> Response:
    """/v1/embeddings with Jina's errors."""
    return await _answer(*await received(request, EmbeddingRequest))


@router.post(
    "/voyage/v1/embeddings",
    **describe(EmbeddingResponse, VoyageEmbeddingRequest, other_kind=RAW, dialect="voyage"),
)
async def create_voyage_embeddings(request: Request) -> Response:
    """/v1/embeddings with Voyage's defaults and errors."""
    return await _answer(*await received(request, VoyageEmbeddingRequest))


@router.post(
    "/infinity/embeddings",
    **describe(EmbeddingResponse, InfinityEmbeddingRequest, other_kind=RAW, dialect="infinity"),
)
async def create_infinity_embeddings(request: Request) -> Response:
    """/v1/embeddings with Infinity's defaults and errors."""
    return await _answer(*await received(request, InfinityEmbeddingRequest))


@router.post("/v1/multi-vector", **describe(EmbeddingResponse, MultiVectorRequest, other_kind=RAW))
async def create_multi_vectors(request: Request) -> Response:
    """A vector for each token of each input, as ColBERT models give them (Jina's form)."""
    return await _answer(*await received(request, MultiVectorRequest))


@router.post(
    "/jina/v1/multi-vector",
    **describe(EmbeddingResponse, MultiVectorRequest, other_kind=RAW, dialect="jina"),
)
async def create_jina_multi_vectors(request: Request) -> Response:
    """/v1/multi-vector with Jina's errors."""
    return await _answer(*await received(request, MultiVectorRequest))


async def _answer(body: EmbeddingRequest, call: Call) -> Response:
    call.limit(body.input, "input")
    model = call.target.model
    param = "output_dtype" if body.output_dtype else "embedding_type"
    wire = Wire(body.encoding(), model.processors.quantizer, body.precision(), body.kinds(), param)
    wire.check(body.dimensions or model.client.ready.embedding_size)
    if body.return_multivector:
        options = body.options(call.request_id, call.target.adapter)
        tokens = body.to_token_input(options)
        return await call.run(
            partial(model.processors.pooling, tokens), partial(_render, call, wire)
        )
    prompts = body.to_input(call.request_id, call.target.adapter)
    if prompts.sparse is not None and wire.encoding.is_raw:
        raise InvalidRequest(
            f"encoding_format {wire.encoding.format} has no place for return_sparse; use float or "
            "base64.",
            param="encoding_format",
        )
    return await call.run(partial(model.processors.embed, prompts), partial(_render, call, wire))


def _render(
    call: Call, wire: Wire, finished: Finished[list[Embedding | TokenEmbeddings]]
) -> Answer:
    results = finished.result
    frame = call.frame("embd", finished)
    truncated = sum(result.truncated for result in results)
    if wire.encoding.is_raw:
        items = [RawItem(wire.array(_vectors(r)), r.prompt_tokens, r.truncated) for r in results]
        return Answer(raw_response(frame, wire.encoding, items), truncated)
    frame["data"] = [
        {
            "object": "embedding",
            "index": index,
            **_members(wire, result),
            "prompt_tokens": result.prompt_tokens,
            "truncated": result.truncated,
        }
        for index, result in enumerate(results)
    ]
    return Answer.json(frame, truncated)


def _vectors(result: Embedding | TokenEmbeddings) -> Any:
    return result.embedding if isinstance(result, Embedding) else result.embeddings


def _members(wire: Wire, result: Embedding | TokenEmbeddings) -> dict[str, Any]:
    """The members with vectors."""
    value = wire.value(_vectors(result))
    if isinstance(result, TokenEmbeddings):
        return {"embeddings": value}
    sparse = {} if result.sparse is None else {"sparse_embedding": sparse_json(result.sparse)}
    span = {} if result.span is None else dict(zip(("start", "end"), result.span, strict=True))
    return {"embedding": value, **sparse, **span}
