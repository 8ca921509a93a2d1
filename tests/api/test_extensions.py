"""Extension fields over tiny real models: several outputs of a pass, entities, own labels."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from safetensors.torch import save_file

from cenote import LLM
from cenote.config.server import ServerConfig
from cenote.server.app import create_app
from cenote.server.served import ServedModel

TEXT = "Ann lives in Rome."
Serving = Callable[[Path], tuple[LLM, TestClient]]


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    """An app over a real engine in this process: `llm, client = serving(folder)`."""
    started: list[LLM] = []

    def make(folder: Path) -> tuple[LLM, TestClient]:
        llm = LLM(str(folder), dtype="float32", threads=1)
        started.append(llm)
        served = ServedModel(
            names=("tiny",),
            config=llm.model_config,
            tokenizer=llm._processors._preparer.tokenizer,
            processors=llm._processors,
            client=llm._client,
        )
        return llm, TestClient(create_app([served], ServerConfig()))

    yield make
    for llm in started:
        llm.close()


@pytest.fixture(scope="module")
def three(
    serving: Serving, tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[LLM, TestClient]:
    """An encoder with BGE-M3's two heads beside its weights."""
    folder = tmp_path_factory.mktemp("three") / "model"
    shutil.copytree(tiny_bert, folder)
    for name, out in (("sparse_linear", 1), ("colbert_linear", 32)):
        tensors = {"weight": torch.randn(out, 32), "bias": torch.ones(out)}
        save_file(tensors, folder / f"{name}.safetensors")
    return serving(folder)


