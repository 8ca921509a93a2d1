"""/score and /rerank: names, shapes, aliases, answers and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from fake_engine import FakeEngine
from fastapi.testclient import TestClient
from test_bad_input import refused

from conftest import MakeClient

QUERY = "What is a cenote?"
DOCUMENTS = ["A cenote is a sinkhole with water.", "A bird.", "Limestone caves collapse."]
PAIRS = [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")]


@pytest.fixture(params=["bi_encoder", "cross_encoder", "late_interaction"])
def engine(request: pytest.FixtureRequest) -> FakeEngine:
    if request.param == "cross_encoder":
        return FakeEngine(["classify"], labels=1)
    return FakeEngine(["embed"] if request.param == "bi_encoder" else ["token_embed"])


@pytest.fixture
def client(engine: FakeEngine, make_client: MakeClient) -> TestClient:
    return make_client(engine, colbert="token_embed" in engine.ready.supported_tasks)


def post(client: TestClient, path: str, **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_score_answers_in_order_with_usage(client: TestClient, engine: FakeEngine) -> None:
    body = post(client, "/score", queries=QUERY, documents=DOCUMENTS)
    assert (body["object"], body["model"]) == ("list", "minilm")
    assert body["id"].startswith("score-")
    assert [item["index"] for item in body["data"]] == [0, 1, 2]
    assert all(item["object"] == "score" for item in body["data"])
    assert len({item["score"] for item in body["data"]}) == 3
    ran = sum(len(request.prompt.token_ids) for request in engine.requests)
    assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] == ran
    for document, item in zip(DOCUMENTS, body["data"], strict=True):
        single = post(client, "/score", queries=QUERY, documents=document)["data"][0]
        assert single["score"] == pytest.approx(item["score"], abs=1e-6)


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_all_pairs_of_names_are_the_same(
    client: TestClient, path: str, left: str, right: str
) -> None:
    wanted = post(client, "/score", queries=QUERY, documents=DOCUMENTS)["data"]
    assert post(client, path, **{left: QUERY, right: DOCUMENTS})["data"] == wanted


def test_many_to_many_goes_pair_by_pair(client: TestClient) -> None:
    queries = [QUERY, "Which animal flies?", "What is limestone?"]
    data = post(client, "/score", text_1=queries, text_2=DOCUMENTS)["data"]
    for query, document, item in zip(queries, DOCUMENTS, data, strict=True):
        single = post(client, "/score", text_1=query, text_2=document)["data"][0]
        assert single["score"] == pytest.approx(item["score"], abs=1e-6)


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_rerank_is_score_sorted(client: TestClient, path: str) -> None:
    scores = [
        item["score"] for item in post(client, "/score", queries=QUERY, documents=DOCUMENTS)["data"]
    ]
    body = post(client, path, query=QUERY, documents=DOCUMENTS)
    assert body["object"] == "rerank"
    assert body["id"].startswith("rerank-")
    order = sorted(range(3), key=lambda index: -scores[index])
    assert [item["index"] for item in body["results"]] == order
    for item in body["results"]:
        assert item["relevance_score"] == pytest.approx(scores[item["index"]], abs=1e-6)
        assert item["document"] == {"text": DOCUMENTS[item["index"]], "multi_modal": None}
        assert item["truncated"] is False
        assert "matches" not in item
    meta = body["meta"]
    assert meta["api_version"] == {"version": "2"}
    assert meta["billed_units"] == {"search_units": 1}
    assert meta["tokens"]["input_tokens"] == body["usage"]["prompt_tokens"]
    assert "warnings" not in meta


def test_documents_may_be_objects(client: TestClient) -> None:
    objects = [
        {"text": DOCUMENTS[0]},
        {"content": [{"type": "text", "text": "A "}, {"type": "text", "text": "bird."}]},
        {"content": DOCUMENTS[2]},
    ]
    wanted = post(client, "/rerank", query=QUERY, documents=DOCUMENTS)["results"]
    query = {"content": [{"type": "text", "text": QUERY}]}
    assert post(client, "/rerank", query=query, documents=objects)["results"] == wanted
    scores = post(client, "/score", queries=query, documents=objects)["data"]
    assert scores == post(client, "/score", queries=QUERY, documents=DOCUMENTS)["data"]


@pytest.mark.parametrize(
    ("top", "count"),
    [({"top_n": 2}, 2), ({"top_k": 1}, 1), ({"top_n": 0}, 3), ({"top_n": 9}, 3), ({}, 3)],
)
def test_top_n_keeps_the_best(client: TestClient, top: dict[str, int], count: int) -> None:
    wanted = post(client, "/rerank", query=QUERY, documents=DOCUMENTS)["results"][:count]
    assert post(client, "/rerank", query=QUERY, documents=DOCUMENTS, **top)["results"] == wanted


def test_documents_are_left_out_if_not_wanted(client: TestClient) -> None:
    body = post(client, "/rerank", query=QUERY, documents=DOCUMENTS, return_documents=False)
    assert all("document" not in item for item in body["results"])


def test_a_cut_document_is_told_in_results_and_warnings(client: TestClient) -> None:
    documents = [DOCUMENTS[0], "word " * 200]
    body = post(client, "/rerank", query=QUERY, documents=documents, truncate_prompt_tokens=-1)
    cut = {item["index"]: item["truncated"] for item in body["results"]}
    assert cut == {0: False, 1: True}
    assert body["meta"]["warnings"] == ["documents[1] was truncated."]


def test_explain_tells_matches_on_late_interaction_only(
    client: TestClient, engine: FakeEngine
) -> None:
    response = client.post(
        "/rerank", json={"query": QUERY, "documents": DOCUMENTS, "explain": True}
    )
    if "token_embed" not in engine.ready.supported_tasks:
        refused(response, 400, "explain", param="explain")
        return
    (match,) = response.json()["results"][0]["matches"]
    assert match.keys() == {
        "query_token",
        "query_offset",
        "document_token",
        "document_offset",
        "similarity",
    }
    assert match["similarity"] == 0.5
    score = post(client, "/score", queries=QUERY, documents=DOCUMENTS[0], explain=True)
    assert len(score["data"][0]["matches"]) == 1


def test_extras_reach_every_prompt(client: TestClient, engine: FakeEngine) -> None:
    post(
        client,
        "/rerank",
        query=QUERY,
        documents=DOCUMENTS,
        cache_salt="s",
        mm_processor_kwargs={"a": 1},
        priority=4,
    )
    assert engine.requests
    for request in engine.requests:
        assert request.prompt.cache_salt == "s"
        assert request.prompt.mm_processor_kwargs == {"a": 1}
        assert request.priority == 4


BAD_SCORES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({}, ("exactly one pair", "none")),
    ({"queries": "a"}, ("exactly one pair", "queries")),
    ({"queries": "a", "documents": "b", "items": "c"}, ("exactly one pair", "items")),
    ({"queries": "a", "text_2": "b"}, ("exactly one pair", "text_2")),
    ({"queries": "a", "documents": "b", "text_1": "a", "text_2": "b"}, ("exactly one pair",)),
    ({"queries": ["a", "b"], "documents": ["c", "d", "e"]}, ("1:1, 1:N or N:N",)),
    ({"queries": [], "documents": ["c"]}, ("At least one",)),
    ({"queries": ["a"], "documents": []}, ("At least one",)),
    ({"text_1": 5, "text_2": "b"}, ("text_1", "5")),
    ({"text_1": "a", "text_2": [1, 2]}, ("text_2[0]", "1")),
    ({"text_1": "a", "text_2": [[1, 2]]}, ("text_2[0]",)),
    ({"text_1": "a", "text_2": [None]}, ("text_2[0]", "null")),
    ({"queries": "a", "documents": {"text": 5}}, ("documents",)),
    ({"queries": "a", "documents": "b", "max_tokens_per_doc": -1}, ("max_tokens_per_doc", "-1")),
    ({"queries": "a", "documents": "b", "max_tokens_per_doc": 64}, ("max_tokens_per_doc", "64")),
    ({"queries": "a", "documents": "b", "max_tokens_per_query": "4"}, ("max_tokens_per_query",)),
    ({"queries": "a", "documents": "b", "cache_salt": ""}, ("cache_salt",)),
    ({"queries": "a", "documents": "b", "activation": True}, ("use_activation",)),
]


@pytest.mark.parametrize(("body", "words"), BAD_SCORES, ids=lambda value: str(value)[:60])
def test_bad_scores_are_refused(
    client: TestClient, engine: FakeEngine, body: dict[str, Any], words: tuple[str, ...]
) -> None:
    refused(client.post("/score", json=body), 400, *words)
    assert engine.submits == []
    post(client, "/score", queries=QUERY, documents=DOCUMENTS)


BAD_RERANKS: list[tuple[dict[str, Any], str]] = [
    ({"documents": ["a"]}, "query"),
    ({"query": "a"}, "documents"),
    ({"query": "a", "documents": []}, "documents"),
    ({"query": None, "documents": ["a"]}, "query"),
    ({"query": ["a"], "documents": ["a"]}, "query"),
    ({"query": "a", "documents": None}, "documents"),
    ({"query": "a", "documents": ["b", {"title": "c"}]}, "documents"),
    ({"query": "a", "documents": [{"content": []}]}, "documents"),
    ({"query": "a", "documents": [{"content": [{"type": "image_url"}]}]}, "documents"),
    ({"query": "a", "documents": ["b"], "top_n": -1}, "top_n"),
    ({"query": "a", "documents": ["b"], "top_n": True}, "top_n"),
    ({"query": "a", "documents": ["b"], "top_n": 1, "top_k": 2}, "top_k"),
    ({"query": "a", "documents": ["b"], "return_documents": "yes"}, "return_documents"),
    ({"query": "a", "documents": ["b"], "explain": 1}, "explain"),
    ({"query": "a", "documents": ["b"], "instruction": 1}, "instruction"),
]


@pytest.mark.parametrize(("body", "param"), BAD_RERANKS, ids=lambda value: str(value)[:60])
def test_bad_reranks_are_refused(
    client: TestClient, engine: FakeEngine, body: dict[str, Any], param: str
) -> None:
    answer = client.post("/rerank", json=body)
    refused(answer, 400, param=param)
    message = answer.json()["error"]["message"]
    assert param in message
    assert "[0]" not in message or isinstance(body[param], list)
    assert engine.submits == []
    post(client, "/rerank", query=QUERY, documents=DOCUMENTS)


def test_a_model_that_cannot_score_says_what_it_can(make_client: MakeClient) -> None:
    client = make_client(FakeEngine(["classify"], labels=3))
    for path, body in (
        ("/score", {"queries": "a", "documents": "b"}),
        ("/rerank", {"query": "a", "documents": ["b"]}),
    ):
        error = refused(client.post(path, json=body), 400, "classify")
        assert error["code"] == "unsupported_task"
