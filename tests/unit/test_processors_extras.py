"""Request extras: engine level into every engine prompt, template level into the template only.

Seen at the engine's boundary, for every scorer, shape and task, prepared as the server does and
through `LLM`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from served import Served

from cenote.config.engine import EngineConfig
from cenote.engine.messages import EnginePrompt, EngineRequest
from cenote.errors import InvalidRequest
from cenote.params import PoolingParams
from cenote.processors.extras import EngineExtras
from cenote.processors.inputs import (
    ClassifyInput,
    EmbedInput,
    PoolingInput,
    PromptOptions,
    RerankInput,
    ScoreInput,
)

EXTRAS: dict[str, Any] = {
    "cache_salt": "tenant-a",
    "mm_processor_kwargs": {"size": 224, "unset": None},
    "chat_template_kwargs": {"secret": "only for the template"},
}
OPTIONS = PromptOptions(**EXTRAS)
SHAPES = {
    "1:1": (["q"], ["d"]),
    "1:N": (["q"], ["d one", "d two", "d three"]),
    "N:N": (["q", "other", "q"], ["d one", "d two", "d three"]),
}


SCORERS = ["bi_encoder", "cross_encoder", "templated", "colbert", "sparse"]


@pytest.fixture
def templated(tiny_cross_encoder: Path, tmp_path: Path) -> Served:
    """A cross-encoder whose pairs are rendered by a template."""
    template = tmp_path / "score.jinja"
    template.write_text("{{ query }} | {{ document }}")
    engine = EngineConfig(model=str(tiny_cross_encoder), score_template=str(template))
    return Served(tiny_cross_encoder, ["classify"], engine=engine)


@pytest.fixture
def sparse(make_tiny_bert: Callable[..., Path]) -> Served:
    return Served(make_tiny_bert("BertForMaskedLM"), ["sparse_embed"])


def assert_extras_everywhere(requests: list[EngineRequest]) -> None:
    assert requests
    for request in requests:
        assert request.prompt.cache_salt == "tenant-a"
        assert request.prompt.mm_processor_kwargs == {"size": 224}
        assert "only for the template" not in repr(request)
    maps = [id(request.prompt.mm_processor_kwargs) for request in requests]
    assert len(set(maps)) == len(maps), "two prompts share a map"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("way", ["score", "llm.score"])
def test_every_prompt_of_a_score_request_carries_the_extras(
    request: pytest.FixtureRequest, scorer: str, shape: str, way: str
) -> None:
    served: Served = request.getfixturevalue(scorer)
    queries, documents = SHAPES[shape]
    if way == "score":
        inputs = ScoreInput(queries=queries, documents=documents, options=OPTIONS)
        served.run(served.processors.score(inputs))
    else:
        served.llm().score(queries, documents, **EXTRAS)
    assert_extras_everywhere(served.spy.requests)


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("way", ["rerank", "llm.rerank"])
@pytest.mark.parametrize("documents", [["d"], ["d one", "d two"]])
def test_every_prompt_of_a_rerank_carries_the_extras(
    request: pytest.FixtureRequest, scorer: str, way: str, documents: list[str]
) -> None:
    served: Served = request.getfixturevalue(scorer)
    if way == "rerank":
        inputs = RerankInput(query="q", documents=documents, options=OPTIONS)
        served.run(served.processors.rerank(inputs))
    else:
        served.llm().rerank("q", documents, **EXTRAS)
    assert_extras_everywhere(served.spy.requests)


@pytest.mark.parametrize("prompts", [["one"], ["one", "two"], [[101, 102], "two"]])
def test_every_prompt_of_a_task_carries_the_extras(
    bi_encoder: Served, cross_encoder: Served, colbert: Served, prompts: list[Any]
) -> None:
    runs: list[tuple[Served, Any]] = [
        (bi_encoder, bi_encoder.processors.embed(EmbedInput(prompts=prompts, options=OPTIONS))),
        (
            cross_encoder,
            cross_encoder.processors.classify(ClassifyInput(prompts=prompts, options=OPTIONS)),
        ),
        (
            bi_encoder,
            bi_encoder.processors.pooling(
                PoolingInput(prompts=prompts, task="token_embed", options=OPTIONS)
            ),
        ),
        (colbert, colbert.processors.pooling(PoolingInput(prompts=prompts, options=OPTIONS))),
    ]
    for served, prepared in runs:
        assert_extras_everywhere(prepared.requests)
        served.run(prepared)


def test_every_task_of_the_offline_api_carries_the_extras(
    bi_encoder: Served, cross_encoder: Served
) -> None:
    llm = bi_encoder.llm()
    llm.embed(["one", "two"], **EXTRAS)
    llm.encode(["one", "two"], task="token_embed", **EXTRAS)
    assert_extras_everywhere(bi_encoder.spy.requests)
    cross_encoder.llm().classify(["one", "two"], **EXTRAS)
    assert_extras_everywhere(cross_encoder.spy.requests)


def test_absent_or_null_extras_set_no_key(bi_encoder: Served) -> None:
    nulls = PromptOptions(mm_processor_kwargs={"size": None})
    for options in (PromptOptions(), nulls):
        prepared = bi_encoder.processors.embed(EmbedInput(prompts=["one"], options=options))
        raw = msgspec.to_builtins(prepared.requests[0].prompt)
        assert set(raw) == {"token_ids"}


def test_extras_go_on_the_encoder_part_of_a_nested_prompt() -> None:
    prompt = EnginePrompt(token_ids=[2], encoder=EnginePrompt(token_ids=[5, 6]))
    done = EngineExtras.of(OPTIONS).put_into(prompt)
    assert (done.cache_salt, done.mm_processor_kwargs) == (None, None)
    assert done.encoder == EnginePrompt(
        token_ids=[5, 6], cache_salt="tenant-a", mm_processor_kwargs={"size": 224}
    )
    assert prompt == EnginePrompt(token_ids=[2], encoder=EnginePrompt(token_ids=[5, 6]))


@pytest.mark.parametrize("salt", ["", "x" * 1025, 7])
@pytest.mark.parametrize("call", ["embed", "score"])
def test_a_bad_cache_salt_is_refused(bi_encoder: Served, salt: Any, call: str) -> None:
    options = PromptOptions(cache_salt=salt)
    calls: dict[str, Callable[[], Any]] = {
        "embed": lambda: bi_encoder.processors.embed(EmbedInput(prompts=["a"], options=options)),
        "score": lambda: bi_encoder.processors.score(
            ScoreInput(queries=["a"], documents=["b"], options=options)
        ),
    }
    with pytest.raises(InvalidRequest) as caught:
        calls[call]()
    assert caught.value.param == "cache_salt"


def test_the_longest_cache_salt_is_accepted(bi_encoder: Served) -> None:
    options = PromptOptions(cache_salt="x" * 1024)
    prepared = bi_encoder.processors.embed(EmbedInput(prompts=["a"], options=options))
    assert prepared.requests[0].prompt.cache_salt == "x" * 1024


def test_token_types_are_merged_into_a_clone_of_the_callers_params(cross_encoder: Served) -> None:
    own = PoolingParams(extra_kwargs={"mine": 1, "compressed_token_type_ids": 99})
    inputs = ScoreInput(
        queries=["short"],
        documents=["one document", "another, longer document"],
        options=PromptOptions(pooling_params=own),
    )
    first, second = cross_encoder.processors.score(inputs).requests
    assert first.params.extra_kwargs == {"mine": 1, "compressed_token_type_ids": 3}
    assert first.params.extra_kwargs is not second.params.extra_kwargs
    assert own.extra_kwargs == {"mine": 1, "compressed_token_type_ids": 99}


@pytest.mark.parametrize("scorer", ["bi_encoder", "colbert"])
def test_the_callers_extra_kwargs_reach_the_other_scorers(
    request: pytest.FixtureRequest, scorer: str
) -> None:
    served: Served = request.getfixturevalue(scorer)
    own = PoolingParams(extra_kwargs={"mine": 1})
    inputs = ScoreInput(
        queries=["q"], documents=["a", "b"], options=PromptOptions(pooling_params=own)
    )
    for item in served.processors.score(inputs).requests:
        assert item.params.extra_kwargs == {"mine": 1}
