"""Plain OpenVINO tuned by hand: throughput mode, sorted batches, bfloat16 or int8 products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import openvino

from benchmarks.candidates.export import Text, export, graph_folder, pooled, scores
from benchmarks.work import Array, RerankWork

# Texts that int8's activation ranges are measured on, in words.
CALIBRATION_TEXTS = 32
CALIBRATION_WORDS = (8, 40, 120)


class _Compiled:
    """The compiled graph with its streams, and how its output becomes a result."""

    def __init__(self, name: str, model: str, precision: str, *, int8: bool, head: bool) -> None:
        self.name = name
        self._finish = scores if head else pooled
        graph = openvino.convert_model(str(export(model, head=head)))
        self._text = Text(model, [one.get_any_name() for one in graph.inputs])
        if int8:
            kept = graph_folder(model) / "int8.xml"
            if not kept.exists():
                openvino.save_model(self._quantized(graph), kept, compress_to_fp16=False)
            graph = openvino.Core().read_model(kept)
        compiled = openvino.Core().compile_model(
            graph,
            "CPU",
            {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": precision},
        )
        self._queue = openvino.AsyncInferQueue(compiled)
        self._queue.set_callback(self._keep)
        self._rows: dict[int, Array] = {}

    def _quantized(self, graph: Any) -> Any:
        import nncf

        samples = [
            batch.inputs for text in _calibration_texts() for batch in self._text.batches([text])
        ]
        return nncf.quantize(
            graph,
            nncf.Dataset(samples),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=CALIBRATION_TEXTS,
        )

    def _keep(self, request: Any, batch: Any) -> None:
        out = request.get_output_tensor(0).data
        finished = self._finish(np.asarray(out, np.float32), batch.inputs["attention_mask"])
        self._rows.update(zip(batch.places, finished, strict=True))

    def encode(self, texts: Sequence[str] | Sequence[tuple[str, str]]) -> Array:
        self._rows = {}
        for batch in self._text.batches(texts):
            self._queue.start_async(batch.inputs, batch)
        self._queue.wait_all()
        return np.stack([self._rows[place] for place in range(len(self._rows))])

    def close(self) -> None:
        del self._queue


def _calibration_texts() -> list[str]:
    """Parts of Python's manual: what the workloads are made of, but cut elsewhere."""
    from pydoc_data.topics import topics

    words = " ".join(topics[name] for name in sorted(topics)).split()
    step = len(words) // CALIBRATION_TEXTS
    sizes = [CALIBRATION_WORDS[at % len(CALIBRATION_WORDS)] for at in range(CALIBRATION_TEXTS)]
    return [" ".join(words[at * step : at * step + size]) for at, size in enumerate(sizes)]


class Embedder(_Compiled):
    """Texts to vectors."""

    def __init__(self, name: str, model: str, precision: str, int8: bool = False) -> None:
        super().__init__(name, model, precision, int8=int8, head=False)

    def run(self, work: Sequence[str]) -> Array:
        return self.encode(work)


class Reranker(_Compiled):
    """Pairs of one query to scores."""

    def __init__(self, name: str, model: str, precision: str, int8: bool = False) -> None:
        super().__init__(name, model, precision, int8=int8, head=True)

    def run(self, work: RerankWork) -> Array:
        return self.encode([(work.query, text) for text in work.documents]).reshape(-1)
