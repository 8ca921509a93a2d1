"""ColBERT against sentence-transformers' MultiVectorEncoder, in each form that such models have.

Stanford's `artifact.metadata`, PyLate's flat keys and the native modules; both sides' vectors,
MaxSim, and the formula itself in float64.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cenote import LLM

QUERIES = ["who lives in Rome?", "Ünïcode 漢字 🙂", "x"]
DOCUMENTS = [
    "Ann lives in Rome, Bob (her brother) in Paris!",
    "漢字かな交じり文、そして emoji 🙂🙃 ... and more.",
    "punctuation, punctuation; punctuation: " * 40,
    "short",
]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def pylate_colbert(tiny_bert: Path, tmp_path_factory: Any) -> Path:
    """A model as PyLate saves it: markers and lengths as flat keys, one Dense, no Normalize."""
    import torch
    from sentence_transformers.base.modules.dense import Dense

    folder: Path = tmp_path_factory.mktemp("pylate") / "model"
    shutil.copytree(tiny_bert, folder)
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": 49, "do_lower_case": False})
    )
    generator = torch.Generator().manual_seed(5)
    dense = Dense(32, 16, bias=False, activation_function=torch.nn.Identity())
    dense.linear.weight.data = torch.randn(16, 32, generator=generator) * 0.3
    (folder / "1_Dense").mkdir()
    dense.save(str(folder / "1_Dense"))
    config = json.loads((folder / "1_Dense" / "config.json").read_text())
    keys = ("in_features", "out_features", "bias", "activation_function")
    old = {key: config[key] for key in keys if key in config}
    (folder / "1_Dense" / "config.json").write_text(json.dumps({**old, "bias": False}))
    modules = [
        ("", "sentence_transformers.models.Transformer"),
        ("1_Dense", "pylate.models.Dense.Dense"),
    ]
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"idx": index, "name": str(index), "path": path, "type": kind}
                for index, (path, kind) in enumerate(modules)
            ]
        )
    )
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps(
            {
                "model_type": "ColBERT",
                "prompts": {},
                "similarity_fn_name": "MaxSim",
                "query_prefix": "[unused5]",
                "document_prefix": "[unused6]",
                "query_length": 20,
                "document_length": 50,
                "do_query_expansion": True,
                "attend_to_expansion_tokens": True,
                "skiplist_words": [".", ",", "?"],
            }
        )
    )
    return folder


@pytest.fixture(scope="module")
def native_colbert(pylate_colbert: Path, tmp_path_factory: Any) -> Path:
    """The same model as sentence-transformers saves it: markers are prompts, masks are modules."""
    from sentence_transformers import MultiVectorEncoder

    folder: Path = tmp_path_factory.mktemp("native")
    MultiVectorEncoder(str(pylate_colbert), device="cpu").save(str(folder))
    return folder


@pytest.fixture(scope="module", params=["tiny_colbert", "pylate_colbert", "native_colbert"])
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture(scope="module")
def reference(folder: Path) -> Any:
    from sentence_transformers import MultiVectorEncoder

    return MultiVectorEncoder(str(folder), device="cpu")


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), dtype="float32") as started:
        yield started


def rows(llm: LLM, texts: list[str], side: str) -> list[Any]:
    results = llm.encode(texts, task="token_embed", input_type=side)
    return [item.embeddings for item in results]


def test_query_vectors_are_the_references(llm: LLM, reference: Any) -> None:
    expected = reference.encode_query(QUERIES, convert_to_numpy=True)
    for ours, theirs in zip(rows(llm, QUERIES, "query"), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


def test_document_vectors_are_the_references(llm: LLM, reference: Any) -> None:
    expected = reference.encode_document(DOCUMENTS, convert_to_numpy=True)
    for ours, theirs in zip(rows(llm, DOCUMENTS, "document"), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


def test_scores_are_the_references_and_the_formulas(llm: LLM, reference: Any) -> None:
    pairs = [(query, document) for query in QUERIES for document in DOCUMENTS]
    results = llm.score([query for query, _ in pairs], [document for _, document in pairs])
    ours = np.array([item.score for item in results]).reshape(len(QUERIES), -1)
    theirs = reference.similarity(
        reference.encode_query(QUERIES), reference.encode_document(DOCUMENTS)
    )
    np.testing.assert_allclose(ours, theirs.cpu().numpy(), rtol=TOLERANCE)
    queries, documents = rows(llm, QUERIES, "query"), rows(llm, DOCUMENTS, "document")
    formula = [
        [(q.astype(np.float64) @ d.astype(np.float64).T).max(axis=1).sum() for d in documents]
        for q in queries
    ]
    np.testing.assert_allclose(ours, formula, rtol=TOLERANCE)


def test_one_query_for_many_documents_gives_the_same_scores(llm: LLM) -> None:
    together = [item.score for item in llm.score(QUERIES[0], DOCUMENTS)]
    alone = [llm.score(QUERIES[0], document)[0].score for document in DOCUMENTS]
    np.testing.assert_allclose(together, alone, rtol=TOLERANCE)


def test_a_query_over_its_length_is_cut_as_the_reference_does(llm: LLM, reference: Any) -> None:
    long = "what is the name of the person who lives in the city of Rome with her brother now?"
    (result,) = llm.encode(
        [long], task="token_embed", input_type="query", truncate_prompt_tokens=-1
    )
    assert result.truncated
    expected = reference.encode_query([long], convert_to_numpy=True)[0]
    np.testing.assert_allclose(result.embeddings, expected, atol=TOLERANCE)


def test_an_explanation_adds_up_to_its_score(llm: LLM) -> None:
    (result,) = llm.score(QUERIES[0], DOCUMENTS[0], explain=True)
    assert result.matches is not None
    assert sum(match.similarity for match in result.matches) == pytest.approx(result.score)
    by_token = {match.query_token: match for match in result.matches}
    start, end = by_token["rome"].query_offset
    assert QUERIES[0][start:end] == "Rome"
    for match in result.matches:
        start, end = match.document_offset
        assert (start, end) == (0, 0) or DOCUMENTS[0][start:end].strip()
