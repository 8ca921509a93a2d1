"""What the three scorers ask of the engine, and what they make of its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from served import Served

from cenote.config.engine import EngineConfig
from cenote.errors import InputTooLong, InvalidRequest, UnsupportedTask
from cenote.outputs import Ranking, Score
from cenote.params import TruncationSide
from cenote.processors import templates
from cenote.processors.inputs import PromptOptions, RerankInput, ScoreInput
from cenote.processors.score.token_types import compress

PARIS = "Paris is the capital of France."
LONG = "a rather long document about nothing at all " * 40


@pytest.fixture(params=["bi_encoder", "cross_encoder", "colbert"])
def scorer(request: pytest.FixtureRequest) -> Served:
    served: Served = request.getfixturevalue(request.param)
    return served


def score(served: Served, queries: list[str], documents: list[str], **fields: Any) -> list[Score]:
    inputs = ScoreInput(queries=queries, documents=documents, **fields)
    result: list[Score] = served.run(served.processors.score(inputs))
    return result


def rerank(served: Served, query: str, documents: list[str], **fields: Any) -> Ranking:
    inputs = RerankInput(query=query, documents=documents, **fields)
    result: Ranking = served.run(served.processors.rerank(inputs))
    return result


def total_tokens(served: Served) -> int:
    return sum(len(request.prompt.token_ids) for request in served.spy.requests)


# Which scorer a model has


def test_the_scorer_follows_from_tasks_labels_and_head(
    bi_encoder: Served, cross_encoder: Served, colbert: Served, tiny_classifier: Path
) -> None:
    assert bi_encoder.processors.score_kind == "bi_encoder"
    assert cross_encoder.processors.score_kind == "cross_encoder"
    assert colbert.processors.score_kind == "late_interaction"
    assert Served(tiny_classifier, ["classify"], labels=3).processors.score_kind is None


def test_a_model_that_cannot_score_says_what_it_can_do(tiny_classifier: Path) -> None:
    served = Served(tiny_classifier, ["classify"], labels=3)
    with pytest.raises(UnsupportedTask, match=r"'score'.*\['classify'\]"):
        score(served, ["q"], ["d"])


# Shapes and bad input


@pytest.mark.parametrize(
    ("queries", "documents", "message"),
    [
        ([], ["d"], "At least one text element"),
        (["q"], [], "At least one text_pair element"),
        (["q", "r"], ["d"], "Input lengths must be either 1:1, 1:N or N:N, not 2:1"),
        (["q", "r"], ["d", "e", "f"], "Input lengths must be either 1:1, 1:N or N:N, not 2:3"),
        (["q"], ["d", None], r"documents\[1\] must be a string, not NoneType"),
        ([[101, 102]], ["d"], r"queries\[0\] must be a string, not list"),
    ],
)
def test_bad_shapes_are_refused(
    scorer: Served, queries: list[Any], documents: list[Any], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        score(scorer, queries, documents)
    assert scorer.spy.submits == []


@pytest.mark.parametrize("top_n", [-1, True, "3"])
def test_a_bad_top_n_is_refused(scorer: Served, top_n: Any) -> None:
    with pytest.raises(InvalidRequest, match="top_n must be") as caught:
        rerank(scorer, "q", ["d"], top_n=top_n)
    assert caught.value.param == "top_n"


@pytest.mark.parametrize(("top_n", "count"), [(None, 3), (0, 3), (2, 2), (9, 3)])
def test_top_n_keeps_the_best(scorer: Served, top_n: int | None, count: int) -> None:
    ranking = rerank(scorer, "q", ["one", "one two", "one two three"], top_n=top_n)
    scores = [item.relevance_score for item in ranking.results]
    assert len(scores) == count
    assert scores == sorted(scores, reverse=True)
    assert ranking.prompt_tokens == total_tokens(scorer), "usage counts what ran, kept or not"


def test_equal_scores_keep_the_order_given(scorer: Served) -> None:
    ranking = rerank(scorer, "q", ["same", "same", "same"])
    assert [item.index for item in ranking.results] == [0, 1, 2]
    assert [item.document for item in ranking.results] == ["same"] * 3


@pytest.mark.parametrize("name", ["max_tokens_per_query", "max_tokens_per_doc"])
@pytest.mark.parametrize("value", [-1, 128, 5000])
def test_bad_side_limits_are_refused(scorer: Served, name: str, value: int) -> None:
    with pytest.raises(InvalidRequest, match=name) as caught:
        score(scorer, ["q"], ["d"], **{name: value})
    assert caught.value.param == name


def test_an_overlong_document_is_an_error_unless_cut(
    bi_encoder: Served, cross_encoder: Served
) -> None:
    for served in (bi_encoder, cross_encoder):
        with pytest.raises(InputTooLong, match="maximum context length is 128"):
            score(served, ["q"], [LONG])
        cut = PromptOptions(truncate_prompt_tokens=-1)
        (result,) = score(served, ["q"], [LONG], options=cut)
        assert result.truncated
        assert max(len(r.prompt.token_ids) for r in served.spy.requests) == 128


def test_fields_without_meaning_are_refused_by_name(scorer: Served) -> None:
    for fields in ({"instruction": "do"}, {"options": PromptOptions(input_type="query")}):
        with pytest.raises(InvalidRequest, match="has no meaning"):
            score(scorer, ["q"], ["d"], **fields)


# Bi-encoder


def test_a_bi_encoder_encodes_each_distinct_text_once(bi_encoder: Served) -> None:
    results = score(bi_encoder, ["q"], ["a", "b", "a", "q"])
    assert len(bi_encoder.spy.requests) == 4, "q, then a, b and q as documents"
    assert results[0].score == results[2].score
    assert results[3].score == pytest.approx(1.0)
    assert [item.prompt_tokens for item in results] == [6, 3, 0, 3]
    assert sum(item.prompt_tokens for item in results) == total_tokens(bi_encoder)


def test_a_bi_encoder_puts_the_models_prompts_before_both_sides(tiny_bert: Path) -> None:
    prompts = {"query": "query: ", "passage": "passage: "}
    served = Served(tiny_bert, ["embed"], pooler={"prompts": prompts})
    score(served, ["who"], ["me"])
    texts = [served.tokenizer.decode(r.prompt.token_ids) for r in served.spy.requests]
    assert ["query : who" in texts[0], "passage : me" in texts[1]] == [True, True]


def test_a_bi_encoder_takes_the_requests_prompt_for_its_queries(tiny_bert: Path) -> None:
    served = Served(tiny_bert, ["embed"], pooler={"prompts": {"query": "query: "}})
    score(served, ["who"], ["me"], options=PromptOptions(prompt="find: "))
    texts = [served.tokenizer.decode(r.prompt.token_ids) for r in served.spy.requests]
    assert "find : who" in texts[0]
    assert "find" not in texts[1]


# Cross-encoder


def test_a_cross_encoder_pairs_texts_as_its_tokenizer_does(cross_encoder: Served) -> None:
    (result,) = score(cross_encoder, ["who"], [PARIS])
    (request,) = cross_encoder.spy.requests
    ids, types = request.prompt.token_ids, request.params.extra_kwargs["compressed_token_type_ids"]
    assert cross_encoder.tokenizer.tokens(ids)[:3] == ["[CLS]", "who", "[SEP]"]
    assert (ids[-1], types) == (102, 3)
    assert result.prompt_tokens == len(ids)


def test_a_side_limit_cuts_only_that_side(cross_encoder: Served) -> None:
    results = score(cross_encoder, ["one two three four"], [PARIS, "x"], max_tokens_per_doc=2)
    first = cross_encoder.tokenizer.tokens(cross_encoder.spy.requests[0].prompt.token_ids)
    assert first == ["[CLS]", "one", "two", "three", "four", "[SEP]", "paris", "is", "[SEP]"]
    assert [item.truncated for item in results] == [True, False]
    score(cross_encoder, ["one two three four"], [PARIS], max_tokens_per_query=1)
    last = cross_encoder.tokenizer.tokens(cross_encoder.spy.requests[-1].prompt.token_ids)
    assert last[:3] == ["[CLS]", "one", "[SEP]"]
    assert len(last) == 3 + 7 + 1


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("pair", [("one two", PARIS), (PARIS, "one two"), (PARIS, PARIS)])
def test_a_cut_takes_the_token_types_with_it(
    cross_encoder: Served, pair: tuple[str, str], side: TruncationSide
) -> None:
    options = PromptOptions(truncate_prompt_tokens=8, truncation_side=side)
    score(cross_encoder, [pair[0]], [pair[1]], options=options)
    (request,) = cross_encoder.spy.requests
    tokens = cross_encoder.tokenizer.tokens(request.prompt.token_ids)
    assert len(tokens) == 8
    first_sep = tokens.index("[SEP]")
    assert request.params.extra_kwargs["compressed_token_type_ids"] == first_sep + 1


def test_logits_are_asked_for_with_use_activation(cross_encoder: Served) -> None:
    score(cross_encoder, ["q"], ["d"], options=PromptOptions(use_activation=False))
    assert cross_encoder.spy.requests[0].params.use_activation is False


def test_a_score_template_gets_texts_instruction_and_template_kwargs(
    tiny_cross_encoder: Path, tmp_path: Path
) -> None:
    template = tmp_path / "score.jinja"
    template.write_text("{{ instruction }} | {{ query }} | {{ document }} | {{ tone }}")
    engine = EngineConfig(model=str(tiny_cross_encoder), score_template=str(template))
    served = Served(tiny_cross_encoder, ["classify"], engine=engine)
    options = PromptOptions(chat_template_kwargs={"tone": "calm"})
    score(served, ["who"], ["me"], instruction="judge", options=options)
    own = PromptOptions(chat_template_kwargs={"tone": "calm", "instruction": "mine"})
    score(served, ["who"], ["me"], instruction="judge", options=own)
    first, second = (served.tokenizer.decode(r.prompt.token_ids) for r in served.spy.requests)
    assert "judge | who | me | calm" in first
    assert "mine | who | me | calm" in second
    assert served.spy.requests[0].params.extra_kwargs == {}


def test_all_prompts_of_a_request_are_bounded_together(
    tiny_cross_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "score.jinja"
    template.write_text("{{ instruction }}{{ query }}{{ document }}")
    engine = EngineConfig(model=str(tiny_cross_encoder), score_template=str(template))
    served = Served(tiny_cross_encoder, ["classify"], engine=engine)
    monkeypatch.setattr(templates, "MAX_RENDERED_CHARACTERS", 40)
    score(served, ["q"], ["d", "e"], instruction="i " * 9)
    with pytest.raises(InvalidRequest, match="more than 40 characters"):
        score(served, ["q"], ["d", "e", "f"], instruction="i " * 9)


@pytest.mark.parametrize(
    ("types", "number"),
    [([0, 0, 1, 1], 2), ([0, 0, 0], 3), ([1, 1], 0), ([0] * 16 + [1] * 16, 16), ([], 0)],
)
def test_token_types_travel_as_the_place_of_the_first_one(types: list[int], number: int) -> None:
    assert compress(types) == number


@pytest.mark.parametrize("types", [[0, 1, 0], [0, 2], [1, 0]])
def test_other_token_types_are_an_error(types: list[int]) -> None:
    with pytest.raises(Exception, match="zeros followed by ones"):
        compress(types)


# Late interaction


def test_each_distinct_query_runs_once_before_its_documents(colbert: Served) -> None:
    score(colbert, ["q", "other", "q"], ["one", "two", "three"])
    (submit,) = colbert.spy.submits
    parts = [request.params.late_interaction for request in submit]
    assert all(part is not None for part in parts)
    modes = [part.mode for part in parts if part]
    assert modes == ["cache_query", "score_doc", "score_doc", "cache_query", "score_doc"]
    uses = [part.query_uses for part in parts if part and part.mode == "cache_query"]
    assert uses == [2, 1]
    keys = [part.query_key for part in parts if part]
    assert keys[0] == keys[1] == keys[2] != keys[3] == keys[4]
    sides = [request.params.input_type for request in submit]
    assert sides == ["query", "document", "document", "query", "document"]


def test_scores_come_back_in_the_order_of_the_pairs(colbert: Served) -> None:
    results = score(colbert, ["q", "other", "q"], ["one", "one two", "one two three"])
    assert [item.score for item in results] == [96.0, 95.0, 94.0]
    assert [item.prompt_tokens for item in results] == [16 + 4, 16 + 5, 6]
    assert sum(item.prompt_tokens for item in results) == total_tokens(colbert)


def test_equal_request_ids_never_share_a_query_key(colbert: Served) -> None:
    options = PromptOptions(request_id="mine")
    score(colbert, ["q"], ["d"], options=options)
    score(colbert, ["q"], ["d"], options=options)
    keys = {
        request.params.late_interaction.query_key
        for request in colbert.spy.requests
        if request.params.late_interaction
    }
    assert len(keys) == 2
    ids = [request.request_id for request in colbert.spy.requests]
    assert len(set(ids)) == 4
    assert all(one.startswith("mine-") for one in ids)


def content_keys(served: Served, **fields: Any) -> str | None:
    served.spy.submits.clear()
    score(served, ["q"], ["d"], options=PromptOptions(**fields))
    part = served.spy.requests[0].params.late_interaction
    assert part is not None
    return part.content_key


def test_the_query_cache_key_holds_all_that_vectors_depend_on(colbert: Served) -> None:
    plain = content_keys(colbert)
    assert plain == content_keys(colbert)
    assert plain == content_keys(colbert, request_id="x", priority=3)
    others = [
        content_keys(colbert, cache_salt="a"),
        content_keys(colbert, cache_salt="b"),
        content_keys(colbert, use_activation=False),
    ]
    assert len({plain, *others}) == 4
    # Keys without a value reach nothing, so they part nothing either.
    assert plain == content_keys(colbert, mm_processor_kwargs={"size": None})
    sized = content_keys(colbert, mm_processor_kwargs={"size": 1})
    assert sized == content_keys(colbert, mm_processor_kwargs={"size": 1, "other": None})
    assert sized != plain


def test_sides_get_their_markers_and_the_query_its_expansion(colbert: Served) -> None:
    score(colbert, ["who"], ["me"])
    query, document = colbert.spy.requests
    tokens = colbert.tokenizer.tokens(query.prompt.token_ids)
    assert tokens == ["[CLS]", "[unused0]", "who", "[SEP]", *["[MASK]"] * 12]
    assert query.params.attended_tokens == 4
    assert document.params.attended_tokens is None
    tokens = colbert.tokenizer.tokens(document.prompt.token_ids)
    assert tokens == ["[CLS]", "[unused1]", "me", "[SEP]"]


def test_a_document_is_cut_at_the_models_length_and_says_so(colbert: Served) -> None:
    results = score(colbert, ["q"], [LONG, "short"])
    assert [item.truncated for item in results] == [True, False]
    assert len(colbert.spy.requests[1].prompt.token_ids) == 64


def test_a_document_limit_replaces_the_models_length(colbert: Served) -> None:
    results = score(colbert, ["q"], [LONG], max_tokens_per_doc=100)
    assert len(colbert.spy.requests[1].prompt.token_ids) == 103
    assert results[0].truncated
    score(colbert, ["q"], [LONG], options=PromptOptions(truncate_prompt_tokens=20))
    assert len(colbert.spy.requests[-1].prompt.token_ids) == 20


def test_a_query_over_its_length_is_an_error_unless_cut(colbert: Served) -> None:
    with pytest.raises(InputTooLong) as caught:
        score(colbert, [LONG], ["d"])
    assert (caught.value.limit, caught.value.param) == (16, "queries")
    (result,) = score(colbert, [LONG], ["d"], options=PromptOptions(truncate_prompt_tokens=-1))
    assert result.truncated
    assert len(colbert.spy.requests[0].prompt.token_ids) == 16
    assert colbert.spy.requests[0].params.attended_tokens is None


def test_an_overlong_query_is_told_apart_from_its_documents(scorer: Served) -> None:
    with pytest.raises(InputTooLong, match=r"\(queries\[1\]\)") as caught:
        score(scorer, ["q", LONG], ["d", "e"])
    assert caught.value.param == "queries"
    with pytest.raises(InputTooLong, match=r"\(query\)") as caught:
        rerank(scorer, LONG, ["d"])
    assert caught.value.param == "query"
    assert scorer.spy.submits == []


def test_explain_names_the_matched_tokens_with_offsets(colbert: Served) -> None:
    (result,) = score(colbert, ["who"], ["me too"], explain=True)
    assert result.matches is not None
    assert len(result.matches) == 16
    match = result.matches[2]
    assert (match.query_token, match.query_offset) == ("who", (0, 3))
    assert (match.document_token, match.document_offset) == ("me", (0, 2))
    assert match.similarity == 0.5
    assert result.matches[1].query_token == "[unused0]"
    (plain,) = score(colbert, ["who"], ["me too"])
    assert plain.matches is None


def test_explain_is_refused_where_there_is_nothing_to_explain(
    bi_encoder: Served, cross_encoder: Served
) -> None:
    for served in (bi_encoder, cross_encoder):
        with pytest.raises(InvalidRequest, match="explain has no meaning"):
            score(served, ["q"], ["d"], explain=True)
