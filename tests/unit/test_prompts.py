"""The one rule by which a request's prompt, prompt name and input type choose a prefix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cenote.config.engine import EngineConfig
from cenote.config.model import ModelConfig, load_model_config
from cenote.errors import InvalidRequest
from cenote.processors.inputs import PromptOptions
from cenote.processors.prompts import prefix_for, side_of, side_prefix

E5 = {"query": "query: ", "passage": "passage: "}
NOMIC = {"search_query": "sq: ", "search_document": "sd: ", "clustering": "c: "}
QWEN = {"query": "Instruct: search\nQuery:", "document": ""}
SAVED = {"query": "", "document": "", "passage": "passage: ", "retrieval.query": "rq: "}


@pytest.fixture
def model(minilm_path: Path) -> ModelConfig:
    return load_model_config(minilm_path, name="m", revision="r", engine=EngineConfig())


def with_prompts(
    model: ModelConfig, prompts: dict[str, str], default: str | None = None
) -> ModelConfig:
    pooler = replace(model.pooler, prompts=prompts, default_prompt_name=default)
    return replace(model, pooler=pooler)


@pytest.mark.parametrize(
    ("prompts", "options", "prefix"),
    [
        (E5, {}, ""),
        (E5, {"prompt": "mine: ", "prompt_name": "query", "input_type": "document"}, "mine: "),
        (E5, {"prompt": ""}, ""),
        (E5, {"prompt_name": "passage", "input_type": "query"}, "passage: "),
        (E5, {"input_type": "query"}, "query: "),
        (E5, {"input_type": "search_query"}, "query: "),
        (E5, {"input_type": "document"}, "passage: "),
        (E5, {"input_type": "search_document"}, "passage: "),
        (NOMIC, {"input_type": "query"}, "sq: "),
        (NOMIC, {"input_type": "document"}, "sd: "),
        (NOMIC, {"input_type": "clustering"}, "c: "),
        (QWEN, {"input_type": "document"}, ""),
        (SAVED, {"input_type": "document"}, "passage: "),
        (SAVED, {"input_type": "query"}, "rq: "),
        ({}, {"input_type": "query"}, ""),
        ({}, {"input_type": "document"}, ""),
        ({"sts": ""}, {"input_type": "sts"}, ""),
    ],
)
def test_prefix(
    model: ModelConfig, prompts: dict[str, str], options: dict[str, Any], prefix: str
) -> None:
    assert prefix_for(with_prompts(model, prompts), PromptOptions(**options)) == prefix


def test_default_prompt_applies_last(model: ModelConfig) -> None:
    config = with_prompts(model, E5, default="query")
    assert prefix_for(config, PromptOptions()) == "query: "
    assert prefix_for(config, PromptOptions(prompt="")) == ""
    assert prefix_for(config, PromptOptions(input_type="passage")) == "passage: "


def test_unknown_prompt_name_lists_the_models_own(model: ModelConfig) -> None:
    with pytest.raises(InvalidRequest, match=r"no prompt 'q'.*\['passage', 'query'\]") as caught:
        prefix_for(with_prompts(model, E5), PromptOptions(prompt_name="q"))
    assert caught.value.param == "prompt_name"


def test_unknown_input_type_lists_what_is_taken(model: ModelConfig) -> None:
    with pytest.raises(InvalidRequest, match=r"'classification'.*'clustering', 'document'") as it:
        prefix_for(with_prompts(model, NOMIC), PromptOptions(input_type="classification"))
    assert it.value.param == "input_type"


def test_sides_of_a_score_get_their_own_prompts(model: ModelConfig) -> None:
    config = with_prompts(model, E5, default="query")
    assert side_prefix(config, PromptOptions(), "query") == "query: "
    assert side_prefix(config, PromptOptions(), "document") == "passage: "
    named = PromptOptions(prompt="mine: ")
    assert side_prefix(config, named, "query") == "mine: "
    assert side_prefix(config, named, "document") == "passage: "
    document = PromptOptions(prompt="mine: ", input_type="document")
    assert side_prefix(config, document, "document") == "mine: "


def test_sides_have_no_prefix_without_prompts(model: ModelConfig) -> None:
    assert side_prefix(model, PromptOptions(), "query") == ""
    assert side_prefix(model, PromptOptions(), "document") == ""


def test_side_of_an_input_type() -> None:
    assert side_of(None) == "query"
    assert (side_of("search_query"), side_of("passage")) == ("query", "document")
    with pytest.raises(InvalidRequest, match="query or document, not 'clustering'"):
        side_of("clustering")
