"""Entities and labels of the request's own, against transformers' pipelines on the same folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import MakeTiny

from cenote import LLM
from cenote.errors import InvalidRequest, UnsupportedTask

TEXTS = [
    "John Smith lives in New York and works for Cenotes International.",
    "Straße naïve café ﬁne, Ångström!",
    "emoji 😀 and flags 🇩🇪 mixed with text",
    "東京は日本の首都です。",
    "x",
]
# Where words begin and end is a matter of opinion: hyphens, signs, pieces and special tokens typed
# out, doubled and odd spaces, scripts without spaces, combined characters.
ODD = [
    "mother-in-law's O'Neill, U.S.A., e.g.100,000.50",
    "##ing ## [SEP] [UNK] <s> <mask> ▁x ▁ Ġx",
    " @user#tag\thttp://x.y/z?q=1  two\u00a0\u200bspaces \n",
    "日本語テキスト한국어ไทย-Ω≈ç 👩‍👩‍👧🇩🇪 e\u0301 “Москва”—القاهرة",
]
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "MISC"]
STRATEGIES = ("none", "simple", "first", "average", "max")
NLI = ["contradiction", "neutral", "entailment"]


def named(names: list[str]) -> dict[str, Any]:
    by_id = dict(enumerate(names))
    return {"id2label": by_id, "label2id": {name: index for index, name in by_id.items()}}


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def tagger(request: Any, make_tiny: MakeTiny) -> Path:
    architecture = "BertForTokenClassification"
    if request.param != "wordpiece":
        architecture = "RobertaForTokenClassification"
    return make_tiny(architecture, request.param, **named(LABELS))


def test_entities_are_the_pipelines(tagger: Path) -> None:
    from transformers import pipeline

    reference = pipeline("token-classification", model=str(tagger), device="cpu")
    with LLM(str(tagger), dtype="float32", threads=1) as llm:
        texts = [*TEXTS, *ODD]
        for strategy in STRATEGIES:
            expected = [reference(text, aggregation_strategy=strategy) for text in texts]
            made = llm.encode(texts, aggregation_strategy=strategy, truncate_prompt_tokens=-1)
            for text, ours, theirs in zip(texts, made, expected, strict=True):
                what = f"{strategy} of {text!r}"
                name = "entity" if strategy == "none" else "entity_group"
                found = [(e.label, e.word, e.start, e.end) for e in ours.entities]
                wanted = [(e[name], e["word"], e["start"], e["end"]) for e in theirs]
                assert found == wanted, what
                scores = [e.score for e in ours.entities]
                np.testing.assert_allclose(scores, [e["score"] for e in theirs], rtol=1e-4)


def test_entities_stand_in_the_callers_text_and_not_in_the_prompt(tagger: Path) -> None:
    with LLM(str(tagger), dtype="float32", threads=1) as llm:
        (made,) = llm.encode(TEXTS[0], aggregation_strategy="none", prompt="find names: ")
        assert made.entities
        assert all(e.start < e.end <= len(TEXTS[0]) for e in made.entities)
        for wrong, prompts in (("word", TEXTS[0]), ("simple", [[5, 6, 7]])):
            with pytest.raises(InvalidRequest) as caught:
                llm.encode(prompts, aggregation_strategy=wrong)
            assert caught.value.param == "aggregation_strategy"


@pytest.fixture(scope="module", params=[NLI, NLI[::-1]], ids=["last", "first"])
def nli(request: Any, make_tiny: MakeTiny) -> Path:
    return make_tiny(
        "BertForSequenceClassification", "wordpiece", types=True, **named(request.param)
    )


@pytest.fixture(scope="module")
def judge(nli: Path) -> Iterator[LLM]:
    with LLM(str(nli), dtype="float32", threads=1) as llm:
        yield llm


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("candidates", [["travel", "cooking", "the lazy dog"], ["only"]])
def test_own_labels_score_as_the_pipelines(
    judge: LLM, nli: Path, candidates: list[str], multi_label: bool
) -> None:
    from transformers import pipeline

    reference = pipeline("zero-shot-classification", model=str(nli), device="cpu")
    template = "This text is about {}."
    texts = [*TEXTS, "long enough to be cut " * 30]
    expected = reference(texts, candidates, hypothesis_template=template, multi_label=multi_label)
    made = judge.classify(
        texts,
        candidate_labels=candidates,
        hypothesis_template=template,
        multi_label=multi_label,
        truncate_prompt_tokens=-1,
    )
    for ours, theirs in zip(made, expected, strict=True):
        scores = dict(zip(theirs["labels"], theirs["scores"], strict=True))
        assert ours.labels == tuple(candidates)
        np.testing.assert_allclose(ours.probs, [scores[name] for name in candidates], rtol=1e-4)
        assert ours.label == theirs["labels"][0]
    assert [item.truncated for item in made] == [False] * len(TEXTS) + [True]


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"candidate_labels": []}, "candidate_labels"),
        ({"candidate_labels": ["a", "a"]}, "candidate_labels"),
        ({"candidate_labels": ["a", " "]}, "candidate_labels"),
        ({"candidate_labels": ["a"], "hypothesis_template": "none"}, "hypothesis_template"),
        ({"candidate_labels": ["a"], "multi_label": 1}, "multi_label"),
        ({"candidate_labels": ["a"], "use_activation": False}, "use_activation"),
        ({"candidate_labels": ["a"], "truncate_prompt_tokens": 6}, None),
    ],
)
def test_labels_that_make_no_sense_are_refused(
    judge: LLM, options: dict[str, Any], param: str | None
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        judge.classify("a text about nothing", **options)
    assert caught.value.param == param


def test_own_labels_need_an_nli_classifier(tiny_classifier: Path, tiny_bert: Path) -> None:
    with (
        LLM(str(tiny_classifier), threads=1) as llm,
        pytest.raises(InvalidRequest, match="NLI model"),
    ):
        llm.classify("a", candidate_labels=["b"])
    with LLM(str(tiny_bert), threads=1) as llm, pytest.raises(UnsupportedTask):
        llm.classify("a", candidate_labels=["b"])
