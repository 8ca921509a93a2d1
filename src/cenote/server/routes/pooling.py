"""POST /pooling: any task by name; what an item holds follows from its result's type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote.errors import InvalidRequest
from cenote.outputs import (
    Classification,
    Embedding,
    Entities,
    SparseEmbedding,
    TaskResults,
    TokenClassification,
    TokenEmbeddings,
)
from cenote.server.dispatch import Answer, Finished
from cenote.server.encoding import Encoding, sparse_json
from cenote.server.openapi import describe
from cenote.server.raw import RawItem, raw_response
from cenote.server.routing import plain_router
from cenote.server.schemas.pooling import PoolingRequest, PoolingResponse
from cenote.server.state import Call, received

router = plain_router("pooling")

Pooled = Embedding | Classification | TokenEmbeddings | TokenClassification | SparseEmbedding


@router.post(
    "/pooling", **describe(PoolingResponse, PoolingRequest, other_kind="application/octet-stream")
)
@router.post("/v1/pooling", include_in_schema=False)
async def create_pooling(request: Request) -> Response:
    """One result for each input, in the order of the input."""
    body, call = await received(request, PoolingRequest)
    call.limit(body.input, "input")
    processors = call.target.model.processors
    prompts = body.to_input(call.request_id, call.target.adapter, processors.supported_tasks)
    encoding = body.encoding()
    task = prompts.task or processors.default_task
    what: str = task if isinstance(task, str) else "several tasks"
    if prompts.aggregation_strategy is not None:
        what = "aggregation_strategy"
    structured = ("several tasks", "sparse_embed", "aggregation_strategy")
    if encoding.format != "float" and what in structured:
        raise InvalidRequest(
            f"encoding_format must be float for {what}, not {encoding.format}.",
            param="encoding_format",
        )
    return await call.run(
        partial(processors.pooling, prompts), partial(_render, call, encoding, task)
    )


def _render(
    call: Call,
    encoding: Encoding,
    task: str | Sequence[str],
    finished: Finished[list[Pooled | TaskResults | Entities]],
) -> Answer:
    results = finished.result
    frame = call.frame("pooling", finished) | {"task": task}
    truncated = sum(result.truncated for result in results)
    first = results[0] if results else None
    if isinstance(first, Classification | TokenClassification):
        frame["labels"] = first.labels
    if encoding.is_raw:
        items = [
            RawItem(_array(result), result.prompt_tokens, result.truncated)
            for result in results
            if not isinstance(result, SparseEmbedding | TaskResults | Entities)
        ]
        return Answer(raw_response(frame, encoding, items), truncated)
    frame["data"] = [
        {
            "index": index,
            "object": "pooling",
            **_item(result, encoding),
            "prompt_tokens": result.prompt_tokens,
            "truncated": result.truncated,
        }
        for index, result in enumerate(results)
    ]
    return Answer.json(frame, truncated)


def _array(result: Embedding | Classification | TokenEmbeddings | TokenClassification) -> Any:
    if isinstance(result, Embedding):
        return result.embedding
    return result.embeddings if isinstance(result, TokenEmbeddings) else result.probs


def _item(result: Pooled | TaskResults | Entities, encoding: Encoding) -> dict[str, Any]:
    """The members that depend on the result's type."""
    if isinstance(result, TaskResults):
        return {"data": {task: _item(one, encoding) for task, one in result.results.items()}}
    if isinstance(result, Entities):
        return {"data": [asdict(entity) for entity in result.entities]}
    if isinstance(result, SparseEmbedding):
        return {"data": sparse_json(result)}
    array = _array(result)
    item: dict[str, Any] = {"data": encoding.value(array)}
    if encoding.format == "base64":
        item["shape"] = array.shape
    if isinstance(result, TokenEmbeddings):
        item |= {"positions": result.positions, "token_ids": result.token_ids}
    elif isinstance(result, TokenClassification):
        item |= {"token_ids": result.token_ids, "offsets": result.offsets}
    elif isinstance(result, Classification):
        item["label"] = result.label
    return item
