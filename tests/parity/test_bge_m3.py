"""BGE-M3's three outputs from one pass, against its formulas on transformers' XLMRobertaModel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import TEXTS
from safetensors.torch import save_file
from tiny import MakeTiny
from torch.nn import functional as F

from cenote import LLM
from cenote.errors import InvalidRequest, ModelLoadError, UnsupportedTask
from cenote.params import Task

HIDDEN = 32
UNWEIGHTED = ("<s>", "</s>", "<pad>", "<unk>")


def heads(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    random = torch.Generator().manual_seed(1)
    made = {}
    for name, out in (("sparse_linear", 1), ("colbert_linear", HIDDEN)):
        weight = torch.randn(out, HIDDEN, generator=random)
        made[name] = {"weight": weight, "bias": torch.randn(out, generator=random)}
    return made


@pytest.fixture(scope="module", params=["pt", "safetensors"])
def folder(request: Any, make_tiny: MakeTiny, tmp_path_factory: Any) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    body = make_tiny("XLMRobertaModel", "unigram")
    root: Path = tmp_path_factory.mktemp("bge_m3")
    parts = [modules.Transformer(str(body)), modules.Pooling(HIDDEN, "cls"), modules.Normalize()]
    SentenceTransformer(modules=parts, device="cpu").save(str(root))
    for name, tensors in heads(root).items():
        if request.param == "pt":
            torch.save(tensors, root / f"{name}.pt")
        else:
            save_file(tensors, root / f"{name}.safetensors")
    return root


@pytest.fixture(scope="module")
def llm(folder: Path) -> Iterator[LLM]:
    with LLM(str(folder), dtype="float32", threads=1) as started:
        yield started


def oracle(folder: Path, ids: list[int]) -> tuple[torch.Tensor, dict[int, float], torch.Tensor]:
    """Dense vector, lexical weights and multi-vectors by the paper's own formulas."""
    from transformers import AutoTokenizer, XLMRobertaModel

    tokenizer = AutoTokenizer.from_pretrained(folder)
    left_out = set(tokenizer.convert_tokens_to_ids(list(UNWEIGHTED)))
    own = heads(folder)
    with torch.inference_mode():
        rows = XLMRobertaModel.from_pretrained(folder).eval()(torch.tensor([ids]))[0][0]
    weights = torch.relu(F.linear(rows, **own["sparse_linear"]))[:, 0].tolist()
    lexical: dict[int, float] = {}
    for token_id, weight in zip(ids, weights, strict=True):
        if token_id not in left_out and weight > lexical.get(token_id, 0.0):
            lexical[token_id] = weight
    vectors = F.normalize(F.linear(rows[1:], **own["colbert_linear"]), dim=-1)
    return F.normalize(rows[0], dim=-1), lexical, vectors


