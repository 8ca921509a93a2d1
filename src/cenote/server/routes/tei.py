"""The native routes of text-embeddings-inference (TEI), also under /tei.

Answers are bare lists, as its clients read them, and headers tell the times. /rerank and /tokenize
are shared with other dialects: their own files ask for the functions here and in `tei_tokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from cenote import __version__
from cenote.outputs import (
    Classification,
    Embedding,
    Ranking,
    SparseEmbedding,
    TokenEmbeddings,
)
from cenote.processors.score.similarity import similarity
from cenote.server.dispatch import Answer, Finished
from cenote.server.openapi import describe
from cenote.server.routing import plain_router
from cenote.server.schemas.tei import (
    TeiEmbedRequest,
    TeiInfo,
    TeiInputs,
    TeiPrediction,
    TeiPredictRequest,
    TeiRank,
    TeiRerankRequest,
    TeiSimilarityRequest,
    TeiSparseValue,
)
from cenote.server.state import Call, received, server_of

router = plain_router("text-embeddings-inference")

_describe = partial(describe, dialect="tei")


@router.post("/embed", **_describe(list[list[float]], TeiEmbedRequest))
@router.post("/tei/embed", include_in_schema=False)
async def embed(request: Request) -> Response:
    """A vector for each input."""
    return await embed_inputs(*await received(request, TeiEmbedRequest))


async def embed_inputs(body: TeiEmbedRequest, call: Call) -> Response:
    """A vector for each input of a checked body."""
    inputs = body.to_input(call.request_id, call.target.adapter)
    call.limit(inputs.prompts, "inputs")

    def render(finished: Finished[list[Embedding]]) -> Answer:
        rows = [item.embedding for item in finished.result]
        return _answer(call, body.inputs, rows, finished, finished.result)

    return await call.run(partial(call.target.model.processors.embed, inputs), render)


@router.post("/embed_all", **_describe(list[list[list[float]]], TeiInputs))
@router.post("/tei/embed_all", include_in_schema=False)
async def embed_all(request: Request) -> Response:
    """A vector for each token of each input."""
    body, call = await received(request, TeiInputs)
    inputs = body.to_pooling(call.request_id, call.target.adapter, "token_embed")
    call.limit(inputs.prompts, "inputs")

    def render(finished: Finished[list[TokenEmbeddings]]) -> Answer:
        rows = [item.embeddings for item in finished.result]
        return _answer(call, body.inputs, rows, finished, finished.result)

    return await call.run(partial(call.target.model.processors.pooling, inputs), render)


@router.post("/embed_sparse", **_describe(list[list[TeiSparseValue]], TeiInputs))
@router.post("/tei/embed_sparse", include_in_schema=False)
async def embed_sparse(request: Request) -> Response:
    """A sparse vector for each input, of models with such a head."""
    body, call = await received(request, TeiInputs)
    inputs = body.to_pooling(call.request_id, call.target.adapter, "sparse_embed")
    call.limit(inputs.prompts, "inputs")

    def render(finished: Finished[list[SparseEmbedding]]) -> Answer:
        rows = [
            [
                {"index": index, "value": value}
                for index, value in zip(item.token_ids.tolist(), item.weights.tolist(), strict=True)
            ]
            for item in finished.result
        ]
        return _answer(call, body.inputs, rows, finished, finished.result)

    return await call.run(partial(call.target.model.processors.pooling, inputs), render)


@router.post(
    "/predict", **_describe(list[TeiPrediction] | list[list[TeiPrediction]], TeiPredictRequest)
)
@router.post("/tei/predict", include_in_schema=False)
async def predict(request: Request) -> Response:
    """Classes of texts or pairs, best first: a list for one input, a list of lists for several."""
    body, call = await received(request, TeiPredictRequest)
    return await predict_inputs(body, call, nested=body.is_batch)


async def predict_inputs(
    body: TeiPredictRequest, call: Call, *, nested: bool, top_k: int | None = None
) -> Response:
    """Classes of a checked body's inputs, at most `top_k` of each.

    `nested` is a list of lists also for one input.
    """
    inputs = body.to_input(call.request_id, call.target.adapter)
    call.limit(inputs.prompts, "inputs")

    def render(finished: Finished[list[Classification]]) -> Answer:
        rows = [label_scores(item)[:top_k] for item in finished.result]
        texts = [part for pair in body.inputs for part in pair if part]
        return _answer(call, texts, rows if nested else rows[0], finished, finished.result)

    return await call.run(partial(call.target.model.processors.classify, inputs), render)


def label_scores(result: Classification) -> list[dict[str, Any]]:
    """A text's classes with their scores, best first."""
    names = result.labels or [f"LABEL_{i}" for i in range(len(result.probs))]
    order = np.argsort(-result.probs, kind="stable")
    return [{"score": float(result.probs[i]), "label": names[i]} for i in order]


