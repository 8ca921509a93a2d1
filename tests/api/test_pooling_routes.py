"""/classify and /pooling: every task, every encoding of its result."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from fake_engine import FakeEngine, class_scores, embedding
from fastapi.testclient import TestClient
from test_bad_input import refused

from conftest import LABELS, MakeClient

ALL_TASKS = ["embed", "classify", "token_embed", "token_classify", "sparse_embed"]
TEXT = "cenotes are sinkholes"


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(list(ALL_TASKS))


def post(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def ids_of(client: TestClient, text: str) -> np.ndarray:
    return np.asarray(post(client, "/tokenize", prompt=text)["tokens"])


def test_classify_gives_labels_and_probabilities(client: TestClient) -> None:
    body = post(client, "/classify", input=[TEXT, "other"])
    assert (body["object"], body["labels"]) == ("list", list(LABELS))
    assert body["id"].startswith("classify-")
    for index, (text, item) in enumerate(zip([TEXT, "other"], body["data"], strict=True)):
        probs = class_scores(ids_of(client, text), 3, None).astype(np.float32)
        np.testing.assert_array_equal(np.float32(item["probs"]), probs)
        assert (item["index"], item["num_classes"]) == (index, 3)
        assert item["label"] == LABELS[probs.argmax()]
        assert item["prompt_tokens"] == len(ids_of(client, text))
        assert item["truncated"] is False
    assert body["usage"]["prompt_tokens"] == sum(i["prompt_tokens"] for i in body["data"])


def test_classify_without_activation_gives_logits(client: TestClient) -> None:
    body = post(client, "/classify", input=TEXT, use_activation=False)
    logits = class_scores(ids_of(client, TEXT), 3, False).astype(np.float32)
    np.testing.assert_array_equal(np.float32(body["data"][0]["probs"]), logits)


def test_classify_takes_token_ids_and_cuts_as_asked(client: TestClient) -> None:
    ids = ids_of(client, TEXT).tolist()
    assert (
        post(client, "/classify", input=ids)["data"]
        == post(client, "/classify", input=TEXT)["data"]
    )
    body = post(client, "/classify", input="word " * 99, truncate_prompt_tokens=-1)
    assert body["data"][0]["truncated"] is True


def test_pooling_without_a_task_does_the_model_s_own(client: TestClient) -> None:
    body = post(client, "/pooling", input=TEXT)
    assert body["task"] == "embed"
    (item,) = body["data"]
    assert item["object"] == "pooling"
    np.testing.assert_array_equal(
        np.float32(item["data"]), embedding(ids_of(client, TEXT), 8, None)
    )


def test_pooling_classify_equals_classify(client: TestClient) -> None:
    body = post(client, "/pooling", input=TEXT, task="classify")
    direct = post(client, "/classify", input=TEXT)
    assert body["labels"] == direct["labels"]
    assert body["data"][0]["data"] == direct["data"][0]["probs"]
    assert body["data"][0]["label"] == direct["data"][0]["label"]


def test_token_embed_gives_a_row_for_each_token(client: TestClient) -> None:
    ids = ids_of(client, TEXT)
    (item,) = post(client, "/pooling", input=TEXT, task="token_embed")["data"]
    rows = np.float32(item["data"])
    assert rows.shape == (len(ids), 8)
    np.testing.assert_array_equal(rows[1], embedding(ids[1:2], 8, None))
    assert item["positions"] == list(range(len(ids)))
    assert item["token_ids"] == ids.tolist()


def test_token_classify_gives_offsets_in_the_text(client: TestClient) -> None:
    body = post(client, "/pooling", input=TEXT, task="token_classify")
    assert body["labels"] == list(LABELS)
    (item,) = body["data"]
    ids = ids_of(client, TEXT)
    assert np.float32(item["data"]).shape == (len(ids), 3)
    assert item["token_ids"] == ids.tolist()
    assert item["offsets"][0] == [0, 0]
    start, end = item["offsets"][-2]
    assert TEXT.endswith(TEXT[start:end])
    assert end == len(TEXT)


def test_sparse_embed_gives_ids_with_weights_heaviest_first(client: TestClient) -> None:
    (item,) = post(client, "/pooling", input=TEXT, task="sparse_embed")["data"]
    kept = np.unique(ids_of(client, TEXT))
    assert item["data"]["indices"] == kept[::-1].tolist()
    assert item["data"]["values"] == sorted(item["data"]["values"], reverse=True)
    assert len(item["data"]["values"]) == len(kept)


def test_base64_of_token_rows_tells_their_shape(client: TestClient) -> None:
    (item,) = post(client, "/pooling", input=TEXT, task="token_embed", encoding_format="base64")[
        "data"
    ]
    rows = np.frombuffer(base64.b64decode(item["data"]), "<f4").reshape(item["shape"])
    ids = ids_of(client, TEXT)
    assert item["shape"] == [len(ids), 8]
    np.testing.assert_array_equal(rows[2], embedding(ids[2:3], 8, None))


def test_bytes_of_several_inputs_are_told_apart_by_the_header(client: TestClient) -> None:
    texts = [TEXT, "one"]
    response = client.post(
        "/pooling",
        json={
            "input": texts,
            "task": "token_embed",
            "encoding_format": "bytes",
            "endianness": "big",
        },
    )
    places = json.loads(response.headers["metadata"])["data"]
    for text, place in zip(texts, places, strict=True):
        raw = response.content[place["start"] : place["end"]]
        rows = np.frombuffer(raw, ">f4").reshape(place["shape"])
        np.testing.assert_array_equal(rows[0], embedding(ids_of(client, text)[:1], 8, None))


def test_sparse_vectors_have_no_binary_form(client: TestClient) -> None:
    response = client.post(
        "/pooling", json={"input": TEXT, "task": "sparse_embed", "encoding_format": "base64"}
    )
    refused(response, 400, "sparse_embed", param="encoding_format")


@pytest.mark.parametrize(
    ("task", "replacement"),
    [("encode", "token_embed"), ("score", "classify"), ("reward", "classify")],
)
def test_removed_tasks_name_what_to_use(client: TestClient, task: str, replacement: str) -> None:
    response = client.post("/pooling", json={"input": TEXT, "task": task})
    refused(response, 400, "removed", task, replacement, param="task")


@pytest.mark.parametrize("task", ["token_embed", "nothing"])
def test_unsupported_tasks_list_the_supported(make_client: MakeClient, task: str) -> None:
    client = make_client(FakeEngine(["embed"]))
    response = client.post("/pooling", json={"input": TEXT, "task": task})
    error = refused(response, 400, f"Unsupported task: '{task}'", "['embed']", param="task")
    assert error["code"] == "unsupported_task"


def test_a_model_without_classes_refuses_classify(make_client: MakeClient) -> None:
    client = make_client(FakeEngine(["embed"]))
    refused(client.post("/classify", json={"input": TEXT}), 400, "Unsupported task", param="task")


@pytest.mark.parametrize("path", ["/classify", "/pooling"])
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [None]}, "input"),
        ({"input": TEXT, "softmax": True}, "softmax"),
        ({"input": TEXT, "cache_salt": ""}, "cache_salt"),
        ({"input": "word " * 99}, "input"),
    ],
)
def test_bad_input_is_refused_alike_on_all_routes(
    client: TestClient, path: str, body: dict[str, Any], param: str
) -> None:
    refused(client.post(path, json=body), 400, param=param)


def test_pooling_refuses_dimensions_where_the_task_has_none(client: TestClient) -> None:
    response = client.post("/pooling", json={"input": TEXT, "task": "classify", "dimensions": 2})
    refused(response, 400, "dimensions", param="dimensions")


def test_task_must_be_a_string(client: TestClient) -> None:
    refused(client.post("/pooling", json={"input": TEXT, "task": 1}), 400, param="task")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"step_tag_id": 3}, "step_tag_id is for models that answer at the ends of steps"),
        ({"returned_token_ids": [1]}, "returned_token_ids is for models that answer at the ends"),
        ({"returned_token_ids": ["a"]}, "returned_token_ids"),
    ],
)
def test_steps_are_for_models_that_have_them(
    settings: dict[str, Any], problem: str, client: TestClient
) -> None:
    answer = client.post("/pooling", json={"input": TEXT, "task": "token_classify", **settings})
    refused(answer, 400, problem)
