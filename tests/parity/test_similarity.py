"""Bi-encoder scores: the four similarities against sentence-transformers, on the real model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cenote import LLM
from cenote.config.pooling import Similarity
from cenote.processors.score.similarity import similarity

KINDS: tuple[Similarity, ...] = ("cosine", "dot", "euclidean", "manhattan")


@pytest.mark.parametrize("kind", KINDS)
def test_similarity_is_the_references(kind: Similarity) -> None:
    from sentence_transformers import SimilarityFunction

    reference = SimilarityFunction.to_similarity_pairwise_fn(kind)
    random = np.random.default_rng(3)
    left = random.normal(size=(50, 33)).astype(np.float32)
    right = random.normal(size=(50, 33)).astype(np.float32)
    left[0], right[1], right[2] = 0, 0, left[2]
    ours = similarity(kind, left, right)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, reference(left, right).numpy(), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def llm(minilm_path: Path) -> Iterator[LLM]:
    with LLM(str(minilm_path), dtype="float32") as started:
        yield started


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_references_with_the_models_prompts(
    llm: LLM, minilm_path: Path, kind: Similarity, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers import SentenceTransformer

    prompts = {"query": "find: ", "document": "text: "}
    reference = SentenceTransformer(
        str(minilm_path), device="cpu", prompts=prompts, similarity_fn_name=kind
    )
    preparer = llm._processors._preparer
    pooler = replace(preparer.config.pooler, prompts=prompts, similarity=kind)
    monkeypatch.setattr(preparer, "config", replace(preparer.config, pooler=pooler))
    queries = ["capital of France", "how to bake bread", "Ünïcode 漢字 🙂"]
    documents = ["Paris is the capital of France.", "Knead the dough.", "Ünïcode 漢字 🙂"]
    ours = [item.score for item in llm.score(queries, documents)]
    expected = reference.similarity_pairwise(
        reference.encode_query(queries), reference.encode_document(documents)
    )
    np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-5, atol=2e-6)
