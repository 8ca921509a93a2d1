"""sentence-transformers, as its users run it: its own batching and length sorting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

from benchmarks.work import Array, RerankWork


def _kwargs(dtype: str) -> dict[str, object]:
    return {"device": "cpu", "model_kwargs": {"dtype": getattr(torch, dtype)}}


class Embedder:
    """`SentenceTransformer.encode`; `backend="onnx"` is its own export to ONNX Runtime."""

    def __init__(
        self, name: str, model: str, dtype: str = "float32", backend: str = "torch"
    ) -> None:
        self.name = name
        kwargs = _kwargs(dtype)
        if backend == "onnx":
            kwargs = {"device": "cpu", "backend": "onnx", "model_kwargs": {"export": True}}
        self._model = SentenceTransformer(model, **kwargs)

    def run(self, work: Sequence[str]) -> Array:
        vectors = self._model.encode(
            list(work), batch_size=32, convert_to_tensor=True, show_progress_bar=False
        )
        return vectors.float().numpy()

    def close(self) -> None:
        del self._model


class CrossEncoderReranker:
    """`CrossEncoder.predict` on the pairs of one query."""

    def __init__(self, name: str, model: str, dtype: str) -> None:
        self.name = name
        self._model = CrossEncoder(model, **_kwargs(dtype))

    def run(self, work: RerankWork) -> Array:
        pairs = [(work.query, document) for document in work.documents]
        scores = self._model.predict(
            pairs, batch_size=32, convert_to_tensor=True, show_progress_bar=False
        )
        return scores.float().numpy().reshape(-1)

    def close(self) -> None:
        del self._model


class ColbertReranker:
    """`MultiVectorEncoder`: query and documents encoded, then its own MaxSim."""

    def __init__(self, name: str, model: str, dtype: str) -> None:
        from sentence_transformers import MultiVectorEncoder

        self.name = name
        self._model = MultiVectorEncoder(model, **_kwargs(dtype))

    def run(self, work: RerankWork) -> Array:
        query = self._model.encode_query([work.query], show_progress_bar=False)
        documents = self._model.encode_document(
            list(work.documents), batch_size=32, show_progress_bar=False
        )
        scores = self._model.similarity(query, documents)
        return np.asarray(torch.as_tensor(scores).float()).reshape(-1)

    def close(self) -> None:
        del self._model
