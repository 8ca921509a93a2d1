"""/health, /v1/models, /version, /tokenize, /metrics, /load and the OpenAPI document."""

from __future__ import annotations

import re

import pytest
from fake_engine import FakeEngine
from fastapi.testclient import TestClient
from test_bad_input import refused

import cenote
from cenote.config.server import ServerConfig
from conftest import MakeClient

METRICS = {
    "cenote_requests_total",
    "cenote_errors_total",
    "cenote_prompt_tokens_total",
    "cenote_truncated_inputs_total",
    "cenote_cancelled_requests_total",
    "cenote_request_seconds",
    "cenote_tokenize_seconds",
    "cenote_queue_seconds",
    "cenote_run_seconds",
    "cenote_http_requests_in_flight",
    "cenote_batch_requests",
    "cenote_batch_tokens",
    "cenote_step_seconds",
    "cenote_shared_runs_total",
    "cenote_preemptions_total",
    "cenote_query_cache_hits_total",
    "cenote_query_cache_misses_total",
    "cenote_prefix_cache_hits_total",
    "cenote_prefix_cache_queries_total",
    "cenote_requests_running",
    "cenote_requests_waiting",
    "cenote_kv_blocks",
    "cenote_kv_blocks_held",
    "cenote_engine_up",
    "cenote_engine_restarts_total",
}


def sample(text: str, name: str) -> float:
    match = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert match, f"{name} is not in /metrics"
    return float(match[1])


def test_health_is_empty_and_ok(client: TestClient) -> None:
    response = client.get("/health")
    assert (response.status_code, response.content) == (200, b"")


def test_models_tell_what_they_do(client: TestClient) -> None:
    (card,) = client.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["owned_by"]) == ("minilm", "model", "cenote")
    assert (card["max_model_len"], card["tasks"], card["embedding_size"]) == (64, ["embed"], 8)
    assert card["score_kind"] == "bi_encoder"
    assert client.get("/v1/models/minilm").json() == card
    refused(client.get("/v1/models/org/other"), 404, "org/other", param="model")


def test_version_is_the_package_s(client: TestClient) -> None:
    assert client.get("/version").json() == {"version": cenote.__version__}


def test_tokenize_and_detokenize_are_inverse(client: TestClient) -> None:
    body = client.post(
        "/tokenize", json={"prompt": "hello cenote", "return_token_strs": True}
    ).json()
    assert body["count"] == len(body["tokens"]) == len(body["token_strs"])
    assert body["max_model_len"] == 64
    assert body["token_strs"][0] == "[CLS]"
    bare = client.post("/tokenize", json={"prompt": "hello cenote", "add_special_tokens": False})
    assert bare.json()["tokens"] == body["tokens"][1:-1]
    text = client.post("/detokenize", json={"tokens": bare.json()["tokens"]}).json()["prompt"]
    assert text == "hello cenote"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"prompt": None}, "prompt"),
        ("/detokenize", {"tokens": [10**6]}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
        ("/tokenize", {"prompt": "a", "model": "none"}, "model"),
    ],
)
def test_bad_tokenize_requests_name_the_field(
    client: TestClient, path: str, body: dict, param: str
) -> None:
    refused(client.post(path, json=body), 404 if param == "model" else 400, param=param)


def test_metrics_count_requests_tokens_times_and_errors(
    client: TestClient, engine: FakeEngine
) -> None:
    client.post("/v1/embeddings", json={"input": ["one", "two words"]})
    client.post("/v1/embeddings", json={"input": "word " * 99, "truncate_prompt_tokens": -1})
    client.post("/v1/embeddings", json={"input": "a", "model": "none"})
    client.get("/scanner/path")
    engine.stats.running, engine.stats.waiting, engine.restarts = 3, 5, 2
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    text = response.text
    for name, value in {
        'cenote_requests_total{route="/v1/embeddings",status="200"}': 2,
        'cenote_requests_total{route="/v1/embeddings",status="404"}': 1,
        'cenote_requests_total{route="other",status="404"}': 1,
        'cenote_errors_total{code="model_not_found"}': 1,
        'cenote_errors_total{code="not_found"}': 1,
        "cenote_prompt_tokens_total": 3 + 4 + 64,
        "cenote_truncated_inputs_total": 1,
        'cenote_request_seconds_count{route="/v1/embeddings"}': 3,
        "cenote_tokenize_seconds_count": 2,
        "cenote_queue_seconds_count": 3,
        "cenote_run_seconds_count": 3,
        "cenote_batch_requests_sum": 3,
        "cenote_batch_tokens_sum": 71,
        "cenote_step_seconds_count": 2,
        "cenote_query_cache_hits_total": 2,
        'cenote_requests_running{model="minilm"}': 3,
        'cenote_requests_waiting{model="minilm"}': 5,
        'cenote_kv_blocks{model="minilm"}': 7,
        'cenote_engine_up{model="minilm"}': 1,
        'cenote_engine_restarts_total{model="minilm"}': 2,
        "cenote_http_requests_in_flight": 1,
    }.items():
        assert sample(text, name) == value, name


def test_metric_names_are_those_documented(client: TestClient) -> None:
    text = client.get("/metrics").text
    names = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    assert names == METRICS


def test_load_counts_requests_under_way(client: TestClient) -> None:
    assert client.get("/load").json() == {"server_load": 0}


def test_openapi_documents_every_route_body_answer_and_error(make_client: MakeClient) -> None:
    config = ServerConfig(api_key=("k",), enable_admin=True)
    document = make_client(config=config).app.openapi()
    schemas = document["components"]["schemas"]
    assert document["security"] == [{"key": []}]
    assert {
        "/v1/embeddings",
        "/classify",
        "/pooling",
        "/score",
        "/rerank",
        "/tokenize",
        "/detokenize",
        "/health",
        "/v1/models",
        "/version",
        "/metrics",
        "/load",
        "/reload_weights",
        "/reset_encoder_cache",
        "/reset_mm_cache",
        "/reset_prefix_cache",
    } <= document["paths"].keys()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], path
            assert "200" in operation["responses"], path
            if method == "post":
                reference = operation["requestBody"]["content"]["application/json"]["schema"]
                schema = schemas[reference["$ref"].rsplit("/", 1)[1]]
                assert schema["description"], path
                # Text-embeddings-inference tells a failed model as 424.
                failed = "424" if "/TeiError'" in str(operation["responses"]) else "500"
                for code in ("400", "401", "404", "413", "415", "429", failed, "503"):
                    assert code in operation["responses"], (path, code)
    for name in re.findall(r'#/components/schemas/([^"\']+)', str(document)):
        assert name in schemas, name
    for field, schema in schemas["EmbeddingRequest"]["properties"].items():
        assert schema.get("description"), field


def test_the_docs_page_needs_nothing_from_afar(client: TestClient) -> None:
    response = client.get("/docs")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert "./openapi.json" in response.text
    assert "http://" not in response.text
    assert "https://" not in response.text
    assert "cdn" not in response.text.lower()
