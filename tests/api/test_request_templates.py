"""A template that a request brings: taken only if the server trusts it, in a sandbox."""

from __future__ import annotations

from typing import Any

import pytest
from fake_engine import FakeEngine
from fastapi.testclient import TestClient
from test_bad_input import refused

from cenote.config.server import ServerConfig
from conftest import MakeClient

MESSAGES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "a cenote"}]
PAIRS = {"query": "where?", "documents": ["in Rome", "nowhere"]}
SHOUT = "{% for m in messages %}{{ m.role | upper }} {{ m.content }} {{ tone }} {% endfor %}"
TRUSTING = ServerConfig(trust_request_chat_template=True)


def fed(client: TestClient, engine: FakeEngine, index: int = -1) -> str:
    tokens = engine.requests[index].prompt.token_ids
    return str(client.post("/detokenize", json={"tokens": tokens}).json()["prompt"])


@pytest.mark.parametrize("route", ["/v1/embeddings", "/classify", "/pooling"])
def test_a_conversation_may_bring_its_template(route: str, make_client: MakeClient) -> None:
    engine = FakeEngine(["embed", "classify"])
    client = make_client(engine, TRUSTING)
    body = {"messages": MESSAGES, "chat_template": SHOUT, "chat_template_kwargs": {"tone": "!"}}
    assert client.post(route, json=body).status_code == 200
    assert fed(client, engine) == "user hello! assistant a cenote!"


@pytest.mark.parametrize("route", ["/rerank", "/score"])
def test_pairs_may_bring_their_template(route: str, make_client: MakeClient) -> None:
    engine = FakeEngine(["classify"], labels=1)
    client = make_client(engine, TRUSTING)
    template = "{{ instruction }} {{ query }} or {{ document }}"
    body: dict[str, Any] = {**PAIRS, "chat_template": template, "instruction": "find"}
    if route == "/score":
        body["queries"] = body.pop("query")
    assert client.post(route, json=body).status_code == 200
    assert fed(client, engine, 0) == "[CLS] find where? or in rome [SEP]"
    assert fed(client, engine, 1) == "[CLS] find where? or nowhere [SEP]"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{{ query.__class__.__mro__ }}", "can't be rendered"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "can't be rendered"),
        ("{% if %}", "is not a valid Jinja template"),
        ("x" * 100_001, "100001 characters; at most 100000"),
    ],
)
def test_a_bad_template_is_told(template: str, problem: str, make_client: MakeClient) -> None:
    client = make_client(FakeEngine(["classify"], labels=1), TRUSTING)
    answer = client.post("/rerank", json={**PAIRS, "chat_template": template})
    refused(answer, 400, problem)


@pytest.mark.parametrize(
    ("route", "body"),
    [("/v1/embeddings", {"messages": MESSAGES}), ("/score", {"queries": "a", "documents": "b"})],
)
def test_a_server_that_trusts_none_refuses_it(
    route: str, body: dict[str, Any], make_client: MakeClient
) -> None:
    answer = make_client(FakeEngine()).post(route, json={**body, "chat_template": SHOUT})
    refused(answer, 400, "--trust-request-chat-template", param="chat_template")


@pytest.mark.parametrize(
    ("route", "body", "problem"),
    [
        ("/v1/embeddings", {"input": "a"}, "chat_template is for messages"),
        ("/pooling", {"input": "a"}, "chat_template is for messages"),
        ("/score", {"queries": "a", "documents": "b"}, "no meaning for a bi-encoder"),
    ],
)
def test_where_it_has_no_use_it_is_refused(
    route: str, body: dict[str, Any], problem: str, make_client: MakeClient
) -> None:
    answer = make_client(FakeEngine(), TRUSTING).post(route, json={**body, "chat_template": SHOUT})
    refused(answer, 400, problem, param="chat_template")
