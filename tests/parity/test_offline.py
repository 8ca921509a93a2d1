"""`LLM` end to end against the references: prefixes, cuts, order over chunks, offsets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM
from cenote.errors import InputTooLong
from cenote.processors.window import CHUNK_PROMPTS

TEXTS = ["Paris is the capital of France.", "x", "Ünïcode 漢字 🙂", "", "a b\tc\n" * 9]
TOLERANCE = 1e-5


def reference(folder: Path, **settings: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", **settings)


@pytest.fixture(scope="module")
def prompted(minilm_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real model with prompts that take no part in pooling."""
    folder = tmp_path_factory.mktemp("prompted") / "model"
    shutil.copytree(minilm_path, folder)
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text(json.dumps({**json.loads(pooling.read_text()), "include_prompt": False}))
    settings = folder / "config_sentence_transformers.json"
    prompts = {"query": "search for: ", "document": "text: "}
    settings.write_text(
        json.dumps(
            {
                **json.loads(settings.read_text()),
                "prompts": prompts,
                "default_prompt_name": "document",
            }
        )
    )
    return folder


@pytest.mark.parametrize("name", [None, "query"])
def test_an_excluded_prompt_gives_the_references_vectors(prompted: Path, name: str | None) -> None:
    with LLM(str(prompted), dtype="float32") as llm:
        ours = [item.embedding for item in llm.embed(TEXTS, prompt_name=name)]
    expected = reference(prompted).encode(TEXTS, prompt_name=name)
    np.testing.assert_allclose(ours, expected, atol=TOLERANCE)


def test_a_cut_text_gives_the_references_vector(minilm_path: Path) -> None:
    long = "A sentence about nothing in particular, and then another one. " * 30
    with LLM(str(minilm_path), dtype="float32") as llm:
        with pytest.raises(InputTooLong):
            llm.embed(long)
        cut, whole = llm.embed([long, "short"], truncate_prompt_tokens=-1)
        shorter = llm.embed(long, truncate_prompt_tokens=20)[0]
    model = reference(minilm_path)
    np.testing.assert_allclose(cut.embedding, model.encode(long), atol=TOLERANCE)
    assert (cut.truncated, whole.truncated) == (True, False)
    assert cut.prompt_tokens == model.max_seq_length
    model.max_seq_length = 20
    np.testing.assert_allclose(shorter.embedding, model.encode(long), atol=TOLERANCE)


def test_order_is_kept_over_chunks_and_lengths(tiny_bert: Path) -> None:
    texts = [f"word {index} " * (index % 13 + 1) for index in range(2 * CHUNK_PROMPTS + 30)]
    with LLM(str(tiny_bert), dtype="float32") as llm:
        together = llm.embed(texts)
        for index in (0, CHUNK_PROMPTS - 1, CHUNK_PROMPTS, 2 * CHUNK_PROMPTS + 29):
            (alone,) = llm.embed(texts[index])
            assert alone.prompt_tokens == together[index].prompt_tokens
            np.testing.assert_allclose(alone.embedding, together[index].embedding, atol=TOLERANCE)


def test_token_ids_give_the_vector_of_their_text(tiny_bert: Path) -> None:
    with LLM(str(tiny_bert), dtype="float32") as llm:
        (token_vectors,) = llm.encode(TEXTS[0], task="token_embed")
        (by_text,), (by_ids,) = llm.embed(TEXTS[0]), llm.embed(token_vectors.token_ids)
    np.testing.assert_array_equal(by_text.embedding, by_ids.embedding)


def test_a_sparse_vector_is_splades(make_tiny_bert: Any) -> None:
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder = make_tiny_bert("BertForMaskedLM")
    with LLM(str(folder), dtype="float32") as llm:
        (ours,) = llm.encode(TEXTS[0])
    encoded = AutoTokenizer.from_pretrained(folder)(TEXTS[0], return_tensors="pt")
    with torch.inference_mode():
        logits = AutoModelForMaskedLM.from_pretrained(folder).eval()(**encoded).logits[0]
    expected = torch.log1p(torch.relu(logits)).amax(0).numpy()
    dense = np.zeros_like(expected)
    dense[ours.token_ids] = ours.weights
    np.testing.assert_allclose(dense, expected, atol=TOLERANCE)
    assert (np.diff(ours.weights) <= 0).all()


def test_token_classes_line_up_with_the_references_offsets(tiny_token_classifier: Path) -> None:
    import torch
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    text = "Ann (née Ünïcode) lives in Rome 🙂."
    with LLM(str(tiny_token_classifier), dtype="float32") as llm:
        (ours,) = llm.encode(text)
    tokenizer = AutoTokenizer.from_pretrained(tiny_token_classifier)
    model = AutoModelForTokenClassification.from_pretrained(tiny_token_classifier).eval()
    encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    assert ours.offsets == [tuple(pair) for pair in encoded.pop("offset_mapping")[0].tolist()]
    with torch.inference_mode():
        expected = model(**encoded).logits[0].softmax(-1).numpy()
    np.testing.assert_allclose(ours.probs, expected, atol=TOLERANCE)
    assert ours.labels == ("O", "B-NAME", "I-NAME")