@router.post("/tei/rerank", **_describe(list[TeiRank], TeiRerankRequest))
async def rerank(request: Request) -> Response:
    """The texts by their score with the query, best first. Also at /rerank, by the field texts."""
    return await rerank_texts(*await received(request, TeiRerankRequest))


async def rerank_texts(body: TeiRerankRequest, call: Call) -> Response:
    """The ranking of a checked body."""
    call.limit(body.texts, "texts")
    inputs = body.to_input(call.request_id, call.target.adapter)

    def render(finished: Finished[Ranking]) -> Answer:
        rows = [
            {
                "index": item.index,
                "score": item.relevance_score,
                **({"text": item.document} if body.return_text else {}),
            }
            for item in finished.result.results
        ]
        texts = [body.query, *body.texts]
        return _answer(call, texts, rows, finished, finished.result.results)

    return await call.run(partial(call.target.model.processors.rerank, inputs), render)


@router.post("/similarity", **_describe(list[float], TeiSimilarityRequest))
@router.post("/tei/similarity", include_in_schema=False)
async def compare(request: Request) -> Response:
    """The cosine of the source sentence with each of the others."""
    return await compare_texts(*await received(request, TeiSimilarityRequest))


async def compare_texts(body: TeiSimilarityRequest, call: Call) -> Response:
    """The cosines of a checked body."""
    call.limit(body.inputs.sentences, "inputs.sentences")
    inputs = body.to_input(call.request_id, call.target.adapter)

    def render(finished: Finished[list[Embedding]]) -> Answer:
        vectors = np.stack([item.embedding for item in finished.result])
        scores = similarity("cosine", vectors[:1], vectors[1:])
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        return _answer(call, texts, scores, finished, finished.result)

    return await call.run(partial(call.target.model.processors.embed, inputs), render)


@router.get("/info", **_describe(TeiInfo))
@router.get("/tei/info", include_in_schema=False)
async def info(request: Request) -> Response:
    """What is served (the first model), and its limits."""
    server = server_of(request)
    target = await server.models.start(None)
    model, ready = target.model, target.model.client.ready
    body = {
        "model_id": model.config.name,
        "model_sha": model.config.revision,
        "model_dtype": ready.dtype,
        "served_model_name": target.name,
        "model_type": _model_type(target.model.processors.supported_tasks, model.config.labels),
        "max_concurrent_requests": model.processors.limits.max_waiting_requests,
        "max_input_length": ready.max_model_len,
        "max_batch_tokens": model.processors.limits.max_num_batched_tokens,
        "max_batch_requests": model.processors.limits.max_num_seqs,
        "max_client_batch_size": server.config.max_items_per_request,
        "auto_truncate": False,
        "tokenization_workers": server.config.threads,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }
    return Answer.json(body).response


def _model_type(tasks: Sequence[str], labels: Sequence[str]) -> dict[str, Any]:
    if "classify" in tasks:
        names = {str(i): name for i, name in enumerate(labels)}
        maps = {"id2label": names, "label2id": {name: int(i) for i, name in names.items()}}
        return {"reranker" if len(labels) == 1 else "classifier": maps}
    return {"embedding": {"pooling": "token" if "embed" not in tasks else "sentence"}}


def _answer(
    call: Call,
    texts: Sequence[Any],
    rows: Any,
    finished: Finished[Any],
    results: Sequence[Any],
) -> Answer:
    """The rows with the headers that tell what they took; times are milliseconds."""
    total = call.seconds()
    headers = {
        "x-compute-type": call.target.model.client.ready.device.partition(":")[0],
        "x-compute-time": _ms(total),
        "x-compute-characters": str(sum(len(t) for t in texts if isinstance(t, str))),
        "x-compute-tokens": str(finished.prompt_tokens),
        "x-total-time": _ms(total),
        "x-tokenization-time": _ms(finished.tokenize_time),
        "x-queue-time": _ms(finished.queue_time),
        "x-inference-time": _ms(finished.run_time),
    }
    cut = sum(item.truncated for item in results)
    if cut:
        headers["x-truncated-inputs"] = str(cut)
    return Answer.json(rows, cut, headers=headers)


def _ms(seconds: float) -> str:
    return str(round(seconds * 1000))
