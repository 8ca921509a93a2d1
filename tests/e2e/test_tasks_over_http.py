"""Every task over HTTP with real engines on tiny models: what is sent is what the model says."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from fastapi.testclient import TestClient

from cenote.config.engine import EngineConfig
from cenote.config.server import ServerConfig
from cenote.engine.client import start_engine
from cenote.server import run
from cenote.server.app import create_app
from cenote.server.served import ServedModel

QUERY = "what is a cenote?"
DOCUMENTS = ["a cenote is a sinkhole.", "birds sing!", "limestone, water and a collapsed roof"]

Load = Callable[[Path], ServedModel]


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    """Loads a folder with the engine in this process; each folder once."""
    loaded: dict[Path, ServedModel] = {}

    def load(folder: Path) -> ServedModel:
        if folder not in loaded:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(run, "start_engine", in_this_process)
                config = EngineConfig(model=str(folder), dtype="float32", threads=1)
                loaded[folder] = run.load(config, ServerConfig(served_model_name=("tiny",)))
        return loaded[folder]

    yield load
    for model in loaded.values():
        model.client.close()


def in_this_process(config: EngineConfig, *, in_process: bool, niceness: int) -> Any:
    return start_engine(config, in_process=True)


def client_of(model: ServedModel) -> TestClient:
    return TestClient(create_app([model], ServerConfig(enable_admin=True)))


def post(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def logits(folder: Path, kind: str, *texts: list[str]) -> np.ndarray:
    """The reference library's logits for one text, or a pair, at a time."""
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, kind).from_pretrained(folder).eval()
    with torch.inference_mode():
        rows = [
            model(**tokenizer(*(side[i] for side in texts), return_tensors="pt")).logits[0]
            for i in range(len(texts[0]))
        ]
    return rows if kind.endswith("TokenClassification") else torch.stack(rows).numpy()


def test_classify_gives_the_reference_s_probabilities(load: Load, tiny_classifier: Path) -> None:
    client = client_of(load(tiny_classifier))
    data = post(client, "/classify", input=DOCUMENTS)["data"]
    wanted = logits(tiny_classifier, "AutoModelForSequenceClassification", DOCUMENTS)
    exponents = np.exp(wanted)
    got = np.float32([item["probs"] for item in data])
    np.testing.assert_allclose(got, exponents / exponents.sum(1, keepdims=True), atol=1e-5)
    names = ("negative", "neutral", "positive")
    assert [item["label"] for item in data] == [names[i] for i in wanted.argmax(1)]
    raw = post(client, "/classify", input=DOCUMENTS, use_activation=False)["data"]
    np.testing.assert_allclose([item["probs"] for item in raw], wanted, rtol=1e-4, atol=1e-5)
    refused = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS})
    assert refused.status_code == 400


def test_a_cross_encoder_reranks_as_the_reference(load: Load, tiny_cross_encoder: Path) -> None:
    client = client_of(load(tiny_cross_encoder))
    kind = "AutoModelForSequenceClassification"
    wanted = 1 / (1 + np.exp(-logits(tiny_cross_encoder, kind, [QUERY] * 3, DOCUMENTS)[:, 0]))
    body = post(client, "/rerank", query=QUERY, documents=DOCUMENTS)
    assert [item["index"] for item in body["results"]] == np.argsort(-wanted).tolist()
    for item in body["results"]:
        assert item["relevance_score"] == pytest.approx(wanted[item["index"]], abs=1e-5)


def test_token_classes_are_the_reference_s(load: Load, tiny_token_classifier: Path) -> None:
    client = client_of(load(tiny_token_classifier))
    body = post(client, "/pooling", input=DOCUMENTS, task="token_classify", use_activation=False)
    wanted = logits(tiny_token_classifier, "AutoModelForTokenClassification", DOCUMENTS)
    assert body["labels"] == ["O", "B-NAME", "I-NAME"]
    for text, item, rows in zip(DOCUMENTS, body["data"], wanted, strict=True):
        np.testing.assert_allclose(item["data"], rows.numpy(), rtol=1e-4, atol=1e-4)
        words = [text[start:end] for start, end in item["offsets"][1:-1]]
        assert "".join(words) == text.replace(" ", "")


def test_late_interaction_is_maxsim_of_its_own_token_vectors(
    load: Load, tiny_colbert: Path
) -> None:
    client = client_of(load(tiny_colbert))
    rows = {
        side: [
            np.float32(item["data"])
            for item in post(client, "/pooling", input=texts, task="token_embed", input_type=side)[
                "data"
            ]
        ]
        for side, texts in (("query", [QUERY]), ("document", DOCUMENTS))
    }
    wanted = [(rows["query"][0] @ document.T).max(1).sum() for document in rows["document"]]
    body = post(client, "/rerank", query=QUERY, documents=DOCUMENTS, explain=True)
    for item in body["results"]:
        assert item["relevance_score"] == pytest.approx(wanted[item["index"]], rel=1e-5)
        found = sum(match["similarity"] for match in item["matches"])
        assert found == pytest.approx(item["relevance_score"], rel=1e-4)
        for match in item["matches"]:
            start, end = match["document_offset"]
            word = DOCUMENTS[item["index"]][start:end]
            assert match["document_token"].removeprefix("##") == word or (start, end) == (0, 0)
    plain = post(client, "/rerank", query=QUERY, documents=DOCUMENTS)
    assert [item["index"] for item in plain["results"]] == np.argsort(-np.array(wanted)).tolist()


