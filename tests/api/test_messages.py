"""Conversations in place of input: the model's own chat template makes the text of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from fastapi.testclient import TestClient
from test_bad_input import refused

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig
from cenote.config.server import ServerConfig
from cenote.processors.registry import Processors
from cenote.processors.tokenizer import Tokenizer
from cenote.server.app import create_app
from cenote.server.served import ServedModel

TEMPLATE = (
    "{% for message in messages %}[CLS] {{ message.role }}: {{ message.content }} [SEP]"
    "{% endfor %}{% if add_generation_prompt %} reply{% endif %}{{ tone | default('') }}"
)
MESSAGES = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "a cenote"}]
ROUTES = ["/v1/embeddings", "/classify", "/pooling", "/vllm/v1/embeddings"]


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(["embed", "classify"])


@pytest.fixture
def client(base: tuple[ModelConfig, Tokenizer], engine: FakeEngine, tmp_path: Path) -> TestClient:
    config, tokenizer = base
    shutil.copytree(config.path, tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(TEMPLATE)
    own = replace(config, path=tmp_path / "model", num_labels=3)
    processors = Processors(own, tokenizer, engine.ready, EngineConfig())
    model = ServedModel(
        names=("chat",), config=own, tokenizer=tokenizer, processors=processors, client=engine
    )
    return TestClient(create_app([model], ServerConfig()))


def text_fed(client: TestClient, engine: FakeEngine) -> str:
    tokens = engine.requests[-1].prompt.token_ids
    return str(client.post("/detokenize", json={"tokens": tokens}).json()["prompt"])


@pytest.mark.parametrize("route", ROUTES)
def test_a_conversation_is_rendered_without_more_special_tokens(
    client: TestClient, engine: FakeEngine, route: str
) -> None:
    assert client.post(route, json={"messages": MESSAGES}).status_code == 200
    assert text_fed(client, engine) == "[CLS] user : hello [SEP] [CLS] assistant : a cenote [SEP]"


def test_options_of_the_template(client: TestClient, engine: FakeEngine) -> None:
    def fed(**fields: Any) -> str:
        body = {"messages": MESSAGES, **fields}
        assert client.post("/v1/embeddings", json=body).status_code == 200
        return text_fed(client, engine)

    assert fed(add_generation_prompt=True).endswith("[SEP] reply")
    assert fed(continue_final_message=True).endswith("a cenote")
    assert fed(chat_template_kwargs={"tone": " kind"}).endswith("kind")
    assert fed(add_special_tokens=True).startswith("[CLS] [CLS]")


def test_a_conversation_is_the_completion_form_of_its_text(client: TestClient) -> None:
    text = "[CLS] user: hello [SEP]"
    one = client.post("/v1/embeddings", json={"messages": MESSAGES[:1]}).json()
    other = client.post("/v1/embeddings", json={"input": text, "add_special_tokens": False}).json()
    assert one["data"][0]["embedding"] == other["data"][0]["embedding"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": MESSAGES, "input": "a"}, "messages"),
        ({"messages": "a"}, "messages"),
        ({"messages": ["a"]}, "messages"),
        (
            {"messages": MESSAGES, "add_generation_prompt": True, "continue_final_message": True},
            "continue_final_message",
        ),
        (
            {"messages": [{"role": "user"}], "continue_final_message": True},
            "continue_final_message",
        ),
        ({"messages": MESSAGES, "chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({}, "input"),
    ],
)
def test_what_makes_no_sense_is_refused_by_field(
    client: TestClient, fields: dict[str, Any], param: str
) -> None:
    for route in ROUTES[:3]:
        refused(client.post(route, json=fields), 400, param=param)


def test_a_model_without_template_takes_no_messages(client: TestClient, make_client: Any) -> None:
    plain = make_client(FakeEngine())
    response = plain.post("/v1/embeddings", json={"messages": MESSAGES})
    refused(response, 400, "has no chat template", param="messages")
