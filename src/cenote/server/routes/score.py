"""POST /score: how well documents fit queries, by whatever the model can do."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote.outputs import RankedDocument, Score
from cenote.server.dispatch import Answer, Finished
from cenote.server.openapi import describe
from cenote.server.routing import plain_router
from cenote.server.schemas.score import ScoreRequest, ScoreResponse
from cenote.server.state import Call, received

router = plain_router("score")


@router.post("/score", **describe(ScoreResponse, ScoreRequest))
@router.post("/v1/score", include_in_schema=False)
async def create_score(request: Request) -> Response:
    """A score for each pair, in the order of the input."""
    return await _score(request)


@router.post("/vllm/score", **describe(ScoreResponse, ScoreRequest, dialect="vllm"))
@router.post("/vllm/v1/score", include_in_schema=False)
async def create_vllm_score(request: Request) -> Response:
    """/score with vLLM's errors."""
    return await _score(request)


async def _score(request: Request) -> Response:
    body, call = await received(request, ScoreRequest)
    texts = body.to_input(call.request_id, call.target.adapter)
    call.limit(texts.queries, "queries")
    call.limit(texts.documents, "documents")
    return await call.run(
        partial(call.target.model.processors.score, texts), partial(_render_scores, call)
    )


def _render_scores(call: Call, finished: Finished[list[Score]]) -> Answer:
    frame = call.frame("score", finished)
    frame["data"] = [
        {
            "index": index,
            "object": "score",
            "score": result.score,
            "prompt_tokens": result.prompt_tokens,
            "truncated": result.truncated,
            **matches(result),
        }
        for index, result in enumerate(finished.result)
    ]
    truncated = sum(result.truncated for result in finished.result)
    return Answer.json(frame, truncated)


def matches(item: Score | RankedDocument) -> dict[str, Any]:
    """The member that tells why, where it was asked for."""
    if item.matches is None:
        return {}
    return {"matches": [asdict(match) for match in item.matches]}
