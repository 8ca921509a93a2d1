"""A caller's salt and media options reach every engine prompt, whatever the route and dialect."""

from __future__ import annotations

from typing import Any

import pytest
from fake_engine import FakeEngine
from fastapi.testclient import TestClient

from cenote.config.server import ServerConfig
from cenote.server.app import create_app
from conftest import MakeModel

EXTRAS = {
    "cache_salt": "tenant",
    "mm_processor_kwargs": {"size": 1, "unset": None},
    "chat_template_kwargs": {"secret": "for the template"},
}
TEXTS = ["a", "b"]
RANKS: dict[str, Any] = {"query": "q", "documents": TEXTS}
TEI_RANKS: dict[str, Any] = {"query": "q", "texts": TEXTS}
SENTENCES = {"source_sentence": "a", "sentences": ["b", "c"]}

INPUT: dict[str, Any] = {"input": TEXTS}
INPUTS: dict[str, Any] = {"inputs": TEXTS}
COHERE: dict[str, Any] = {"texts": TEXTS, "input_type": "search_query"}
PAIRS: dict[str, Any] = {"text_1": "q", "text_2": TEXTS}

# A model and a body for each documented route that runs prompts, and for what else it takes.
RUNS: list[tuple[str, str, dict[str, Any]]] = [
    ("/v1/embeddings", "embedder", INPUT),
    ("/vllm/v1/embeddings", "embedder", INPUT),
    ("/jina/v1/embeddings", "embedder", INPUT),
    ("/voyage/v1/embeddings", "embedder", INPUT),
    ("/infinity/embeddings", "embedder", INPUT),
    ("/v1/multi-vector", "embedder", INPUT),
    ("/jina/v1/multi-vector", "embedder", INPUT),
    ("/pooling", "embedder", INPUT),
    ("/vllm/pooling", "embedder", INPUT),
    ("/classify", "classifier", INPUT),
    ("/vllm/classify", "classifier", INPUT),
    ("/infinity/classify", "classifier", INPUT),
    ("/score", "reranker", PAIRS),
    ("/vllm/score", "reranker", PAIRS),
    ("/rerank", "reranker", RANKS),
    ("/rerank", "reranker", TEI_RANKS),
    ("/vllm/rerank", "reranker", RANKS),
    ("/jina/v1/rerank", "reranker", RANKS),
    ("/cohere/v2/rerank", "reranker", RANKS),
    ("/voyage/v1/rerank", "reranker", RANKS),
    ("/infinity/rerank", "reranker", RANKS),
    ("/tei/rerank", "reranker", TEI_RANKS),
    ("/v1/embed", "embedder", COHERE),
    ("/v2/embed", "embedder", COHERE),
    ("/cohere/v1/embed", "embedder", COHERE),
    ("/cohere/v2/embed", "embedder", COHERE),
    ("/vllm/v2/embed", "embedder", COHERE),
    ("/embed", "embedder", INPUTS),
    ("/embed_all", "embedder", INPUTS),
    ("/embed_sparse", "embedder", INPUTS),
    ("/predict", "classifier", {"inputs": [["a"], ["b", "c"]]}),
    ("/similarity", "embedder", {"inputs": SENTENCES}),
    ("/api/embed", "embedder", INPUT),
    ("/api/embeddings", "embedder", {"prompt": "a"}),
    ("/", "embedder", INPUTS),
    ("/", "embedder", {"inputs": SENTENCES}),
    ("/", "classifier", INPUTS),
    ("/", "tagger", INPUTS),
    ("/invocations", "reranker", RANKS),
    ("/invocations", "embedder", INPUTS),
]
NO_PROMPTS = ("tokenize", "detokenize", "decode")


@pytest.fixture
def engines() -> dict[str, FakeEngine]:
    return {
        "embedder": FakeEngine(["embed", "token_embed", "sparse_embed"]),
        "reranker": FakeEngine(["classify"], labels=1),
        "classifier": FakeEngine(["classify"]),
        "tagger": FakeEngine(["token_classify"]),
    }


@pytest.fixture
def client(engines: dict[str, FakeEngine], make_model: MakeModel) -> TestClient:
    models = [make_model(engine, names=(name,)) for name, engine in engines.items()]
    return TestClient(create_app(models, ServerConfig()))


@pytest.mark.parametrize(("path", "model", "body"), RUNS)
def test_extras_reach_every_prompt_of_every_route(
    client: TestClient, engines: dict[str, FakeEngine], path: str, model: str, body: dict[str, Any]
) -> None:
    answer = client.post(path, json={**body, "model": model, **EXTRAS})
    assert answer.status_code == 200, answer.text
    assert engines[model].requests
    for request in engines[model].requests:
        assert request.prompt.cache_salt == "tenant"
        assert request.prompt.mm_processor_kwargs == {"size": 1}
        assert "for the template" not in repr(request)
    for wrong in ("", "x" * 1025, 5):
        refused = client.post(path, json={**body, "model": model, "cache_salt": wrong})
        assert 400 <= refused.status_code < 500
        assert "cache_salt" in refused.text


def test_no_documented_route_is_left_out(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    posts = {path for path, methods in paths.items() if "post" in methods}
    assert {path for path, _, _ in RUNS} == {
        path for path in posts if path.rpartition("/")[2] not in NO_PROMPTS
    }
