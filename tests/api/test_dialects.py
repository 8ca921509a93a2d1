"""Every dialect: what its routes ask of the engine, the shapes of its answers, its errors."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from fake_engine import FakeEngine
from fastapi.testclient import TestClient

from cenote.config.server import ServerConfig
from cenote.errors import CenoteError, EngineUnavailable, NonFiniteResult, Overloaded
from cenote.server.app import create_app
from conftest import MakeModel

LONG = "word " * 100
TASKS = ["embed", "token_embed", "sparse_embed"]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(TASKS, dim=16)


@pytest.fixture
def client(engine: FakeEngine, make_model: MakeModel) -> TestClient:
    """An embedder by default, with a reranker and a classifier beside it."""
    models = [
        make_model(engine, names=("embedder",), allow_any_dimensions=True),
        make_model(FakeEngine(["classify"], labels=1), names=("reranker",)),
        make_model(FakeEngine(["classify"]), names=("classifier",)),
    ]
    config = ServerConfig(max_items_per_request=8, max_body_bytes=4000, api_key=("k",))
    return TestClient(create_app(models, config), headers={"Authorization": "Bearer k"})


Shape = Callable[[dict[str, Any]], str]


def openai_shape(body: dict[str, Any]) -> str:
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    return str(body["error"]["message"])


def one(name: str) -> Shape:
    def read(body: dict[str, Any]) -> str:
        assert body.keys() == {name}
        return str(body[name])

    return read


def tei_shape(body: dict[str, Any]) -> str:
    assert body.keys() == {"error", "error_type"}
    return str(body["error"])


SHAPES: dict[str, Shape] = {
    "vllm": openai_shape,
    "infinity": openai_shape,
    "cohere": one("message"),
    "jina": one("detail"),
    "voyage": one("detail"),
    "ollama": one("error"),
    "tei": tei_shape,
}

# Of each dialect: a route, a body that works, one that is too long, and one with a wrong field.
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "vllm": ("/vllm/v1/embeddings", {"input": "a"}, {"input": LONG}, {"input": 1}),
    "infinity": (
        "/infinity/embeddings",
        {"input": "a"},
        {"input": LONG, "truncation": False},
        {"input": ["a", 1]},
    ),
    "cohere": (
        "/cohere/v2/embed",
        {"texts": ["a"]},
        {"texts": [LONG], "truncate": "NONE"},
        {"texts": "a"},
    ),
    "jina": ("/jina/v1/embeddings", {"input": "a"}, {"input": LONG}, {"input": None}),
    "voyage": (
        "/voyage/v1/embeddings",
        {"input": "a"},
        {"input": LONG, "truncation": False},
        {"input": "a", "output_dtype": "int4"},
    ),
    "ollama": (
        "/api/embed",
        {"input": "a"},
        {"input": LONG, "truncate": False},
        {"input": {"a": 1}},
    ),
    "tei": ("/embed", {"inputs": "a"}, {"inputs": LONG}, {"inputs": "a", "truncate": "yes"}),
}
DIALECTS = sorted(CASES)


def refused(dialect: str, response: httpx.Response, status: int, *words: str) -> None:
    """Checks status and body of an error in a dialect, and that its message has `words`."""
    assert response.status_code == status, response.text
    message = SHAPES[dialect](response.json())
    for word in words:
        assert word in message


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_wrong_with_a_request_is_told_in_its_dialect(
    client: TestClient, dialect: str
) -> None:
    path, good, too_long, wrong = CASES[dialect]
    is_tei = dialect == "tei"
    assert client.post(path, json=good).status_code == 200
    refused(dialect, client.post(path, json=too_long), 422 if is_tei else 400, "context length")
    refused(dialect, client.post(path, json=wrong), 422 if is_tei else 400)
    refused(dialect, client.post(path, json={"model": "embedder"}), 422 if is_tei else 400)
    refused(dialect, client.post(path, content=b"{", headers=JSON), 422 if is_tei else 400, "JSON")
    refused(dialect, client.post(path, content=b"a", headers={"Content-Type": "text/plain"}), 415)
    refused(dialect, client.post(path, json={**good, "model": "none"}), 404, "'none'")
    refused(dialect, client.post(path, json=good, headers={"Authorization": "Bearer x"}), 401)
    refused(dialect, client.get(path), 405)
    field = {"cohere": "texts", "tei": "inputs"}.get(dialect, "input")
    refused(dialect, client.post(path, json={field: ["a"] * 9}), 413, "at most 8")
    refused(dialect, client.post(path, json={field: "a" * 5000}), 413, "max_body_bytes")
    reranker = {**good, "model": "reranker"}
    refused(dialect, client.post(path, json=reranker), 424 if is_tei else 400, "Unsupported task")


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("error", "status", "tei_status"),
    [
        (Overloaded("full", retry_after=3), 429, 429),
        (EngineUnavailable("restarting"), 503, 503),
        (NonFiniteResult("NaN"), 500, 424),
        (RuntimeError("a bug"), 500, 424),
    ],
    ids=["overloaded", "unavailable", "non-finite", "unexpected"],
)
def test_what_goes_wrong_in_the_engine_is_told_in_the_dialect(
    client: TestClient,
    engine: FakeEngine,
    dialect: str,
    error: Exception,
    status: int,
    tei_status: int,
) -> None:
    path, good, _, _ = CASES[dialect]
    if isinstance(error, Overloaded | EngineUnavailable):
        engine.refuse = error
    else:
        engine.fail_with = error
    response = client.post(path, json=good)
    refused(dialect, response, tei_status if dialect == "tei" else status)
    assert "a bug" not in response.text
    if isinstance(error, Overloaded):
        assert response.headers["retry-after"] == "3"


def test_while_draining_every_dialect_is_told(client: TestClient) -> None:
    client.app.state.server.is_draining = True
    for dialect, (path, good, _, _) in CASES.items():
        refused(dialect, client.post(path, json=good), 503, "shutting down")
    for path in ("/health", "/ping", "/infinity/health"):
        assert client.get(path).status_code == 503


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("empty_input", "Empty", 400),
        ("input_too_long", "Validation", 422),
        ("unsupported_task", "Backend", 424),
        ("overloaded", "Overloaded", 429),
        ("engine_unavailable", "Unhealthy", 503),
    ],
)
def test_tei_names_the_kind_of_error(code: str, kind: str, status: int) -> None:
    from cenote.server.dialects import Failure, error_body

    got, body = error_body("tei", Failure(400, code, "words", "", None))
    assert (got, body) == (status, {"error": "words", "error_type": kind})


@pytest.mark.parametrize("inputs", ["", [], [""], [[]], ["a", ""]])
def test_tei_refuses_empty_inputs_with_400(client: TestClient, inputs: object) -> None:
    response = client.post("/embed", json={"inputs": inputs})
    refused("tei", response, 400, "empty")
    assert response.json()["error_type"] == "Empty"


def test_vllm_tells_the_status_as_code(client: TestClient) -> None:
    body = client.post("/vllm/v1/embeddings", json={"input": LONG}).json()
    assert (body["error"]["code"], body["error"]["type"]) == (400, "BadRequestError")


def test_tei_answers_bare_lists_with_times_in_headers(
    client: TestClient, engine: FakeEngine
) -> None:
    response = client.post("/embed", json={"inputs": ["one", "two words"], "dimensions": 4})
    assert [len(row) for row in response.json()] == [4, 4]
    assert response.headers["x-compute-characters"] == "12"
    assert response.headers["x-compute-tokens"] == "7"
    assert response.headers["x-compute-type"] == "cpu"
    for name in ("compute", "total", "tokenization", "queue", "inference"):
        assert int(response.headers[f"x-{name}-time"]) >= 0
    assert engine.requests[0].params.use_activation is True
    cut = client.post(
        "/embed",
        json={
            "inputs": "a " * 99 + "b",
            "truncate": True,
            "truncation_direction": "Left",
            "normalize": False,
        },
    )
    assert cut.headers["x-truncated-inputs"] == "1"
    assert engine.requests[-1].params.use_activation is False
    assert len(engine.requests[-1].prompt.token_ids) == 64
    assert engine.requests[-1].prompt.token_ids[-2] != engine.requests[-1].prompt.token_ids[1]


def test_tei_all_sparse_similarity_tokenize_decode_and_info(client: TestClient) -> None:
    (rows,) = client.post("/embed_all", json={"inputs": "one two"}).json()
    assert np.array(rows).shape == (4, 16)
    (entries,) = client.post("/embed_sparse", json={"inputs": "one two"}).json()
    assert entries[0].keys() == {"index", "value"}
    body = {"inputs": {"source_sentence": "one", "sentences": ["one", "two"]}}
    same, other = client.post("/similarity", json=body).json()
    assert same == pytest.approx(1)
    assert other < 1
    for path in ("/tokenize", "/tei/tokenize"):
        (tokens,) = client.post(path, json={"inputs": "hello cenote"}).json()
        assert tokens[0] == {
            "id": 101,
            "text": "[CLS]",
            "special": True,
            "start": None,
            "stop": None,
        }
        assert (tokens[1]["text"], tokens[1]["start"], tokens[1]["stop"]) == ("hello", 0, 5)
    ids = [token["id"] for token in tokens]
    assert client.post("/decode", json={"ids": ids}).json() == ["hello cenote"]
    assert client.post("/decode", json={"ids": [ids, ids[:2]]}).json() == ["hello cenote", "hello"]
    raw = client.post("/decode", json={"ids": ids, "skip_special_tokens": False}).json()
    assert raw == ["[CLS] hello cenote [SEP]"]
    refused("tei", client.post("/decode", json={"ids": [10**6]}), 422, "out of range")
    refused("tei", client.post("/tokenize", json={"inputs": 1}), 422)
    info = client.get("/info").json()
    assert (info["max_input_length"], info["max_client_batch_size"]) == (64, 8)
    assert (info["auto_truncate"], info["served_model_name"]) == (False, "embedder")


def test_tei_reranks_by_the_field_texts(client: TestClient) -> None:
    body = {"query": "a", "texts": ["one", "two", "three"], "model": "reranker"}
    plain = client.post("/rerank", json=body).json()
    assert [item.keys() for item in plain] == [{"index", "score"}] * 3
    scores = [item["score"] for item in plain]
    assert scores == sorted(scores, reverse=True)
    raw = client.post("/tei/rerank", json={**body, "raw_scores": True, "return_text": True}).json()
    assert raw[0]["text"] == body["texts"][raw[0]["index"]]
    assert raw[0]["score"] != plain[0]["score"]
    refused("tei", client.post("/rerank", json={**body, "texts": []}), 400)
    refused("tei", client.post("/rerank", json={**body, "texts": 1}), 422)


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [
        ("one", "flat"),
        (["one"], "flat"),
        (["one", "two"], "flat"),
        ([["one"], ["one", "two"]], "nested"),
        ([["one"]], "nested"),
    ],
)
def test_tei_predicts_texts_and_pairs(client: TestClient, inputs: object, shape: str) -> None:
    rows = client.post("/predict", json={"inputs": inputs, "model": "classifier"}).json()
    if shape == "flat":
        rows = [rows]
    for row in rows:
        assert {item["label"] for item in row} == {"negative", "neutral", "positive"}
        assert sum(item["score"] for item in row) == pytest.approx(1)
        assert row[0]["score"] >= row[1]["score"] >= row[2]["score"]


def test_a_pair_is_fed_with_its_token_types(make_model: MakeModel) -> None:
    engine = FakeEngine(["classify"])
    client = TestClient(create_app([make_model(engine)], ServerConfig()))
    assert client.post("/predict", json={"inputs": ["hello", "cenote"]}).status_code == 200
    (request,) = engine.requests
    ids = request.prompt.token_ids
    assert ids.count(102) == 2
    assert request.params.extra_kwargs == {"compressed_token_type_ids": 3}
    refused("tei", client.post("/predict", json={"inputs": [LONG, "a"]}), 422, "context length")
    refused("tei", client.post("/predict", json={"inputs": ["a", "b", "c"]}), 422)
    refused("tei", client.post("/predict", json={"inputs": []}), 400, "empty")


def test_cohere_embeds_by_form_and_tells_what_was_cut(
    client: TestClient, engine: FakeEngine
) -> None:
    body = client.post(
        "/v2/embed",
        json={
            "inputs": [{"content": [{"type": "text", "text": "one"}]}, {"text": LONG}],
            "input_type": "classification",
            "embedding_types": ["base64", "uint8", "float"],
            "output_dimension": 8,
            "truncate": "START",
            "max_tokens": 5,
        },
    ).json()
    assert body["response_type"] == "embeddings_by_type"
    assert body["embeddings"].keys() == {"base64", "uint8", "float"}
    raw = np.frombuffer(base64.b64decode(body["embeddings"]["base64"][0]), "<f4")
    np.testing.assert_array_equal(raw, np.float32(body["embeddings"]["float"][0]))
    assert body["meta"]["warnings"] == ["texts[1] was truncated."]
    assert body["meta"]["billed_units"] == {"input_tokens": 8}
    assert [len(request.prompt.token_ids) for request in engine.requests] == [3, 5]
    plain = client.post("/v1/embed", json={"texts": ["one"]}).json()
    assert plain["response_type"] == "embeddings_floats"
    assert len(plain["embeddings"][0]) == 16
    assert plain["meta"]["api_version"] == {"version": "1"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "exactly one of texts"),
        ({"texts": ["a"], "inputs": [{"text": "a"}]}, "texts and inputs"),
        ({"texts": []}, "texts is empty"),
        ({"images": ["x"]}, "not images"),
        ({"texts": ["a"], "embedding_types": ["int4"]}, "embedding_types"),
        ({"texts": ["a"], "embedding_types": ["binary"], "output_dimension": 12}, "multiple of 8"),
        ({"texts": ["a"], "truncate": "MIDDLE"}, "truncate"),
        ({"texts": ["a"], "max_tokens": 0}, "max_tokens"),
        ({"texts": ["a b c"], "max_tokens": 3, "truncate": "NONE"}, "limit|maximum"),
        ({"texts": ["a"], "input_type": "poem"}, "'poem'"),
        ({"texts": ["a"], "output_dimension": 17}, "output_dimension 17"),
    ],
)
def test_cohere_refuses_by_field(client: TestClient, fields: dict[str, Any], words: str) -> None:
    response = client.post("/cohere/v2/embed", json=fields)
    refused("cohere", response, 400)
    assert any(word in response.json()["message"] for word in words.split("|"))
    assert "message" in client.post("/v2/embed", json=fields).json()


@pytest.mark.parametrize(
    ("path", "fields", "words"),
    [
        ("/jina/v1/embeddings", {"input": "a", "task": "poem"}, "task 'poem'"),
        ("/voyage/v1/embeddings", {"input": "a", "output_dimension": 0}, "output_dimension"),
        ("/voyage/v1/embeddings", {"input": "a", "input_type": "poem"}, "input_type 'poem'"),
        (
            "/voyage/v1/rerank",
            {"query": "a", "documents": ["b"], "top_k": -1, "model": "reranker"},
            "top_k",
        ),
    ],
)
def test_a_wrong_field_has_the_name_that_it_was_sent_under(
    client: TestClient, path: str, fields: dict[str, Any], words: str
) -> None:
    refused("voyage", client.post(path, json=fields), 400, words)


def test_cohere_reranks_objects_by_their_fields(client: TestClient) -> None:
    documents = [{"title": "A", "text": "one", "n": 1}, {"title": "B", "text": "two"}]
    body = {"model": "reranker", "query": "q", "documents": documents}
    for path in ("/cohere/v1/rerank", "/cohere/v2/rerank"):
        answer = client.post(
            path, json={**body, "rank_fields": ["title", "text"], "return_documents": True}
        ).json()
        assert answer.keys() == {"id", "results", "meta"}
        assert answer["meta"]["api_version"] == {"version": path.split("/")[2][1:]}
        first = answer["results"][0]
        assert first["document"] == documents[first["index"]]
    superset = client.post("/v1/rerank", json={**body, "rank_fields": ["title"]}).json()
    assert superset["results"][0]["document"] in documents
    plain = client.post("/v2/rerank", json={**body, "documents": ["a"]}).json()
    assert plain["results"][0]["document"] == {"text": "a", "multi_modal": None}
    cut = client.post("/cohere/v2/rerank", json={**body, "documents": [LONG, "b"]}).json()
    assert cut["meta"]["warnings"] == ["documents[0] was truncated."]
    refused(
        "cohere",
        client.post("/cohere/v1/rerank", json={**body, "rank_fields": ["n"]}),
        400,
        "documents[1] has no field 'n'",
    )
    refused(
        "cohere",
        client.post("/cohere/v1/rerank", json={**body, "max_chunks_per_doc": 10}),
        400,
        "max_chunks_per_doc 10 is not supported",
    )
    uncut = {**body, "documents": [LONG], "truncation": False}
    refused("cohere", client.post("/cohere/v2/rerank", json=uncut), 400, "context length")


@pytest.mark.parametrize("path", ["/voyage/v1/embeddings", "/infinity/embeddings"])
def test_voyage_and_infinity_cut_long_inputs_unless_told_not_to(
    client: TestClient, path: str
) -> None:
    (item,) = client.post(path, json={"input": LONG}).json()["data"]
    assert (item["prompt_tokens"], item["truncated"]) == (64, True)


def test_voyage_and_infinity_rerank_in_their_shapes(client: TestClient) -> None:
    body = {"model": "reranker", "query": "q", "documents": ["one", LONG, "two"], "top_k": 3}
    answer = client.post("/voyage/v1/rerank", json=body).json()
    assert answer.keys() == {"object", "data", "model", "usage"}
    assert [item["truncated"] for item in answer["data"] if item["index"] == 1] == [True]
    assert "document" not in answer["data"][0]
    superset = client.post("/v1/rerank", json={**body, "truncation": True}).json()
    assert superset["data"] == superset["results"]
    refused("voyage", client.post("/voyage/v1/rerank", json={**body, "top_k": -1}), 400)
    del body["top_k"]
    assert "data" not in client.post("/v1/rerank", json={**body, "truncation": True}).json()
    answer = client.post("/infinity/rerank", json={**body, "return_documents": True}).json()
    assert answer["object"] == "rerank"
    assert answer["results"][0]["document"] in body["documents"]
    raw = client.post("/infinity/rerank", json={**body, "raw_scores": True}).json()
    assert raw["results"][0]["relevance_score"] != answer["results"][0]["relevance_score"]
    refused("infinity", client.post("/infinity/rerank", json={**body, "query": 1}), 400)


def test_infinity_classifies_and_lists_models(client: TestClient) -> None:
    body = {"model": "classifier", "input": ["one", LONG]}
    answer = client.post("/infinity/classify", json=body).json()
    assert [len(row) for row in answer["data"]] == [3, 3]
    refused("infinity", client.post("/infinity/classify", json={**body, "input": "one"}), 400)
    cards = client.get("/infinity/models").json()["data"]
    assert {card["id"]: card["capabilities"] for card in cards} == {
        "embedder": ["embed", "rerank"],
        "reranker": ["classify", "rerank"],
        "classifier": ["classify"],
    }
    bad = client.post("/infinity/embeddings", json={"input": "a", "modality": "image"})
    refused("infinity", bad, 400, "not image")


def test_jina_s_fields_on_the_shared_path(client: TestClient, engine: FakeEngine) -> None:
    body = {
        "model": "embedder",
        "input": [{"text": "one"}, {"text": LONG}],
        "task": "retrieval.query",
        "truncate": True,
        "dimensions": 8,
        "normalized": False,
        "embedding_type": ["float", "binary"],
    }
    answer = client.post("/v1/embeddings", json={**body, "normalized": True}).json()
    assert [item["truncated"] for item in answer["data"]] == [False, True]
    first = answer["data"][0]["embedding"]
    bits = np.packbits(np.array(first["float"]) > 0)
    assert np.array(first["binary"]).astype(int) + 128 == bits.astype(int)
    raw = {**body, "embedding_type": "float"}
    assert client.post("/jina/v1/embeddings", json=raw).status_code == 200
    assert engine.requests[-1].params.use_activation is False
    one_form = {**body, "embedding_type": "base64", "truncate": True}
    text = client.post("/v1/embeddings", json=one_form).json()["data"][0]["embedding"]
    assert len(base64.b64decode(text)) == 32
    clash = client.post("/jina/v1/embeddings", json={**body, "input_type": "document"})
    refused("jina", clash, 400, "task is another name of input_type")


def test_multi_vectors(client: TestClient) -> None:
    for path in ("/v1/multi-vector", "/jina/v1/multi-vector"):
        (item,) = client.post(path, json={"input": "one two", "input_type": "document"}).json()[
            "data"
        ]
        assert np.array(item["embeddings"]).shape == (4, 16)
        assert "embedding" not in item
    body = {"input": "one two", "return_multivector": True, "embedding_type": "ubinary"}
    (item,) = client.post("/v1/embeddings", json=body).json()["data"]
    assert np.array(item["embeddings"]).shape == (4, 2)
    refused("jina", client.post("/jina/v1/multi-vector", json={"input": []}), 400, "at least one")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "binary", "ubinary"])
def test_voyage_s_base64_has_the_dtype_s_bytes(client: TestClient, dtype: str) -> None:
    body = {"input": ["one"], "output_dtype": dtype, "output_dimension": 16}
    numbers = client.post("/voyage/v1/embeddings", json=body).json()["data"][0]["embedding"]
    coded = client.post("/v1/embeddings", json={**body, "encoding_format": "base64"}).json()
    kind = np.int8 if dtype in ("int8", "binary") else np.uint8
    got = np.frombuffer(base64.b64decode(coded["data"][0]["embedding"]), kind)
    assert got.tolist() == numbers
    raw = client.post("/v1/embeddings", json={**body, "encoding_format": "bytes"})
    assert raw.content == got.tobytes()
    assert f'"embed_dtype":"{got.dtype}"' in raw.headers["metadata"]
    both = {**body, "embedding_type": "float"}
    refused("voyage", client.post("/voyage/v1/embeddings", json=both), 400, "not both")
    wide = {**body, "normalized": False, "output_dtype": "int8"}
    refused("voyage", client.post("/voyage/v1/embeddings", json=wide), 400, "[-1, 1]")


def test_ollama_tags_and_versions(client: TestClient) -> None:
    for prefix in ("", "/ollama"):
        tags = client.get(f"{prefix}/api/tags").json()["models"]
        assert [tag["name"] for tag in tags] == ["embedder", "reranker", "classifier"]
        assert client.get(f"{prefix}/api/version").json()["version"]
    body = client.post("/api/embed", json={"input": ["a", LONG]}).json()
    assert body["truncated_inputs"] == [1]
    assert body["prompt_eval_count"] == 67
    assert client.post("/api/embed", json={"input": []}).json()["embeddings"] == []
    refused("ollama", client.post("/api/embeddings", json={"prompt": 1}), 400, "prompt")


def test_invocations_finds_the_route_by_the_fields(client: TestClient) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "embedding": {"input": "a"},
        "classify": {"input": "a", "model": "classifier"},
        "rerank": {"query": "a", "documents": ["b"], "model": "reranker"},
        "texts": {"query": "a", "texts": ["b"], "model": "reranker"},
        "score": {"text_1": "a", "text_2": "b", "model": "reranker"},
        "pooling": {"input": "a", "task": "token_embed"},
        "inputs": {"inputs": ["a", "b"]},
    }
    got = {name: client.post("/invocations", json=body).json() for name, body in bodies.items()}
    assert got["embedding"]["data"][0]["object"] == "embedding"
    assert got["classify"]["data"][0]["num_classes"] == 3
    assert got["rerank"]["results"][0]["index"] == 0
    assert got["texts"][0]["index"] == 0
    assert got["score"]["data"][0]["object"] == "score"
    assert got["pooling"]["task"] == "token_embed"
    assert np.array(got["inputs"]).shape == (2, 16)
    for wrong in ({}, {"model": "embedder"}):
        response = client.post("/invocations", json=wrong)
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "input"
    assert client.post("/invocations", content=b"[]", headers=JSON).status_code == 400
    assert client.post("/invocations", content=b"{", headers=JSON).status_code == 400
    assert client.get("/ping").status_code == client.post("/ping").status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"inputs": "a", "model": "classifier", "function_to_apply": "softmax"}, 422, "softmax"),
        ({"inputs": "a", "model": "classifier", "parameters": {"top_k": 0}}, 422, "top_k"),
        ({"inputs": {"source_sentence": "a"}}, 422, "sentences"),
        ({"inputs": {"source_sentence": "a", "sentences": []}}, 400, "empty"),
        ({"inputs": 5}, 422, "inputs"),
        ({}, 422, "inputs"),
    ],
)
def test_the_root_refuses_as_tei_does(
    client: TestClient, body: dict[str, Any], status: int, words: str
) -> None:
    refused("tei", client.post("/", json=body), status, words)


def test_a_query_parameter_names_the_model(client: TestClient) -> None:
    rows = client.post("/predict?model=classifier", json={"inputs": "a"}).json()
    assert len(rows) == 3
    refused("tei", client.post("/predict?model=none", json={"inputs": "a"}), 404, "'none'")


def test_every_error_class_has_a_documented_status() -> None:
    from cenote.server.openapi import _FAILURES

    codes = {cls.code for cls in CenoteError.__subclasses__()}
    undocumented = codes - _FAILURES.keys() - {"non_finite_result", "model_load_error"}
    assert not undocumented
