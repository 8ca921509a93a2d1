"""The single-prompt tasks: what reaches the engine, what comes back, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import Served

from cenote.config.engine import EngineConfig
from cenote.errors import InputTooLong, InvalidRequest, UnsupportedTask
from cenote.params import LateInteractionParams, PoolingParams, Task
from cenote.processors.inputs import ClassifyInput, EmbedInput, PoolingInput, PromptOptions

TEXT = "Ann lives in Rome."
LONG = "word " * 300
# [CLS] ann lives in rome . [SEP]
TEXT_TOKENS = 7


@pytest.fixture
def embedder(tiny_bert: Path) -> Served:
    return Served(tiny_bert, ["embed", "token_embed", "sparse_embed"])


@pytest.fixture
def classifier(tiny_classifier: Path) -> Served:
    return Served(tiny_classifier, ["classify"], labels=3)


@pytest.fixture
def colbert(tiny_colbert: Path) -> Served:
    return Served(tiny_colbert, ["token_embed"])


def embed(served: Served, prompts: list[Any], **fields: Any) -> list[Any]:
    dimensions = fields.pop("dimensions", None)
    inputs = EmbedInput(prompts=prompts, dimensions=dimensions, options=PromptOptions(**fields))
    result: list[Any] = served.run(served.processors.embed(inputs))
    return result


def pooling(served: Served, prompts: list[Any], task: Task | None = None, **fields: Any) -> Any:
    inputs = PoolingInput(prompts=prompts, task=task, options=PromptOptions(**fields))
    return served.run(served.processors.pooling(inputs))


# Embeddings


def test_an_embedding_counts_its_tokens(embedder: Served) -> None:
    first, second = embed(embedder, [TEXT, "Ann"])
    assert (first.prompt_tokens, second.prompt_tokens) == (TEXT_TOKENS, 3)
    assert not first.truncated
    assert first.embedding.dtype == np.float32
    assert first.embedding.flags.writeable


def test_texts_and_token_ids_keep_their_order(embedder: Served) -> None:
    ids = [101, 5754, 102]
    embed(embedder, [ids, TEXT, [7]])
    lengths = [len(request.prompt.token_ids) for request in embedder.spy.requests]
    assert lengths == [3, TEXT_TOKENS, 1]
    assert embedder.spy.requests[0].prompt.token_ids == ids


def test_a_text_and_its_token_ids_are_the_same_prompt(embedder: Served) -> None:
    embed(embedder, [TEXT])
    ids = embedder.spy.requests[0].prompt.token_ids
    (a,), (b,) = embed(embedder, [TEXT]), embed(embedder, [ids])
    np.testing.assert_array_equal(a.embedding, b.embedding)


@pytest.mark.parametrize("prompt", [LONG, [5] * 200])
def test_an_overlong_prompt_is_an_error_that_names_length_and_limit(
    embedder: Served, prompt: Any
) -> None:
    with pytest.raises(
        InputTooLong, match=r"128 tokens.*contains \d+ tokens \(input\[1\]\)"
    ) as caught:
        embed(embedder, ["fine", prompt])
    assert caught.value.limit == 128
    assert embedder.spy.submits == []


@pytest.mark.parametrize("prompt", [LONG, [5] * 200])
@pytest.mark.parametrize(("keep", "length"), [(-1, 128), (10, 10), (128, 128)])
def test_truncation_keeps_what_was_asked_for_and_says_so(
    embedder: Served, prompt: Any, keep: int, length: int
) -> None:
    cut, whole = embed(embedder, [prompt, "Ann"], truncate_prompt_tokens=keep)
    assert (cut.prompt_tokens, cut.truncated) == (length, True)
    assert (whole.prompt_tokens, whole.truncated) == (3, False)


def test_truncation_side_chooses_what_goes(embedder: Served) -> None:
    for side, ids in (("left", [3, 4]), ("right", [1, 2])):
        embed(embedder, [[1, 2, 3, 4]], truncate_prompt_tokens=2, truncation_side=side)
        assert embedder.spy.requests[-1].prompt.token_ids == ids


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "at least -1, not -2"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "would leave nothing"),
        ({"truncate_prompt_tokens": 129}, "truncate_prompt_tokens", "smaller truncation size"),
        ({"truncate_prompt_tokens": 1.5}, "truncate_prompt_tokens", "whole number"),
        ({"truncation_side": "middle"}, "truncation_side", "left or right"),
        ({"priority": 2**63}, "priority", "at most"),
        ({"priority": "high"}, "priority", "whole number"),
        ({"request_id": ""}, "request_id", "1 to 256"),
        ({"request_id": 7}, "request_id", "must be a string, not int"),
        ({"prompt": 7}, "prompt", "must be a string"),
        ({"use_activation": 1}, "use_activation", "true or false"),
        ({"mm_processor_kwargs": [1]}, "mm_processor_kwargs", "must be a map"),
        ({"chat_template_kwargs": "x"}, "chat_template_kwargs", "must be a map"),
        ({"adapter": "absent"}, "adapter", "No adapter"),
        ({"prompt_name": "absent"}, "prompt_name", "absent"),
        ({"dimensions": 0}, "dimensions", "at least 1"),
        ({"dimensions": -3}, "dimensions", "at least 1"),
        ({"dimensions": 9}, "dimensions", "embedding size 8"),
        ({"dimensions": 4}, "dimensions", "not known as matryoshka"),
    ],
)
def test_bad_values_are_refused_by_name(
    embedder: Served, fields: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        embed(embedder, ["a"], **fields)
    assert caught.value.param == param
    assert embedder.spy.submits == []


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ([], "at least one prompt"),
        ([None], r"input\[0\] must be a text or a list of token ids, not NoneType"),
        (["a", 7], r"input\[1\] must be a text or a list of token ids, not int"),
        ([[]], "empty"),
        ([[101, -1]], "-1"),
        ([[101, 30522]], "30522"),
        ([[101, "a"]], "token id"),
        ([[True]], "token id"),
    ],
)
def test_bad_prompts_are_refused(embedder: Served, prompts: list[Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        embed(embedder, prompts)


def test_nothing_can_be_put_before_token_ids(embedder: Served) -> None:
    with pytest.raises(InvalidRequest, match="prompt can't be put before token ids"):
        embed(embedder, ["a", [101, 102]], prompt="find: ")


def test_an_empty_text_needs_special_tokens(embedder: Served) -> None:
    (result,) = embed(embedder, [""])
    assert result.prompt_tokens == 2
    with pytest.raises(InvalidRequest, match="empty"):
        embed(embedder, [""], add_special_tokens=False)


def test_dimensions_are_checked_against_the_models_own_sizes(tiny_bert: Path) -> None:
    served = Served(tiny_bert, ["embed"], pooler={"matryoshka": (2, 4)})
    embed(served, ["a"], dimensions=4)
    assert served.spy.requests[-1].params.dimensions == 4
    with pytest.raises(InvalidRequest, match=r"one of \[2, 4\]"):
        embed(served, ["a"], dimensions=3)


@pytest.mark.parametrize("way", ["flagged", "allowed", "whole"])
def test_dimensions_pass_where_they_are_safe_or_allowed(tiny_bert: Path, way: str) -> None:
    engine = EngineConfig(model=str(tiny_bert), allow_any_dimensions=way == "allowed")
    pooler = {"is_matryoshka": way == "flagged"}
    served = Served(tiny_bert, ["embed"], engine=engine, pooler=pooler)
    embed(served, ["a"], dimensions=8 if way == "whole" else 3)
    assert len(served.spy.requests) == 1


def test_ids_are_unique_and_keep_the_callers_prefix(embedder: Served) -> None:
    embed(embedder, ["a", "b"], request_id="mine", priority=-5)
    embed(embedder, ["a", "b"], request_id="mine")
    ids = [request.request_id for request in embedder.spy.requests]
    assert len(set(ids)) == 4
    assert all(one.startswith("mine-") for one in ids)
    assert [request.priority for request in embedder.spy.requests] == [-5, -5, 0, 0]


def test_an_excluded_prompt_takes_no_part_in_pooling(tiny_bert: Path) -> None:
    pooler = {"prompts": {"query": "search query: "}, "include_prompt": False}
    served = Served(tiny_bert, ["embed"], pooler=pooler)
    embed(served, ["Ann", "Bob"], prompt_name="query")
    embed(served, ["Ann"])
    skips = [request.params.skip_tokens for request in served.spy.requests]
    assert skips == [4, 4, 0], "[CLS] search query :"


def test_an_included_prompt_is_pooled(tiny_bert: Path) -> None:
    served = Served(tiny_bert, ["embed"], pooler={"prompts": {"query": "search query: "}})
    (result,) = embed(served, ["Ann"], prompt_name="query")
    assert served.spy.requests[0].params.skip_tokens == 0
    assert result.prompt_tokens == 6


# The caller's own parameters


def test_the_callers_params_are_cloned(embedder: Served) -> None:
    own = PoolingParams(use_activation=False, extra_kwargs={"mine": 1})
    embed(embedder, ["a"], pooling_params=own)
    params = embedder.spy.requests[0].params
    assert (params.task, params.use_activation, params.extra_kwargs) == (
        "embed",
        False,
        {"mine": 1},
    )
    assert params.extra_kwargs is not own.extra_kwargs
    assert own == PoolingParams(use_activation=False, extra_kwargs={"mine": 1})


@pytest.mark.parametrize(
    "own",
    [
        PoolingParams(task="classify"),
        PoolingParams(skip_tokens=1),
        PoolingParams(extra_kwargs={"unsendable": object()}),
        PoolingParams(attended_tokens=1),
        PoolingParams(
            late_interaction=LateInteractionParams(mode="score_doc", query_key="somebody's")
        ),
    ],
)
def test_params_that_only_processors_may_set_are_refused(
    embedder: Served, own: PoolingParams
) -> None:
    with pytest.raises(InvalidRequest, match="pooling_params") as caught:
        embed(embedder, ["a"], pooling_params=own)
    assert caught.value.param == "pooling_params"


@pytest.mark.parametrize(
    ("task", "fields", "name"),
    [
        ("classify", {"dimensions": 2}, "dimensions"),
        ("token_classify", {"dimensions": 2}, "dimensions"),
        ("sparse_embed", {"dimensions": 2}, "dimensions"),
        ("sparse_embed", {"use_activation": False}, "use_activation"),
    ],
)
def test_a_parameter_that_the_task_does_not_take_is_named(
    tiny_bert: Path, task: Task, fields: dict[str, Any], name: str
) -> None:
    served = Served(tiny_bert, ["classify", "token_classify", "sparse_embed"])
    dimensions = fields.pop("dimensions", None)
    inputs = PoolingInput(
        prompts=["a"], task=task, dimensions=dimensions, options=PromptOptions(**fields)
    )
    with pytest.raises(InvalidRequest, match=f"does not take {name}") as caught:
        served.processors.pooling(inputs)
    assert caught.value.param == name


# Classes


def test_classes_come_with_the_models_labels(classifier: Served) -> None:
    (result,) = served_classify(classifier, [LONG[:300]])
    assert result.labels == ("negative", "neutral", "positive")
    assert result.label == result.labels[int(result.probs.argmax())]
    assert result.probs.shape == (3,)


def test_classes_without_names_have_no_label(tiny_classifier: Path) -> None:
    served = Served(tiny_classifier, ["classify"], labels=5)
    (result,) = served_classify(served, ["a"])
    assert (result.label, result.labels, result.probs.shape) == (None, (), (5,))


def served_classify(served: Served, prompts: list[Any], **fields: Any) -> list[Any]:
    inputs = ClassifyInput(prompts=prompts, options=PromptOptions(**fields))
    result: list[Any] = served.run(served.processors.classify(inputs))
    return result


def test_logits_are_asked_for_with_use_activation(classifier: Served) -> None:
    served_classify(classifier, ["a"], use_activation=False)
    assert classifier.spy.requests[0].params.use_activation is False


# Any task


def test_an_unsupported_task_lists_the_supported_ones(embedder: Served) -> None:
    with pytest.raises(UnsupportedTask, match=r"'classify' Supported tasks: \['embed'"):
        pooling(embedder, ["a"], task="classify")
    with pytest.raises(UnsupportedTask):
        served_classify(embedder, ["a"])


def test_the_default_task_is_the_models_first(embedder: Served, colbert: Served) -> None:
    assert pooling(embedder, ["a"])[0].embedding.shape == (8,)
    assert pooling(colbert, ["a"])[0].embeddings.shape == (4, 8)


def test_token_vectors_know_their_positions_and_ids(embedder: Served) -> None:
    (result,) = pooling(embedder, [TEXT], task="token_embed")
    assert result.embeddings.shape == (TEXT_TOKENS, 8)
    assert result.positions.tolist() == list(range(TEXT_TOKENS))
    assert embedder.tokenizer.tokens(result.token_ids)[1] == "ann"
    assert result.prompt_tokens == TEXT_TOKENS


def test_token_classes_know_their_characters(tiny_token_classifier: Path) -> None:
    served = Served(tiny_token_classifier, ["token_classify"], labels=3)
    (result,) = pooling(served, [TEXT])
    assert result.probs.shape == (TEXT_TOKENS, 3)
    words = [TEXT[start:end] for start, end in result.offsets]
    assert words == ["", "Ann", "lives", "in", "Rome", ".", ""]
    assert result.labels == ("O", "B-NAME", "I-NAME")


def test_offsets_are_those_of_the_text_without_its_prefix(tiny_token_classifier: Path) -> None:
    served = Served(tiny_token_classifier, ["token_classify"], labels=3)
    (result,) = pooling(served, [TEXT], prompt="label this: ")
    words = [TEXT[start:end] for start, end in result.offsets]
    assert words == ["", "", "", "", "Ann", "lives", "in", "Rome", ".", ""]


def test_a_sparse_vector_is_sorted_by_weight_without_zeros(embedder: Served) -> None:
    (result,) = pooling(embedder, [TEXT], task="sparse_embed")
    assert result.token_ids.tolist() == [7, 3, 9]
    assert result.weights.tolist() == [2.0, 0.5, 0.5]


# ColBERT's sides through /pooling


def test_colbert_vectors_are_a_documents_unless_said_otherwise(colbert: Served) -> None:
    pooling(colbert, ["who"])
    pooling(colbert, ["who"], input_type="document")
    pooling(colbert, ["who"], input_type="query")
    first, second, third = colbert.spy.requests
    assert first.prompt == second.prompt
    assert first.params.input_type == "document"
    assert colbert.tokenizer.tokens(first.prompt.token_ids)[1] == "[unused1]"
    assert colbert.tokenizer.tokens(third.prompt.token_ids)[1] == "[unused0]"
    assert (len(third.prompt.token_ids), third.params.attended_tokens) == (16, 4)
    assert third.params.input_type == "query"


def test_another_colbert_side_is_refused(colbert: Served) -> None:
    with pytest.raises(InvalidRequest, match="query or document, not 'sideways'"):
        pooling(colbert, ["who"], input_type="sideways")


def test_token_ids_are_what_colbert_is_fed(colbert: Served) -> None:
    pooling(colbert, [[101, 1, 102], "who"], input_type="query")
    assert colbert.spy.requests[0].prompt.token_ids == [101, 1, 102]
    assert colbert.spy.requests[0].params.attended_tokens is None
    assert len(colbert.spy.requests[1].prompt.token_ids) == 16


def test_a_cut_colbert_document_says_so(colbert: Served) -> None:
    (result,) = pooling(colbert, [LONG])
    assert result.truncated
    assert result.prompt_tokens == 64


def test_a_token_id_out_of_range_is_named_with_its_prompt(embedder: Served) -> None:
    with pytest.raises(InvalidRequest, match=r"input\[1\]: Token id 99999.* 0 to 30521"):
        embed(embedder, [[101], [7, 99999]])
