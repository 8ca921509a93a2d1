"""The fields that every request has are checked alike, whatever the request is for."""

from __future__ import annotations

from typing import Any

import pytest
from served import Served

from cenote.errors import InvalidRequest
from cenote.params import Task
from cenote.processors.inputs import (
    ClassifyInput,
    EmbedInput,
    PoolingInput,
    PromptOptions,
    RerankInput,
    ScoreInput,
)

BAD: list[tuple[dict[str, Any], str]] = [
    ({"truncate_prompt_tokens": 0}, "would leave nothing"),
    ({"truncate_prompt_tokens": -2}, "at least -1, not -2"),
    ({"truncate_prompt_tokens": 129}, "maximum of 128 tokens"),
    ({"truncate_prompt_tokens": 1}, "is 1, but special tokens alone take [23]"),
    ({"truncation_side": "middle"}, "left or right, not 'middle'"),
    ({"priority": 2**63}, "at most"),
    ({"request_id": ""}, "1 to 256 characters, not 0"),
    ({"request_id": "x" * 257}, "1 to 256 characters, not 257"),
    ({"use_activation": 1}, "true or false"),
    ({"add_special_tokens": "no"}, "true or false, not str"),
    ({"pooling_params": {"dimensions": 3}}, "PoolingParams, not dict"),
    ({"cache_salt": ""}, "non-empty string"),
    ({"cache_salt": "x" * 1025}, "1025 characters"),
    ({"mm_processor_kwargs": {"x": object()}}, "can't be sent"),
    ({"mm_processor_kwargs": [1]}, "must be a map"),
    ({"chat_template_kwargs": "x"}, "must be a map"),
    ({"adapter": "absent"}, "No adapter"),
]

KINDS: dict[str, tuple[str, list[Task]]] = {
    "bi_encoder": ("tiny_bert", ["embed", "token_embed"]),
    "cross_encoder": ("tiny_cross_encoder", ["classify"]),
    "colbert": ("tiny_colbert", ["token_embed"]),
    "token_classifier": ("tiny_token_classifier", ["token_classify"]),
}


@pytest.fixture(scope="module")
def kinds(request: pytest.FixtureRequest) -> dict[str, Served]:
    """A model of each kind, read once."""
    return {
        kind: Served(request.getfixturevalue(fixture), tasks)
        for kind, (fixture, tasks) in KINDS.items()
    }


def prepare(served: Served, call: str, options: PromptOptions) -> Any:
    if call == "embed":
        return served.processors.embed(EmbedInput(prompts=["a"], options=options))
    if call == "classify":
        return served.processors.classify(ClassifyInput(prompts=["a"], options=options))
    if call == "score":
        return served.processors.score(ScoreInput(queries=["q"], documents=["a"], options=options))
    if call == "rerank":
        return served.processors.rerank(RerankInput(query="q", documents=["a"], options=options))
    return served.processors.pooling(PoolingInput(prompts=["a"], options=options))


@pytest.mark.parametrize(("fields", "message"), BAD)
@pytest.mark.parametrize(
    ("kind", "call"),
    [
        ("bi_encoder", "embed"),
        ("bi_encoder", "pooling"),
        ("bi_encoder", "score"),
        ("bi_encoder", "rerank"),
        ("cross_encoder", "classify"),
        ("cross_encoder", "pooling"),
        ("cross_encoder", "rerank"),
        ("colbert", "pooling"),
        ("colbert", "score"),
        ("colbert", "rerank"),
        ("token_classifier", "pooling"),
    ],
)
def test_bad_options_are_refused_alike_whatever_the_request_is_for(
    kinds: dict[str, Served], kind: str, call: str, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        prepare(kinds[kind], call, PromptOptions(**fields))
    assert caught.value.param == next(iter(fields))
