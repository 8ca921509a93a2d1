"""Long texts in parts, and late chunking, by the formulas on transformers' hidden states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from cenote import LLM
from cenote.errors import InputTooLong, InvalidRequest

TEXT = "Berlin is the capital of Germany. The city has 3.7 million people. It lies on the Spree."
LONG = " ".join(f"sentence number {n} is about nothing." for n in range(60))
LIMIT = 128


@pytest.fixture(scope="module")
def llm(tiny_bert: Path) -> Iterator[LLM]:
    with LLM(str(tiny_bert), dtype="float32", threads=1) as started:
        yield started


def rows(folder: Path, ids: list[int]) -> torch.Tensor:
    from transformers import AutoModel

    with torch.inference_mode():
        hidden: torch.Tensor = AutoModel.from_pretrained(folder).eval()(torch.tensor([ids]))[0][0]
    return hidden


def encoded(folder: Path, text: str, **options: Any) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)(text, **options)


def test_a_long_text_is_the_weighted_mean_of_its_parts(llm: LLM, tiny_bert: Path) -> None:
    with pytest.raises(InputTooLong):
        llm.embed(LONG)
    content = encoded(tiny_bert, LONG, add_special_tokens=False, verbose=False)["input_ids"]
    room = LIMIT - 2
    parts = [content[at : at + room] for at in range(0, len(content), room)]
    assert len(parts) > 2
    assert 0 < len(parts[-1]) < room
    vectors = [F.normalize(rows(tiny_bert, [101, *p, 102]).mean(0), dim=0) for p in parts]
    weights = torch.tensor([float(len(part)) for part in parts])
    mean = (torch.stack(vectors) * weights[:, None]).sum(0) / weights.sum()
    long, short = llm.embed([LONG, TEXT], long_input="chunk_mean")
    np.testing.assert_allclose(long.embedding, F.normalize(mean, dim=0), atol=1e-5)
    assert long.prompt_tokens == len(content) + 2 * len(parts)
    assert not long.truncated
    np.testing.assert_allclose(short.embedding, llm.embed(TEXT)[0].embedding, atol=1e-6)


def test_every_part_has_the_prompt(llm: LLM, tiny_bert: Path) -> None:
    (made,) = llm.embed(LONG, long_input="chunk_mean", prompt="about rivers: ")
    lead = encoded(tiny_bert, "about rivers: ", add_special_tokens=False)["input_ids"]
    content = encoded(tiny_bert, LONG, add_special_tokens=False, verbose=False)["input_ids"]
    parts = -(-len(content) // (LIMIT - 2 - len(lead)))
    assert made.prompt_tokens == len(content) + parts * (2 + len(lead))


def test_late_chunks_are_means_over_one_pass(llm: LLM, tiny_bert: Path, steps: list[int]) -> None:
    ends = [
        0,
        *(at + 1 for at, letter in enumerate(TEXT[:-1]) if letter == " " and TEXT[at - 1] == "."),
        len(TEXT),
    ]
    spans = list(pairwise(ends))
    made = llm.embed(TEXT, late_chunking=True, spans=spans)
    assert steps == [1]
    tokens = encoded(tiny_bert, TEXT, return_offsets_mapping=True)
    hidden = rows(tiny_bert, tokens["input_ids"])
    for item, (start, end) in zip(made, spans, strict=True):
        own = [i for i, (a, b) in enumerate(tokens["offset_mapping"]) if a < b and start <= a < end]
        expected = F.normalize(hidden[own].mean(0), dim=0)
        np.testing.assert_allclose(item.embedding, expected, atol=1e-5)
        assert item.span == (start, end)
    assert [item.prompt_tokens for item in made] == [len(tokens["input_ids"]), 0, 0]


def test_inputs_are_joined_and_each_gets_its_vector(llm: LLM) -> None:
    sentences = TEXT.split(". ")
    made = llm.embed(sentences, late_chunking=True)
    joined = " ".join(sentences)
    assert [joined[slice(*item.span)] for item in made if item.span] == sentences
    alone = llm.embed(joined, late_chunking=True, spans=[item.span for item in made if item.span])
    for ours, theirs in zip(made, alone, strict=True):
        np.testing.assert_allclose(ours.embedding, theirs.embedding, atol=1e-6)


def test_chunk_size_cuts_by_tokens_and_tells_the_characters(llm: LLM) -> None:
    made = llm.embed(TEXT, late_chunking=True, chunk_size=8)
    words = [TEXT[slice(*item.span)] for item in made if item.span]
    assert words[0] == "Berlin is the capital of Germany. The"
    assert "".join(words).replace(" ", "") == TEXT.replace(" ", "")
    plain = llm.embed("other text")[0].embedding
    assert plain.shape == made[0].embedding.shape


@pytest.mark.parametrize(
    ("texts", "options", "param"),
    [
        (TEXT, {"long_input": "cut"}, "long_input"),
        (TEXT, {"long_input": "chunk_mean", "truncate_prompt_tokens": 8}, "truncate_prompt_tokens"),
        (TEXT, {"long_input": "chunk_mean", "late_chunking": True}, "late_chunking"),
        ([[5, 6]], {"long_input": "chunk_mean"}, "input"),
        ([[5, 6]], {"late_chunking": True}, "input"),
        (TEXT, {"chunk_size": 8}, "chunk_size"),
        (TEXT, {"late_chunking": True, "chunk_size": 0}, "chunk_size"),
        (TEXT, {"late_chunking": True, "spans": [[5, 5]]}, "spans"),
        (TEXT, {"late_chunking": True, "spans": [[0, 999]]}, "spans"),
        (TEXT, {"late_chunking": True, "spans": [[6, 7]]}, "spans"),
        ([TEXT, TEXT], {"late_chunking": True, "chunk_size": 8}, "chunk_size"),
        (LONG, {"late_chunking": True}, "input"),
    ],
)
def test_what_can_not_be_is_refused(
    llm: LLM, texts: Any, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        llm.embed(texts, **options)
    assert caught.value.param == param


def test_late_chunking_needs_a_model_that_pools_by_the_mean(
    make_tiny_bert: Callable[..., Path],
) -> None:
    with LLM(str(make_tiny_bert()), pooling="cls", threads=1) as llm:
        with pytest.raises(InvalidRequest, match="pools by the mean"):
            llm.embed(TEXT, late_chunking=True)
        assert len(llm.embed(LONG, long_input="chunk_mean")) == 1