def test_three_outputs_of_one_pass_are_the_formulas(
    llm: LLM, folder: Path, steps: list[int]
) -> None:
    texts = list(TEXTS)
    made = llm.encode(
        texts, task=["embed", "sparse_embed", "token_embed"], truncate_prompt_tokens=-1
    )
    assert steps == [len(texts)]
    for text, item in zip(texts, made, strict=True):
        dense, sparse, tokens = (
            item.results[task] for task in ("embed", "sparse_embed", "token_embed")
        )
        expected = oracle(folder, tokens.token_ids)
        np.testing.assert_allclose(dense.embedding, expected[0], atol=1e-5)
        assert set(sparse.token_ids.tolist()) == set(expected[1])
        wanted = [expected[1][token_id] for token_id in sparse.token_ids.tolist()]
        np.testing.assert_allclose(sparse.weights, wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(tokens.embeddings, expected[2], atol=1e-5)
        assert tokens.positions.tolist() == list(range(1, len(tokens.token_ids)))
        (alone,) = llm.encode(text, task="sparse_embed", truncate_prompt_tokens=-1)
        np.testing.assert_allclose(alone.weights, sparse.weights, rtol=1e-5, atol=1e-6)


def paper_scores(folder: Path, query: list[int], document: list[int]) -> dict[str, float]:
    """The three scores of a pair, each by its formula: dot, sum over shared words, mean MaxSim."""
    (q, q_words, q_rows), (d, d_words, d_rows) = oracle(folder, query), oracle(folder, document)
    shared = sum(weight * d_words.get(token, 0.0) for token, weight in q_words.items())
    maxima = (q_rows @ d_rows.T).amax(dim=1)
    return {"embed": float(q @ d), "sparse_embed": shared, "token_embed": float(maxima.mean())}


@pytest.mark.parametrize(
    "weights",
    [
        {"embed": 1},
        {"sparse_embed": 1},
        {"token_embed": 2.5},
        {"token_embed": 0.4, "embed": 0.4, "sparse_embed": 0.2},
    ],
)
def test_scores_are_the_weighted_mean_of_the_formulas(
    weights: dict[str, float], llm: LLM, folder: Path
) -> None:
    query, documents = TEXTS[1], [TEXTS[4], TEXTS[6], TEXTS[1], "a"]
    ids = [item.token_ids for item in llm.encode([query, *documents], task="token_embed")]
    each = [paper_scores(folder, ids[0], own) for own in ids[1:]]
    total = sum(weights.values())
    expected = [sum(w * own[task] for task, w in weights.items()) / total for own in each]
    made = llm.score(query, documents, score_weights=weights)
    np.testing.assert_allclose([item.score for item in made], expected, rtol=1e-5, atol=1e-5)
    assert sum(item.prompt_tokens for item in made) == sum(map(len, ids))
    ranking = llm.rerank(query, documents, score_weights=weights)
    assert ranking.results[0].index == int(np.argmax(expected))


@pytest.mark.parametrize(
    "weights",
    [{}, {"classify": 1}, {"embed": 0}, {"embed": float("nan")}, {"embed": True}, {"embed": "1"}],
)
def test_weights_that_make_no_sense_are_refused(weights: Any, llm: LLM) -> None:
    with pytest.raises(InvalidRequest, match="score_weights") as caught:
        llm.score("a", "b", score_weights=weights)
    assert caught.value.param == "score_weights"


def test_only_embedding_models_take_weights(tiny_cross_encoder: Path, tiny_bert: Path) -> None:
    with LLM(str(tiny_cross_encoder), threads=1) as one, pytest.raises(InvalidRequest):
        one.score("a", "b", score_weights={"embed": 1})
    with LLM(str(tiny_bert), threads=1) as one, pytest.raises(UnsupportedTask):
        one.score("a", "b", score_weights={"sparse_embed": 1})


def test_an_empty_or_unknown_list_of_tasks_is_refused(llm: LLM) -> None:
    wrong: list[list[Task]] = [[], ["embed", "classify"]]
    for tasks in wrong:
        with pytest.raises(InvalidRequest) as caught:
            llm.encode("a", task=tasks)
        assert caught.value.param == "task"


def test_one_head_without_the_other_is_refused(make_tiny: MakeTiny, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(make_tiny("XLMRobertaModel", "unigram"), tmp_path, dirs_exist_ok=True)
    save_file(heads(tmp_path)["sparse_linear"], tmp_path / "sparse_linear.safetensors")
    with pytest.raises(ModelLoadError, match="colbert_linear"):
        LLM(str(tmp_path))


def test_a_pickle_that_holds_more_than_tensors_is_refused(
    make_tiny: MakeTiny, tmp_path: Path
) -> None:
    import shutil

    shutil.copytree(make_tiny("XLMRobertaModel", "unigram"), tmp_path, dirs_exist_ok=True)
    for name in ("sparse_linear", "colbert_linear"):
        torch.save({"weight": Path("anything")}, tmp_path / f"{name}.pt")
    with pytest.raises(ModelLoadError, match=r"sparse_linear\.pt can't be read"):
        LLM(str(tmp_path))
