"""POST /rerank: documents by how well they fit a query, in the shape that the client reads.

The plain paths answer with one superset of vLLM's, Cohere's and Jina's shapes; a dialect's prefix
settles shape, defaults and errors. A body with `texts` is text-embeddings-inference's (see `tei`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cenote.outputs import RankedDocument, Ranking
from cenote.server.dialects import set_dialect
from cenote.server.dispatch import Answer, Finished
from cenote.server.openapi import describe
from cenote.server.routes.score import matches
from cenote.server.routes.tei import rerank_texts
from cenote.server.routing import plain_router
from cenote.server.schemas.cohere import CohereRerankRequest, CohereRerankResponse
from cenote.server.schemas.infinity import InfinityRerankRequest, InfinityRerankResponse
from cenote.server.schemas.rerank import RerankRequest, RerankResponse
from cenote.server.schemas.tei import TeiRerankRequest
from cenote.server.schemas.voyage import VoyageRerankRequest, VoyageRerankResponse
from cenote.server.state import Call, received

router = plain_router("rerank")

# Cohere bills a search unit for a query with up to so many documents.
DOCUMENTS_PER_SEARCH_UNIT = 100

Render = Callable[[Call, RerankRequest, Finished[Ranking]], dict[str, Any]]


@router.post("/rerank", **describe(RerankResponse, RerankRequest))
@router.post("/v1/rerank", include_in_schema=False)
@router.post("/v2/rerank", include_in_schema=False)
async def create_rerank(request: Request) -> Response:
    """The documents by their score with the query, best first.

    With `texts` in place of documents it is text-embeddings-inference's, as at /tei/rerank.
    """

    def kind(fields: Mapping[str, Any]) -> type[RerankRequest | TeiRerankRequest]:
        if "texts" not in fields or "documents" in fields:
            return RerankRequest
        set_dialect(request.scope, "tei")
        return TeiRerankRequest

    body, call = await received(request, kind)
    if isinstance(body, RerankRequest):
        return await rerank(body, call, _superset)
    return await rerank_texts(body, call)


@router.post("/vllm/rerank", **describe(RerankResponse, RerankRequest, dialect="vllm"))
@router.post("/vllm/v1/rerank", include_in_schema=False)
@router.post("/vllm/v2/rerank", include_in_schema=False)
async def create_vllm_rerank(request: Request) -> Response:
    """/rerank with vLLM's errors."""
    return await rerank(*await received(request, RerankRequest), _superset)


@router.post("/jina/v1/rerank", **describe(RerankResponse, RerankRequest, dialect="jina"))
async def create_jina_rerank(request: Request) -> Response:
    """/rerank with Jina's errors."""
    return await rerank(*await received(request, RerankRequest), _superset)


@router.post(
    "/cohere/v2/rerank", **describe(CohereRerankResponse, CohereRerankRequest, dialect="cohere")
)
@router.post("/cohere/v1/rerank", include_in_schema=False)
async def create_cohere_rerank(request: Request) -> Response:
    """Cohere's rerank, versions 1 and 2: its defaults, its answer and its errors."""
    return await rerank(*await received(request, CohereRerankRequest), _cohere)


@router.post(
    "/voyage/v1/rerank", **describe(VoyageRerankResponse, VoyageRerankRequest, dialect="voyage")
)
async def create_voyage_rerank(request: Request) -> Response:
    """Voyage's rerank: its defaults, its answer and its errors."""
    return await rerank(*await received(request, VoyageRerankRequest), _voyage)


@router.post(
    "/infinity/rerank",
    **describe(InfinityRerankResponse, InfinityRerankRequest, dialect="infinity"),
)
async def create_infinity_rerank(request: Request) -> Response:
    """Infinity's rerank: its defaults, its answer and its errors."""
    return await rerank(*await received(request, InfinityRerankRequest), _infinity)


async def rerank(body: RerankRequest, call: Call, render: Render) -> Response:
    """Ranks the documents of any dialect's body, and answers in the shape that `render` makes."""
    call.limit(body.documents, "documents")
    model = call.target.model
    texts = body.to_input(call.request_id, call.target.adapter, model.client.ready.max_model_len)

    def answer(finished: Finished[Ranking]) -> Answer:
        cut = sum(item.truncated for item in finished.result.results)
        return Answer.json(render(call, body, finished), cut)

    return await call.run(partial(model.processors.rerank, texts), answer)


def _meta(body: RerankRequest, finished: Finished[Ranking], version: str) -> dict[str, Any]:
    cut = sorted(item.index for item in finished.result.results if item.truncated)
    units = -(-len(body.documents) // DOCUMENTS_PER_SEARCH_UNIT)
    warnings = [f"documents[{index}] was truncated." for index in cut]
    return {
        "api_version": {"version": version},
        "billed_units": {"search_units": units},
        "tokens": {"input_tokens": finished.prompt_tokens},
        **({"warnings": warnings} if warnings else {}),
    }


def _superset(call: Call, body: RerankRequest, finished: Finished[Ranking]) -> dict[str, Any]:
    frame = call.frame("rerank", finished, "rerank")
    frame["results"] = [_ranked(body, item) for item in finished.result.results]
    if body.top_k is not None:
        frame["data"] = frame["results"]
    return {**frame, "meta": _meta(body, finished, "2")}


def _ranked(body: RerankRequest, item: RankedDocument) -> dict[str, Any]:
    member: dict[str, Any] = {}
    if body.return_documents is not False:
        whole = body.documents[item.index] if body.rank_fields else None
        text = {"text": item.document, "multi_modal": None}
        member["document"] = whole if isinstance(whole, dict) else text
    return {
        "index": item.index,
        "relevance_score": item.relevance_score,
        "truncated": item.truncated,
        **member,
        **matches(item),
    }


def _cohere(call: Call, body: RerankRequest, finished: Finished[Ranking]) -> dict[str, Any]:
    results = []
    for item in finished.result.results:
        result: dict[str, Any] = {"index": item.index, "relevance_score": item.relevance_score}
        if body.return_documents:
            document = body.documents[item.index]
            result["document"] = document if isinstance(document, dict) else {"text": document}
        results.append(result)
    version = call.request.url.path.rsplit("/", 2)[1].removeprefix("v")
    return {"id": call.request_id, "results": results, "meta": _meta(body, finished, version)}


def _with_text(body: RerankRequest, item: RankedDocument) -> dict[str, Any]:
    text = {"document": item.document} if body.return_documents else {}
    return {
        "index": item.index,
        "relevance_score": item.relevance_score,
        "truncated": item.truncated,
        **text,
    }


def _voyage(call: Call, body: RerankRequest, finished: Finished[Ranking]) -> dict[str, Any]:
    frame = call.frame("rerank", finished)
    return {
        "object": "list",
        "data": [_with_text(body, item) for item in finished.result.results],
        "model": frame["model"],
        "usage": frame["usage"],
    }


def _infinity(call: Call, body: RerankRequest, finished: Finished[Ranking]) -> dict[str, Any]:
    frame = call.frame("rerank", finished, "rerank")
    return {**frame, "results": [_with_text(body, item) for item in finished.result.results]}
