"""PyLate: its own encoding of query and documents, then its own scores."""

from __future__ import annotations

import numpy as np
import torch
from pylate import models, rank

from benchmarks.work import Array, RerankWork


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
        places = list(range(len(work.documents)))
        (ranked,) = rank.rerank(
            documents_ids=[places], queries_embeddings=query, documents_embeddings=[documents]
        )
        scores = {item["id"]: item["score"] for item in ranked}
        return np.array([scores[place] for place in places], np.float32)

    def close(self) -> None:
        del self._model