def test_resets_and_reload_answer_and_serving_goes_on(load: Load, tiny_colbert: Path) -> None:
    client = client_of(load(tiny_colbert))
    before = post(client, "/rerank", query=QUERY, documents=DOCUMENTS)["results"]
    for path in ("/reset_encoder_cache", "/reset_mm_cache", "/reset_prefix_cache"):
        assert client.post(path).status_code == 200
    assert client.post("/reload_weights").status_code == 200
    refused = client.post("/reload_weights", json={"folder": "/no/such/folder"})
    assert refused.status_code == 400
    assert "/no/such/folder" in refused.json()["error"]["message"]
    assert post(client, "/rerank", query=QUERY, documents=DOCUMENTS)["results"] == before
    stats = client.get("/engine_stats").json()["result"]
    assert stats["query_cache_bytes"] > 0
    assert stats["request_entries"] == stats["score_groups"] == stats["running"] == 0


def test_rerank_under_random_disconnects_leaves_nothing(load: Load, tiny_colbert: Path) -> None:
    """Clients that stay get right answers while others leave at any time; then all is quiet."""
    model = load(tiny_colbert)
    config = uvicorn.Config(create_app([model], ServerConfig()), log_config=None)
    listener = config.bind_socket()
    listener.listen()
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    host, port = listener.getsockname()
    wanted = {
        item["index"]: item["relevance_score"]
        for item in post(client_of(model), "/rerank", query=QUERY, documents=DOCUMENTS)["results"]
    }
    end = time.monotonic() + 4

    def stay(seed: int) -> int:
        done = 0
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=30) as client:
            while time.monotonic() < end:
                body = {"query": QUERY, "documents": DOCUMENTS, "cache_salt": str(seed)}
                for item in client.post("/rerank", json=body).json()["results"]:
                    score = pytest.approx(wanted[item["index"]], rel=1e-5)
                    assert item["relevance_score"] == score
                done += 1
        return done

    def leave(seed: int) -> int:
        chance = random.Random(seed)
        body = b'{"query": "gone %d", "documents": ["one", "two", "three", "four"]}'
        done = 0
        while time.monotonic() < end:
            content = body % chance.randrange(1000)
            with socket.create_connection((host, port)) as connection:
                connection.sendall(
                    b"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    b"Content-Length: %d\r\n\r\n%b" % (len(content), content)
                )
                time.sleep(chance.random() * 0.02)
            done += 1
        return done

    with ThreadPoolExecutor(8) as pool:
        staying = [pool.submit(stay, seed) for seed in range(4)]
        leaving = [pool.submit(leave, seed) for seed in range(4)]
        counts = [future.result() for future in (*staying, *leaving)]
    assert min(counts) > 0
    server.should_exit = True
    thread.join(10)
    settle(model)


def settle(model: ServedModel) -> None:
    """Waits until the engine holds nothing of any request."""
    for _ in range(500):
        stats = model.client.control("stats").result(10)
        held = {name: stats[name] for name in ("running", "waiting", "request_entries")}
        if not any(held.values()):
            return
        time.sleep(0.01)
    pytest.fail(f"left: {held}")


def test_dialects_rerank_what_our_own_route_does(
    load: Load, tiny_cross_encoder: Path, tiny_colbert: Path, tiny_bert: Path
) -> None:
    for folder in (tiny_cross_encoder, tiny_colbert, tiny_bert):
        client = client_of(load(folder))
        own = post(client, "/rerank", query=QUERY, documents=DOCUMENTS)["results"]
        wanted = [(item["index"], item["relevance_score"]) for item in own]
        fields = {"query": QUERY, "documents": DOCUMENTS}
        for path in ("/cohere/v2/rerank", "/infinity/rerank", "/jina/v1/rerank"):
            got = post(client, path, **fields)["results"]
            assert [(item["index"], item["relevance_score"]) for item in got] == wanted
        voyage = post(client, "/voyage/v1/rerank", **fields)["data"]
        assert [(item["index"], item["relevance_score"]) for item in voyage] == wanted
        tei: Any = post(client, "/tei/rerank", query=QUERY, texts=DOCUMENTS)
        assert [(item["index"], item["score"]) for item in tei] == wanted


def test_dialects_cut_long_documents(
    load: Load, tiny_cross_encoder: Path, tiny_colbert: Path, tiny_bert: Path
) -> None:
    documents = ["word " * 500, "short"]
    for folder in (tiny_cross_encoder, tiny_colbert, tiny_bert):
        client = client_of(load(folder))
        body = post(client, "/cohere/v2/rerank", query=QUERY, documents=documents)
        assert body["meta"]["warnings"] == ["documents[0] was truncated."]
        cut = post(client, "/voyage/v1/rerank", query=QUERY, documents=documents)["data"]
        assert {item["index"]: item["truncated"] for item in cut} == {0: True, 1: False}


def test_a_pair_is_predicted_as_the_reference_reads_it(load: Load, tiny_classifier: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(tiny_classifier).eval()
    tokens = AutoTokenizer.from_pretrained(tiny_classifier)(
        [QUERY], [DOCUMENTS[0]], return_tensors="pt"
    )
    with torch.inference_mode():
        wanted = model(**tokens).logits.softmax(-1)[0].numpy()
    client = client_of(load(tiny_classifier))
    rows: Any = post(client, "/predict", inputs=[[QUERY, DOCUMENTS[0]], [QUERY]])
    got = {item["label"]: item["score"] for item in rows[0]}
    names = ["negative", "neutral", "positive"]
    np.testing.assert_allclose([got[name] for name in names], wanted, atol=1e-5)
    alone = post(client, "/classify", input=QUERY)["data"][0]["probs"]
    again = {item["label"]: item["score"] for item in rows[1]}
    np.testing.assert_allclose([again[name] for name in names], alone, atol=1e-6)
