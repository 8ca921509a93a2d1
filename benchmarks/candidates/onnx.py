"""Plain ONNX Runtime on the same weights in float32, with batches sorted by length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime

from benchmarks.candidates.export import Text, export, pooled, scores
from benchmarks.work import Array, RerankWork


class _Session:
    """The exported graph, and how its output becomes a result."""

    def __init__(self, name: str, model: str, *, head: bool) -> None:
        self.name = name
        self._finish = scores if head else pooled
        options = onnxruntime.SessionOptions()
        level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.graph_optimization_level = level
        self._session = onnxruntime.InferenceSession(
            str(export(model, head=head)), options, providers=["CPUExecutionProvider"]
        )
        self._text = Text(model, [one.name for one in self._session.get_inputs()])

    def encode(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> Array:
        rows: dict[int, Array] = {}
        for batch in self._text.batches(texts):
            (out,) = self._session.run(None, batch.inputs)
            finished = self._finish(out, batch.inputs["attention_mask"])
            rows.update(zip(batch.places, finished, strict=True))
        return np.stack([rows[place] for place in range(len(rows))])

    def close(self) -> None:
        del self._session


class Embedder(_Session):
    """Texts to vectors."""

    def __init__(self, name: str, model: str) -> None:
        super().__init__(name, model, head=False)

    def run(self, work: Sequence[str]) -> Array:
        return self.encode(work)


class Reranker(_Session):
    """Pairs of one query to scores."""

    def __init__(self, name: str, model: str) -> None:
        super().__init__(name, model, head=True)

    def run(self, work: RerankWork) -> Array:
        return self.encode([(work.query, text) for text in work.documents]).reshape(-1)
