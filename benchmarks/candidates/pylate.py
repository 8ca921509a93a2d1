"""PyLate: its own encoding of query and documents, then its own scores; and those alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pylate import models, rank

from benchmarks.work import Array, MaxSimWork, RerankWork


class ColbertReranker:
    """`ColBERT.encode` and `rank.rerank`."""

    def __init__(self, name: str, model: str, dtype: str) -> None:
        self.name = name
        self._model = models.ColBERT(
            model, device="cpu", model_kwargs={"dtype": getattr(torch, dtype)}
        )

    def run(self, work: RerankWork) -> Array:
        query = self._model.encode([work.query], is_query=True, show_progress_bar=False)
        documents = self._model.encode(
            list(work.documents), batch_size=32, is_query=False, show_progress_bar=False
        )
        return _scores(query, documents)

    def close(self) -> None:
        del self._model


class MaxSim:
    """`rank.rerank` of vectors that are there."""

    def __init__(self, name: str, model: str) -> None:
        self.name = name

    def run(self, work: MaxSimWork) -> Array:
        query = [torch.from_numpy(work.query)]
        documents = [torch.from_numpy(rows) for rows in work.documents]
        for _ in range(work.times):
            scores = _scores(query, documents)
        return scores

    def close(self) -> None:
        """Holds nothing."""


def _scores(query: Any, documents: Sequence[Any]) -> Array:
    places = list(range(len(documents)))
    (ranked,) = rank.rerank(
        documents_ids=[places], queries_embeddings=query, documents_embeddings=[documents]
    )
    scores = {item["id"]: item["score"] for item in ranked}
    return np.array([scores[place] for place in places], np.float32)
