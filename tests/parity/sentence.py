"""Whole models against sentence-transformers: text in, vectors or scores out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from reference import TEXTS, assert_matches_reference, serve

from cenote import LLM

QUERIES = ["what is the capital?", "short", "Ünïcode 漢字 🙂", "", "how do I reset my password?"]
DOCUMENTS = [*TEXTS[1:5], "nothing"]
TOLERANCE = 1e-5


def assert_vectors_match(body: Path, folder: Path, kernels: str, mode: str = "mean") -> None:
    """Saves `body` with a Pooling module to `folder` and compares the vectors of texts."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules

    transformer = modules.Transformer(str(body))
    pooling = modules.Pooling(transformer.get_embedding_dimension(), pooling_mode=mode)
    reference = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    reference.save(str(folder))
    served = serve(folder, kernels)
    limit = served.config.max_model_len
    assert limit == reference.max_seq_length
    texts = [*TEXTS, "long enough to be cut " * 30]
    expected = reference.encode(texts, convert_to_tensor=True, batch_size=1)
    ids = served.encode(texts, limit)
    assert len(ids[-1]) == limit
    length = expected.norm(dim=-1, keepdim=True)
    found = [item.data for item in served.run("embed", ids)]
    assert not served.config.pooler.normalize
    assert ((torch.stack(found) - expected) / length).abs().max() <= TOLERANCE
    assert_matches_reference(served, "embed", ids, list(expected))


def assert_scores_match(folder: Path, **settings: Any) -> None:
    """Scores of pairs by the offline API, alone and together, against a CrossEncoder's."""
    from sentence_transformers import CrossEncoder

    with LLM(str(folder), dtype="float32", **settings) as llm:
        assert llm.score_kind == "cross_encoder"
        pairs = list(zip(QUERIES, DOCUMENTS, strict=True))
        ours = [item.score for item in llm.score(QUERIES, DOCUMENTS, truncate_prompt_tokens=-1)]
        alone = [llm.score(q, d, truncate_prompt_tokens=-1)[0].score for q, d in pairs[:2]]
    expected = CrossEncoder(str(folder), device="cpu").predict(pairs)
    np.testing.assert_allclose(ours, expected, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_allclose(alone, ours[:2], rtol=TOLERANCE, atol=TOLERANCE)
