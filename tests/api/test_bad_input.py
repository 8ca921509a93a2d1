"""Whatever a client sends wrongly: the status, the words, the one shape; and serving goes on."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine
from fastapi.testclient import TestClient

from cenote.config.server import ServerConfig
from cenote.errors import EngineUnavailable, NonFiniteResult, Overloaded
from conftest import MakeClient

EMBED = "/v1/embeddings"
KEYS = {"error", "detail", "message"}


def refused(response: httpx.Response, status: int, *words: str, param: str | None = None) -> dict:
    """Checks the shape of an error and that its message has `words`; returns its `error`."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body = response.json()
    assert body.keys() == KEYS
    error = body["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert body["detail"] == body["message"] == error["message"]
    for word in words:
        assert word in error["message"], error["message"]
    if param is not None:
        assert error["param"] == param
    assert "Traceback" not in response.text
    return error


BAD_FIELDS: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"input": []}, "input", ("at least one",)),
    ({}, "input", ("missing",)),
    ({"input": None}, "input", ("null",)),
    ({"input": 7}, "input", ("7",)),
    ({"input": True}, "input", ("true",)),
    ({"input": {"text": "x"}}, "input", ("list of strings",)),
    ({"input": ["a", 1]}, "input", ("input[1]", "1")),
    ({"input": ["a", None]}, "input", ("input[1]", "null")),
    ({"input": [1, "a"]}, "input", ("input[1]", "'a'")),
    ({"input": [1, True]}, "input", ("input[1]", "true")),
    ({"input": [1.5]}, "input", ("input[0]", "1.5")),
    ({"input": [[1], "a"]}, "input", ("input[1]", "'a'")),
    ({"input": [[]]}, "input", ("empty",)),
    ({"input": [[1, -5]]}, "input", ("-5",)),
    ({"input": [99999]}, "input", ("99999", "30521")),
    ({"input": [10**30]}, "input", ("1e+30",)),
    ({"input": "a", "dimensions": 0}, "dimensions", ("0", "at least 1")),
    ({"input": "a", "dimensions": -1}, "dimensions", ("-1",)),
    ({"input": "a", "dimensions": 9}, "dimensions", ("9", "8")),
    ({"input": "a", "dimensions": True}, "dimensions", ("true",)),
    ({"input": "a", "dimensions": "8"}, "dimensions", ("'8'",)),
    ({"input": "a", "dimensions": 4.0}, "dimensions", ("4.0",)),
    ({"input": "a", "encoding_format": "int8"}, "encoding_format", ("'base64'", "'int8'")),
    ({"input": "a", "embed_dtype": "float64"}, "embed_dtype", ("'float64'",)),
    ({"input": "a", "endianness": "middle"}, "endianness", ("'middle'",)),
    ({"input": "a", "truncate_prompt_tokens": 0}, "truncate_prompt_tokens", ("0",)),
    ({"input": "a", "truncate_prompt_tokens": -2}, "truncate_prompt_tokens", ("-2",)),
    ({"input": "a", "truncate_prompt_tokens": 65}, "truncate_prompt_tokens", ("65", "64")),
    ({"input": "a", "truncate_prompt_tokens": "9"}, "truncate_prompt_tokens", ("'9'",)),
    ({"input": "a", "truncation_side": "middle"}, "truncation_side", ("'middle'",)),
    ({"input": "a", "add_special_tokens": "yes"}, "add_special_tokens", ("'yes'",)),
    ({"input": "a", "add_special_tokens": 1}, "add_special_tokens", ("1",)),
    ({"input": "a", "priority": 2**70}, "priority", ("priority",)),
    ({"input": "a", "priority": None}, "priority", ("null",)),
    ({"input": "a", "model": 3}, "model", ("3",)),
    ({"input": "a", "user": 3}, "user", ("3",)),
    ({"input": "a", "request_id": ""}, "request_id", ("request_id",)),
    ({"input": "a", "cache_salt": ""}, "cache_salt", ("cache_salt",)),
    ({"input": "a", "cache_salt": "x" * 1025}, "cache_salt", ("1024",)),
    ({"input": "a", "cache_salt": 5}, "cache_salt", ("5",)),
    ({"input": "a", "mm_processor_kwargs": [1]}, "mm_processor_kwargs", ("[1]",)),
    ({"input": "a", "chat_template_kwargs": "x"}, "chat_template_kwargs", ("'x'",)),
    ({"input": "a", "normalize": True, "use_activation": False}, "normalize", ("use_activation",)),
    ({"input": "a", "normalize": 1}, "normalize", ("1",)),
    ({"input": "a", "softmax": True}, "softmax", ("removed", "use_activation")),
    ({"input": "a", "activation": None}, "activation", ("removed", "use_activation")),
    ({"input": "a", "late_interaction": {"mode": "score_doc"}}, "late_interaction", ("server",)),
    ({"input": "a", "late_interaction_params": None}, "late_interaction_params", ("server",)),
    ({"input": "a", "prompt_name": "nobody"}, "prompt_name", ("nobody",)),
    ({"input": "a", "prompt": 1}, "prompt", ("1",)),
]


@pytest.mark.parametrize(("body", "param", "words"), BAD_FIELDS, ids=lambda value: str(value)[:50])
def test_a_wrong_field_is_named_with_its_value(
    client: TestClient, body: dict[str, Any], param: str, words: tuple[str, ...]
) -> None:
    refused(client.post(EMBED, json=body), 400, *words, param=param)
    assert client.post(EMBED, json={"input": "still serving"}).status_code == 200


