"""POST /score and /rerank: how well documents fit queries, by whatever the model can do.

The two routes have aliases under /v1 and /v2, as clients of other servers ask there.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote.outputs import RankedDocument, Ranking, Score
from cenote.server.dispatch import Answer, Finished
from cenote.server.openapi import describe
from cenote.server.routing import plain_router
from cenote.server.schemas.score import (
    RerankRequest,
    RerankResponse,
    ScoreRequest,
    ScoreResponse,
)
from cenote.server.state import Call, received

router = plain_router("score")

# Cohere bills a search unit for a query with up to so many documents.
DOCUMENTS_PER_SEARCH_UNIT = 100


@router.post("/score", **describe(ScoreResponse, ScoreRequest))
@router.post("/v1/score", include_in_schema=False)
async def create_score(request: Request) -> Response:
    """A score for each pair, in the order of the input."""
    body, call = await received(request, ScoreRequest)
    texts = body.to_input(call.request_id, call.target.adapter)
    call.limit(texts.queries, "queries")
    call.limit(texts.documents, "documents")
    return await call.run(
        partial(call.target.model.processors.score, texts), partial(_render_scores, call)
    )


@router.post("/rerank", **describe(RerankResponse, RerankRequest))
@router.post("/v1/rerank", include_in_schema=False)
@router.post("/v2/rerank", include_in_schema=False)
async def create_rerank(request: Request) -> Response:
    """The documents by their score with the query, best first."""
    body, call = await received(request, RerankRequest)
    call.limit(body.documents, "documents")
    texts = body.to_input(call.request_id, call.target.adapter)
    has_texts = body.return_documents is not False
    return await call.run(
        partial(call.target.model.processors.rerank, texts),
        partial(_render_ranking, call, len(body.documents), has_texts),
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
            **_matches(result),
        }
        for index, result in enumerate(finished.result)
    ]
    truncated = sum(result.truncated for result in finished.result)
    return Answer.json(frame, truncated)


def _render_ranking(
    call: Call, documents: int, has_texts: bool, finished: Finished[Ranking]
) -> Answer:
    ranked = finished.result.results
    cut = sorted(item.index for item in ranked if item.truncated)
    meta: dict[str, Any] = {
        "api_version": {"version": "2"},
        "billed_units": {"search_units": -(-documents // DOCUMENTS_PER_SEARCH_UNIT)},
        "tokens": {"input_tokens": finished.prompt_tokens},
    }
    if cut:
        meta["warnings"] = [f"documents[{index}] was truncated." for index in cut]
    frame = call.frame("rerank", finished, "rerank")
    frame["results"] = [_ranked(item, has_texts) for item in ranked]
    frame["meta"] = meta
    return Answer.json(frame, len(cut))


def _ranked(item: RankedDocument, has_text: bool) -> dict[str, Any]:
    text = {"document": {"text": item.document, "multi_modal": None}} if has_text else {}
    return {
        "index": item.index,
        "relevance_score": item.relevance_score,
        "truncated": item.truncated,
        **text,
        **_matches(item),
    }


def _matches(item: Score | RankedDocument) -> dict[str, Any]:
    if item.matches is None:
        return {}
    return {"matches": [asdict(match) for match in item.matches]}
