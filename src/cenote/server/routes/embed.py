"""POST /v1/embeddings: OpenAI's embeddings."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from cenote.errors import InvalidRequest
from cenote.outputs import Embedding
from cenote.server.dispatch import Answer, Finished
from cenote.server.encoding import Encoding, sparse_json
from cenote.server.openapi import describe
from cenote.server.raw import RawItem, raw_response
from cenote.server.routing import plain_router
from cenote.server.schemas.embed import EmbeddingRequest, EmbeddingResponse
from cenote.server.state import Call, received

router = plain_router("embeddings")


@router.post("/v1/embeddings", **describe(EmbeddingResponse, EmbeddingRequest))
@router.post("/embeddings", include_in_schema=False)
async def create_embeddings(request: Request) -> Response:
    """One vector for each input, in the order of the input."""
    body, call = await received(request, EmbeddingRequest)
    call.limit(body.input, "input")
    prompts = body.to_input(call.request_id, call.target.adapter)
    processors = call.target.model.processors
    encoding = body.encoding()
    if prompts.sparse is not None and encoding.is_raw:
        raise InvalidRequest(
            f"encoding_format {encoding.format} has no place for return_sparse; use float or "
            "base64.",
            param="encoding_format",
        )
    return await call.run(partial(processors.embed, prompts), partial(_render, call, encoding))


def _render(call: Call, encoding: Encoding, finished: Finished[list[Embedding]]) -> Answer:
    results = finished.result
    frame = call.frame("embd", finished)
    truncated = sum(result.truncated for result in results)
    if encoding.is_raw:
        items = [RawItem(r.embedding, r.prompt_tokens, r.truncated) for r in results]
        return Answer(raw_response(frame, encoding, items), truncated)
    frame["data"] = [
        {
            "object": "embedding",
            "index": index,
            "embedding": encoding.value(result.embedding),
            "prompt_tokens": result.prompt_tokens,
            "truncated": result.truncated,
            **({} if result.sparse is None else {"sparse_embedding": sparse_json(result.sparse)}),
        }
        for index, result in enumerate(results)
    ]
    return Answer.json(frame, truncated)
