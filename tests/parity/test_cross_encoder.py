"""Cross-encoder scores against sentence-transformers' CrossEncoder on the same random BERT."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM

QUERIES = ["what is the capital of France?", "short", "Ünïcode 漢字 🙂", ""]
DOCUMENTS = [
    "Paris is the capital of France. " * 3,
    "a much longer document about nothing in particular " * 4,
    "漢字かな交じり文、そして emoji 🙂🙃",
    "nothing",
]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def with_activation(
    tiny_cross_encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str | None], Path]:
    """The tiny cross-encoder, with an activation of its own in the reference's form."""

    def make(activation: str | None) -> Path:
        folder = tmp_path_factory.mktemp("cross") / "model"
        shutil.copytree(tiny_cross_encoder, folder)
        if activation is not None:
            path = folder / "config.json"
            config = json.loads(path.read_text())
            config["sentence_transformers"] = {"version": "6.2.0", "activation_fn": activation}
            path.write_text(json.dumps(config))
        return folder

    return make


def reference_scores(folder: Path, pairs: list[tuple[str, str]], **settings: Any) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(str(folder), device="cpu", **settings).predict(pairs)


@pytest.mark.parametrize(
    "activation",
    [
        None,
        "torch.nn.modules.linear.Identity",
        "torch.nn.modules.activation.Sigmoid",
        "torch.nn.modules.activation.Tanh",
    ],
)
def test_scores_are_the_references(
    with_activation: Callable[[str | None], Path], activation: str | None, kernels: str
) -> None:
    folder = with_activation(activation)
    with LLM(str(folder), dtype="float32", kernels=kernels) as llm:
        assert llm.score_kind == "cross_encoder"
        ours = [item.score for item in llm.score(QUERIES, DOCUMENTS)]
        alone = [llm.score(q, d)[0].score for q, d in zip(QUERIES, DOCUMENTS, strict=True)]
    expected = reference_scores(folder, list(zip(QUERIES, DOCUMENTS, strict=True)))
    np.testing.assert_allclose(ours, expected, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(alone, ours, rtol=TOLERANCE, atol=TOLERANCE)


def test_logits_are_the_references(tiny_cross_encoder: Path) -> None:
    import torch

    with LLM(str(tiny_cross_encoder), dtype="float32") as llm:
        ours = [item.score for item in llm.score(QUERIES, DOCUMENTS, use_activation=False)]
    pairs = list(zip(QUERIES, DOCUMENTS, strict=True))
    expected = reference_scores(tiny_cross_encoder, pairs, activation_fn=torch.nn.Identity())
    np.testing.assert_allclose(ours, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("keep", [12, 33, 60])
def test_cut_pairs_are_the_references(tiny_cross_encoder: Path, keep: int) -> None:
    with LLM(str(tiny_cross_encoder), dtype="float32") as llm:
        results = llm.score(QUERIES, DOCUMENTS, truncate_prompt_tokens=keep)
    assert results[1].truncated == (keep < 40)
    pairs = list(zip(QUERIES, DOCUMENTS, strict=True))
    expected = reference_scores(tiny_cross_encoder, pairs, max_length=keep)
    np.testing.assert_allclose(
        [item.score for item in results], expected, rtol=TOLERANCE, atol=TOLERANCE
    )


def test_a_rerank_is_the_references_ranking(tiny_cross_encoder: Path) -> None:
    from sentence_transformers import CrossEncoder

    with LLM(str(tiny_cross_encoder), dtype="float32") as llm:
        ranking = llm.rerank(QUERIES[0], DOCUMENTS, top_n=3)
    reference = CrossEncoder(str(tiny_cross_encoder), device="cpu")
    expected = reference.rank(QUERIES[0], DOCUMENTS, top_k=3)
    assert [item.index for item in ranking.results] == [item["corpus_id"] for item in expected]
    np.testing.assert_allclose(
        [item.relevance_score for item in ranking.results],
        [item["score"] for item in expected],
        rtol=TOLERANCE,
        atol=TOLERANCE,
    )