def post(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    result: dict[str, Any] = response.json()
    return result


def test_embeddings_bring_the_sparse_vector_on_request(three: tuple[LLM, TestClient]) -> None:
    llm, client = three
    fields = {"return_sparse": True, "sparse_top_k": 2, "return_tokens": True}
    (item,) = post(client, "/v1/embeddings", input=TEXT, **fields)["data"]
    (dense,) = llm.embed(TEXT)
    (sparse,) = llm.encode(TEXT, task="sparse_embed", sparse_top_k=2, return_tokens=True)
    np.testing.assert_allclose(item["embedding"], dense.embedding, atol=1e-6)
    vector = item["sparse_embedding"]
    assert vector["indices"] == sparse.token_ids.tolist()
    assert vector["tokens"] == sparse.tokens
    np.testing.assert_allclose(vector["values"], sparse.weights, rtol=1e-6)
    (plain,) = post(client, "/v1/embeddings", input=TEXT)["data"]
    assert "sparse_embedding" not in plain
    refused = client.post("/v1/embeddings", json={"input": TEXT, "sparse_top_k": 2})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "return_sparse"


def test_pooling_does_several_tasks_at_once(three: tuple[LLM, TestClient]) -> None:
    _, client = three
    tasks = ["embed", "sparse_embed", "token_embed"]
    body = post(client, "/pooling", input=[TEXT, "x"], task=tasks)
    assert body["task"] == tasks
    for item in body["data"]:
        assert list(item["data"]) == tasks
        rows = item["data"]["token_embed"]
        assert len(rows["data"]) == len(rows["positions"]) == item["prompt_tokens"] - 1
        assert len(item["data"]["embed"]["data"]) == 32
    assert body["usage"]["prompt_tokens"] == sum(i["prompt_tokens"] for i in body["data"])
    both = {"input": TEXT, "task": tasks, "encoding_format": "base64"}
    assert client.post("/pooling", json=both).json()["error"]["param"] == "encoding_format"


def test_a_model_of_sparse_vectors_only_answers_embeddings_with_them(
    serving: Serving, make_tiny_bert: Callable[..., Path]
) -> None:
    _, client = serving(make_tiny_bert("BertForMaskedLM"))
    (item,) = post(client, "/v1/embeddings", input=TEXT, return_sparse=True)["data"]
    assert item["embedding"] == []
    assert len(item["sparse_embedding"]["indices"]) > 0
    scored = post(client, "/score", queries=TEXT, documents=[TEXT, "something else"])["data"]
    assert scored[0]["score"] > scored[1]["score"] > 0


def test_entities_come_with_their_place_in_the_text(
    serving: Serving, tiny_token_classifier: Path
) -> None:
    llm, client = serving(tiny_token_classifier)
    (item,) = post(client, "/pooling", input=TEXT, aggregation_strategy="simple")["data"]
    (ours,) = llm.encode(TEXT, aggregation_strategy="simple")
    assert [(e["label"], e["start"], e["end"]) for e in item["data"]] == [
        (e.label, e.start, e.end) for e in ours.entities
    ]
    wrong = client.post("/pooling", json={"input": TEXT, "aggregation_strategy": "words"})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "aggregation_strategy"


def test_classify_takes_labels_of_ones_own(
    serving: Serving, make_tiny_bert: Callable[..., Path]
) -> None:
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    folder = make_tiny_bert("BertForSequenceClassification", num_labels=3, id2label=names)
    _, client = serving(folder)
    body = post(client, "/classify", input=[TEXT, "x"], candidate_labels=["city", "food"])
    assert body["labels"] == ["city", "food"]
    for item in body["data"]:
        assert item["num_classes"] == 2
        assert abs(sum(item["probs"]) - 1) < 1e-5


def test_late_chunks_come_with_their_characters(serving: Serving, tiny_bert: Path) -> None:
    llm, client = serving(tiny_bert)
    fields = {"late_chunking": True, "chunk_size": 3}
    body = post(client, "/v1/embeddings", input=TEXT, **fields)
    assert [TEXT[i["start"] : i["end"]] for i in body["data"]] == ["Ann lives in", "Rome."]
    expected = llm.embed(TEXT, late_chunking=True, chunk_size=3)
    for item, ours in zip(body["data"], expected, strict=True):
        np.testing.assert_allclose(item["embedding"], ours.embedding, atol=1e-6)
    assert body["usage"]["prompt_tokens"] == 7
    assert len(post(client, "/v1/embeddings", input=["a", "b"], late_chunking=True)["data"]) == 2
    wrong = client.post("/v1/embeddings", json={"input": TEXT, "spans": [[0, 3]]})
    assert wrong.json()["error"]["param"] == "spans"


def test_a_long_input_is_averaged_on_request(serving: Serving, tiny_bert: Path) -> None:
    _, client = serving(tiny_bert)
    long = "word " * 300
    assert client.post("/v1/embeddings", json={"input": long}).status_code == 400
    (item,) = post(client, "/v1/embeddings", input=long, long_input="chunk_mean")["data"]
    assert abs(np.linalg.norm(item["embedding"]) - 1) < 1e-5
    assert item["prompt_tokens"] == 306


def test_sparse_vectors_agree_on_every_route(
    serving: Serving, make_tiny_bert: Callable[..., Path]
) -> None:
    _, client = serving(make_tiny_bert("BertForMaskedLM"))
    texts = [TEXT, "Bob lives in Paris, not in Rome."]
    whole = [item["data"] for item in post(client, "/pooling", input=texts)["data"]]
    for vector in whole:
        assert vector["values"] == sorted(vector["values"], reverse=True)
        assert min(vector["values"]) > 0
    (tei, other) = client.post("/embed_sparse", json={"inputs": texts}).json()
    assert [e["index"] for e in tei] == whole[0]["indices"]
    np.testing.assert_allclose([e["value"] for e in tei], whole[0]["values"], rtol=1e-6)
    assert len(other) == len(whole[1]["indices"])
    least = whole[0]["values"][4]
    fields = {"sparse_top_k": 3, "sparse_threshold": least, "return_tokens": True}
    (few,) = post(client, "/pooling", input=TEXT, **fields)["data"]
    assert few["data"]["indices"] == whole[0]["indices"][:3]
    asked = {"tokens": few["data"]["indices"], "model": "tiny"}
    ids = [client.post("/detokenize", json={**asked, "tokens": [at]}) for at in asked["tokens"]]
    assert [r.json()["prompt"] for r in ids] == [
        t.removeprefix("##") for t in few["data"]["tokens"]
    ]
    (heavy,) = post(client, "/pooling", input=TEXT, sparse_threshold=least)["data"]
    assert heavy["data"]["indices"] == whole[0]["indices"][:5]
    left, right = (dict(zip(v["indices"], v["values"], strict=True)) for v in whole)
    (scored,) = post(client, "/score", queries=texts[0], documents=texts[1])["data"]
    expected = sum(weight * right.get(index, 0.0) for index, weight in left.items())
    assert scored["score"] == pytest.approx(expected, rel=1e-5)


def test_scores_weigh_the_outputs_that_a_request_names(three: tuple[LLM, TestClient]) -> None:
    _, client = three
    texts = [TEXT, "Bob lives in Paris.", "a cenote"]
    weights = {"embed": 0.4, "sparse_embed": 0.2, "token_embed": 0.4}

    def scores(path: str, **fields: Any) -> list[float]:
        names = {"/score": "queries", "/rerank": "query"}
        body = post(client, path, **{names[path]: TEXT}, documents=texts, **fields)
        if path == "/score":
            return [item["score"] for item in body["data"]]
        ranked = {item["index"]: item["relevance_score"] for item in body["results"]}
        return [ranked[index] for index in range(len(texts))]

    each = {name: scores("/score", score_weights={name: 1}) for name in weights}
    assert each["embed"] == pytest.approx(scores("/score"))
    mean = sum(np.array(each[name]) * weight for name, weight in weights.items())
    for path in ("/score", "/rerank"):
        np.testing.assert_allclose(scores(path, score_weights=weights), mean, rtol=1e-5)
    wrong = client.post(
        "/rerank", json={"query": TEXT, "documents": texts, "score_weights": {"lexical": 1}}
    )
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "score_weights"


def test_spans_get_a_vector_each_and_their_characters_back(
    serving: Serving, tiny_bert: Path
) -> None:
    llm, client = serving(tiny_bert)
    text = "Zoë 😀 lives in Rome. Bob doesn't."
    spans = [[0, 5], [6, 20], [21, len(text)]]
    fields = {"late_chunking": True, "spans": spans}
    body = post(client, "/v1/embeddings", input=text, **fields)
    assert [[item["start"], item["end"]] for item in body["data"]] == spans
    for item, ours in zip(body["data"], llm.embed(text, **fields), strict=True):
        np.testing.assert_allclose(item["embedding"], ours.embedding, atol=1e-6)
    assert not np.allclose(body["data"][0]["embedding"], body["data"][1]["embedding"])


def test_dimensions_are_cut_and_then_normalised(
    serving: Serving, make_tiny_bert: Callable[..., Path]
) -> None:
    _, client = serving(make_tiny_bert(matryoshka_dimensions=[8, 16, 32]))
    (whole,) = post(client, "/v1/embeddings", input=TEXT)["data"]
    (cut,) = post(client, "/v1/embeddings", input=TEXT, dimensions=8)["data"]
    expected = np.array(whole["embedding"][:8])
    np.testing.assert_allclose(cut["embedding"], expected / np.linalg.norm(expected), atol=1e-6)
    wrong = client.post("/v1/embeddings", json={"input": TEXT, "dimensions": 9})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "dimensions"


def test_a_multi_label_classifier_gives_each_class_a_probability_of_its_own(
    serving: Serving, make_tiny_bert: Callable[..., Path]
) -> None:
    names = {0: "sport", 1: "politics", 2: "art"}
    several = {"problem_type": "multi_label_classification", "id2label": names}
    _, client = serving(make_tiny_bert("BertForSequenceClassification", num_labels=3, **several))
    (item,) = post(client, "/classify", input=TEXT)["data"]
    (raw,) = post(client, "/classify", input=TEXT, use_activation=False)["data"]
    np.testing.assert_allclose(item["probs"], 1 / (1 + np.exp(-np.array(raw["probs"]))), rtol=1e-5)
