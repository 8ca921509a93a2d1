"""/v1/embeddings: every shape of input, every field, every encoding."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from fake_engine import FakeEngine, embedding
from fastapi.testclient import TestClient

from cenote.server.encoding import Encoding

TEXT = "Where do cenotes come from?"


def post(client: TestClient, **body: object) -> dict:
    response = client.post("/v1/embeddings", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def expected(client: TestClient, text: str, dim: int = 8) -> np.ndarray:
    ids = client.post("/tokenize", json={"prompt": text}).json()["tokens"]
    return embedding(np.asarray(ids), dim, None)


def test_answer_has_openai_shape_and_extensions(client: TestClient) -> None:
    body = post(client, input=TEXT, model="minilm", user="someone")
    (item,) = body["data"]
    tokens = len(client.post("/tokenize", json={"prompt": TEXT}).json()["tokens"])
    assert body["object"] == "list"
    assert body["model"] == "minilm"
    assert body["id"].startswith("embd-")
    assert body["usage"] == {
        "prompt_tokens": tokens,
        "total_tokens": tokens,
        "completion_tokens": 0,
        "prompt_tokens_details": None,
    }
    assert (item["object"], item["index"]) == ("embedding", 0)
    assert (item["prompt_tokens"], item["truncated"]) == (tokens, False)
    np.testing.assert_array_equal(np.float32(item["embedding"]), expected(client, TEXT))


def test_all_four_shapes_of_input_agree(client: TestClient) -> None:
    texts = [TEXT, "A sinkhole."]
    ids = [client.post("/tokenize", json={"prompt": text}).json()["tokens"] for text in texts]
    as_texts = [item["embedding"] for item in post(client, input=texts)["data"]]
    as_ids = [item["embedding"] for item in post(client, input=ids)["data"]]
    assert as_texts == as_ids
    assert post(client, input=texts[1])["data"][0]["embedding"] == as_texts[1]
    assert post(client, input=ids[0])["data"][0]["embedding"] == as_texts[0]


def test_order_is_that_of_the_input(client: TestClient) -> None:
    texts = [f"text number {i}" for i in range(50)]
    data = post(client, input=texts)["data"]
    assert [item["index"] for item in data] == list(range(50))
    for text, item in zip(texts, data, strict=True):
        np.testing.assert_array_equal(np.float32(item["embedding"]), expected(client, text))


def test_empty_string_has_its_special_tokens(client: TestClient) -> None:
    assert post(client, input="")["data"][0]["prompt_tokens"] == 2


@pytest.mark.parametrize("endianness", ["native", "little", "big"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 0), ("float16", 1e-3), ("bfloat16", 8e-3)]
)
def test_base64_reads_back_in_every_format(
    client: TestClient, dtype: str, tolerance: float, endianness: str
) -> None:
    body = post(
        client, input=TEXT, encoding_format="base64", embed_dtype=dtype, endianness=endianness
    )
    raw = base64.b64decode(body["data"][0]["embedding"])
    np.testing.assert_allclose(
        decoded(raw, dtype, endianness), expected(client, TEXT), rtol=0, atol=tolerance
    )


def decoded(raw: bytes, dtype: str, endianness: str) -> np.ndarray:
    order = ">" if endianness == "big" else "<"
    if dtype == "bfloat16":
        upper = np.frombuffer(raw, f"{order}u2").astype(np.uint32) << 16
        return upper.view(np.float32)
    return np.frombuffer(raw, order + {"float32": "f4", "float16": "f2"}[dtype]).astype(np.float32)


def test_default_base64_is_little_endian_float32(client: TestClient) -> None:
    body = post(client, input=TEXT, encoding_format="base64")
    raw = base64.b64decode(body["data"][0]["embedding"])
    np.testing.assert_array_equal(np.frombuffer(raw, "<f4"), expected(client, TEXT))


def test_bfloat16_rounds_to_nearest_even() -> None:
    import torch

    values = np.concatenate(
        [
            np.random.default_rng(0).standard_normal(1000).astype(np.float32),
            np.float32([0, -0.0, 1, -1, 1.00390625, 1.01171875, 3e38, 1e-40]),
        ]
    )
    ours = np.frombuffer(Encoding("base64", "bfloat16", "little").raw(values), "<u2")
    theirs = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp8_e5m2"])
def test_fp8_has_torch_s_bytes(client: TestClient, dtype: str) -> None:
    import torch

    kind = torch.float8_e4m3fn if dtype == "fp8_e4m3" else torch.float8_e5m2
    values = np.random.default_rng(0).standard_normal(2000).astype(np.float32)
    ours = np.frombuffer(Encoding("base64", dtype, "big").raw(values), np.uint8)
    theirs = torch.from_numpy(values).to(kind).view(torch.uint8).numpy()
    np.testing.assert_array_equal(ours, theirs)
    body = post(client, input=TEXT, encoding_format="base64", embed_dtype=dtype)
    assert len(base64.b64decode(body["data"][0]["embedding"])) == 8


def test_bytes_have_a_header_that_describes_them(client: TestClient) -> None:
    texts = [TEXT, "A sinkhole."]
    response = client.post(
        "/v1/embeddings",
        json={"input": texts, "encoding_format": "bytes", "embed_dtype": "float16"},
    )
    assert response.headers["content-type"] == "application/octet-stream"
    metadata = json.loads(response.headers["metadata"])
    assert metadata["model"] == "minilm"
    assert metadata["usage"]["prompt_tokens"] > 4
    for text, place in zip(texts, metadata["data"], strict=True):
        assert (place["embed_dtype"], place["shape"]) == ("float16", [8])
        raw = response.content[place["start"] : place["end"]]
        np.testing.assert_allclose(
            np.frombuffer(raw, "<f2"), expected(client, text), rtol=0, atol=1e-3
        )


def test_bytes_only_has_the_same_body_and_no_header(client: TestClient) -> None:
    whole = client.post("/v1/embeddings", json={"input": TEXT, "encoding_format": "bytes"})
    bare = client.post("/v1/embeddings", json={"input": TEXT, "encoding_format": "bytes_only"})
    assert bare.content == whole.content
    assert "metadata" not in bare.headers


def test_more_inputs_than_a_header_can_describe_are_refused(client: TestClient) -> None:
    body = {"input": ["a"] * 257, "encoding_format": "bytes"}
    response = client.post("/v1/embeddings", json=body)
    assert response.status_code == 400
    assert "256" in response.json()["message"]
    assert response.json()["error"]["param"] == "encoding_format"
    most = client.post("/v1/embeddings", json={**body, "input": ["a"] * 256})
    assert len(most.headers["metadata"]) < 1 << 16
    assert client.post("/v1/embeddings", json={**body, "encoding_format": "bytes_only"}).content


def test_a_text_is_cut_only_if_asked_and_the_answer_tells(client: TestClient) -> None:
    long = "word " * 100
    refused = client.post("/v1/embeddings", json={"input": long})
    assert refused.status_code == 400
    assert "102 tokens" in refused.json()["error"]["message"]
    assert "64 tokens" in refused.json()["error"]["message"]
    assert refused.json()["error"]["code"] == "input_too_long"
    for keep, tokens in ((-1, 64), (10, 10)):
        body = post(client, input=[long, "short"], truncate_prompt_tokens=keep)
        assert [item["truncated"] for item in body["data"]] == [True, False]
        assert body["data"][0]["prompt_tokens"] == tokens
        assert body["usage"]["prompt_tokens"] == tokens + 3


def test_truncation_side_chooses_the_end_that_stays(client: TestClient, engine: FakeEngine) -> None:
    for side, kept in (("left", "gamma delta"), ("right", "alpha beta")):
        post(
            client,
            input="alpha beta gamma delta",
            truncate_prompt_tokens=4,
            truncation_side=side,
        )
        ids = client.post("/tokenize", json={"prompt": kept}).json()["tokens"]
        assert engine.requests[-1].prompt.token_ids == ids


def test_fields_reach_the_engine(client: TestClient, engine: FakeEngine) -> None:
    post(
        client,
        input=TEXT,
        priority=-3,
        request_id="mine",
        cache_salt="s",
        mm_processor_kwargs={"a": 1, "b": None},
        chat_template_kwargs={"c": 1},
        dimensions=4,
        use_activation=False,
        add_special_tokens=False,
    )
    request = engine.requests[-1]
    assert request.priority == -3
    assert "mine" in request.request_id
    assert request.prompt.cache_salt == "s"
    assert request.prompt.mm_processor_kwargs == {"a": 1}
    assert "c" not in request.params.extra_kwargs
    assert request.params.dimensions == 4
    assert request.params.use_activation is False
    assert 101 not in request.prompt.token_ids


def test_prompt_is_put_before_each_input(client: TestClient, engine: FakeEngine) -> None:
    post(client, input=["a river", "a cave"], prompt="find: ")
    wanted = [
        client.post("/tokenize", json={"prompt": f"find: {text}"}).json()["tokens"]
        for text in ("a river", "a cave")
    ]
    assert [request.prompt.token_ids for request in engine.requests] == wanted


def test_normalize_is_another_name_of_use_activation(
    client: TestClient, engine: FakeEngine
) -> None:
    post(client, input=TEXT, normalize=False)
    assert engine.requests[-1].params.use_activation is False
    post(client, input=TEXT, normalize=True, use_activation=True)
    assert engine.requests[-1].params.use_activation is True


def test_request_id_comes_from_body_then_header_then_server(client: TestClient) -> None:
    headers = {"X-Request-Id": "from-header"}
    response = client.post("/v1/embeddings", json={"input": TEXT}, headers=headers)
    assert response.headers["x-request-id"] == "from-header"
    assert response.json()["id"] == "embd-from-header"
    response = client.post(
        "/v1/embeddings", json={"input": TEXT, "request_id": "own"}, headers=headers
    )
    assert response.json()["id"] == "embd-own"
    ids = {client.post("/v1/embeddings", json={"input": TEXT}).json()["id"] for _ in range(3)}
    assert len(ids) == 3


def test_null_is_the_same_as_absent_for_optional_fields(client: TestClient) -> None:
    names = ("model", "dimensions", "encoding_format", "embed_dtype", "endianness", "user")
    body = post(client, input=TEXT, **dict.fromkeys(names))
    assert len(body["data"][0]["embedding"]) == 8


def test_unknown_fields_are_ignored(client: TestClient) -> None:
    assert post(client, input=TEXT, something_new=1)["data"]


def test_route_without_v1_is_the_same(client: TestClient) -> None:
    first = client.post("/embeddings", json={"input": TEXT}).json()["data"]
    assert first == post(client, input=TEXT)["data"]