def test_dimensions_are_refused_by_a_model_not_known_as_matryoshka(
    make_client: MakeClient,
) -> None:
    client = make_client()
    refused(client.post(EMBED, json={"input": "a", "dimensions": 4}), 400, param="dimensions")
    assert client.post(EMBED, json={"input": "a", "dimensions": 8}).status_code == 200


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", ("empty",)),
        (b"{", ("not valid JSON",)),
        (b'{"input": NaN}', ("not valid JSON",)),
        (b'{"input": "\xff"}', ("not valid JSON",)),
        (b'{"input": "\\ud800"}', ("not valid JSON",)),
        (b"[" * 5000, ("not valid JSON",)),
        (b"null", ("must be a JSON object", "null")),
        (b"[1]", ("must be a JSON object",)),
        (b'"text"', ("must be a JSON object",)),
    ],
)
def test_what_is_no_json_object_is_refused(
    client: TestClient, raw: bytes, words: tuple[str, ...]
) -> None:
    headers = {"content-type": "application/json"}
    refused(client.post(EMBED, content=raw, headers=headers), 400, *words)


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", None, "application/x-json"])
def test_another_content_type_is_415(client: TestClient, kind: str | None) -> None:
    headers = {"content-type": kind} if kind else {}
    response = client.post(EMBED, content=b'{"input":"a"}', headers=headers)
    assert refused(response, 415, "application/json")["code"] == "unsupported_media_type"


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "application/vnd.api+json"])
def test_json_content_types_are_accepted(client: TestClient, kind: str) -> None:
    response = client.post(EMBED, content=b'{"input":"a"}', headers={"content-type": kind})
    assert response.status_code == 200


def test_unknown_model_is_404_and_lists_those_served(client: TestClient) -> None:
    response = client.post(EMBED, json={"input": "a", "model": "gpt"})
    error = refused(response, 404, "'gpt'", "minilm", param="model")
    assert (error["code"], error["type"]) == ("model_not_found", "not_found_error")


def test_unknown_route_and_method_have_the_same_shape(client: TestClient) -> None:
    assert refused(client.get("/nothing"), 404)["code"] == "not_found"
    response = client.get(EMBED)
    assert refused(response, 405, "POST")["code"] == "method_not_allowed"
    assert response.headers["allow"] == "POST"


def test_declared_and_chunked_bodies_over_the_limit_are_413(make_client: MakeClient) -> None:
    client = make_client(config=ServerConfig(max_body_bytes=1000))
    body = {"input": "a" * 2000}
    error = refused(client.post(EMBED, json=body), 413, "1000", "max_body_bytes")
    assert error["code"] == "payload_too_large"

    def chunks() -> Any:
        yield b'{"input": "'
        for _ in range(20):
            yield b"a" * 100
        yield b'"}'

    headers = {"content-type": "application/json"}
    refused(client.post(EMBED, content=chunks(), headers=headers), 413, "1000")
    assert client.post(EMBED, json={"input": "a"}).status_code == 200


def test_too_many_items_are_413_on_every_route(make_client: MakeClient) -> None:
    engine = FakeEngine(["embed", "token_embed"])
    client = make_client(engine, ServerConfig(max_items_per_request=3))
    four = ["a"] * 4
    for route, body, param in (
        (EMBED, {"input": four}, "input"),
        ("/pooling", {"input": four}, "input"),
        ("/classify", {"input": four}, "input"),
        ("/rerank", {"query": "q", "documents": four}, "documents"),
        ("/score", {"queries": "q", "documents": four}, "documents"),
        ("/score", {"queries": four, "documents": four}, "queries"),
    ):
        refused(client.post(route, json=body), 413, "4 items", "3", param=param)
    assert engine.submits == []


def test_a_full_queue_is_429_with_retry_after(client: TestClient, engine: FakeEngine) -> None:
    engine.refuse = Overloaded("The queue is full.", retry_after=7)
    response = client.post(EMBED, json={"input": "a"})
    error = refused(response, 429, "full")
    assert (error["type"], error["code"]) == ("rate_limit_error", "overloaded")
    assert response.headers["retry-after"] == "7"
    engine.refuse = None
    assert client.post(EMBED, json={"input": "a"}).status_code == 200


def test_a_dead_engine_is_503_also_for_health(client: TestClient, engine: FakeEngine) -> None:
    engine.refuse = EngineUnavailable("The engine died.")
    engine.is_alive = False
    response = client.post(EMBED, json={"input": "a"})
    assert refused(response, 503, "died")["code"] == "engine_unavailable"
    assert response.headers["retry-after"]
    refused(client.get("/health"), 503)
    engine.refuse, engine.is_alive = None, True
    assert client.get("/health").status_code == 200
    assert client.post(EMBED, json={"input": "a"}).status_code == 200


def test_numbers_that_are_not_finite_are_never_sent(client: TestClient, engine: FakeEngine) -> None:
    engine.fail_with = NonFiniteResult("The model gave NaN for this prompt.")
    assert refused(client.post(EMBED, json={"input": "a"}), 500)["code"] == "non_finite_result"


def test_an_unexpected_error_is_500_without_its_words(
    client: TestClient, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.fail_with = RuntimeError("secret detail")
    response = client.post(EMBED, json={"input": "a"})
    assert refused(response, 500)["code"] == "internal_error"
    assert "secret" not in response.text
    assert "secret detail" in caplog.text
    engine.fail_with = None
    assert client.post(EMBED, json={"input": "a"}).status_code == 200
