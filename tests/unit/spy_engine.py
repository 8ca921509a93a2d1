"""A recording fake of the engine at its one boundary, `EngineClient.submit`.

It answers from the token ids alone: an embedding is a unit vector seeded by them, a
late-interaction document scores 100 minus its length, a classifier's first class grows with
the length.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from cenote.engine.messages import EngineOutput, EngineReady, EngineRequest, StepStats
from cenote.params import Task

DIM = 8


class SpyEngine:
    """Keeps every submit. `labels` is the number of classes that it answers with."""

    restarts = 0
    is_alive = True
    stats = StepStats()

    def __init__(
        self,
        tasks: list[Task],
        *,
        labels: int = 1,
        max_model_len: int = 128,
        embedding_size: int = DIM,
    ) -> None:
        self.ready = EngineReady(
            supported_tasks=tasks,
            embedding_size=embedding_size,
            max_model_len=max_model_len,
            dtype="float32",
            device="cpu",
            kernels="torch",
        )
        self.labels = labels
        self.submits: list[list[EngineRequest]] = []
        self.closed = False

    @property
    def requests(self) -> list[EngineRequest]:
        return [request for submit in self.submits for request in submit]

    def submit(self, requests: list[EngineRequest]) -> Future[list[EngineOutput]]:
        self.submits.append(requests)
        future: Future[list[EngineOutput]] = Future()
        future.set_result(self.answer(requests))
        return future

    def answer(self, requests: list[EngineRequest]) -> list[EngineOutput]:
        queries = {
            request.params.late_interaction.query_key: request
            for request in requests
            if request.params.late_interaction is not None
            and request.params.late_interaction.mode == "cache_query"
        }
        return [self._answer(request, queries) for request in requests]

    def control(self, method: str, **args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(None)
        return future

    def on_step(self, listener: Callable[[StepStats], None]) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def _answer(self, request: EngineRequest, queries: dict[str, EngineRequest]) -> EngineOutput:
        ids = request.prompt.token_ids
        part = request.params.late_interaction
        if part is not None and part.mode == "cache_query":
            return output(request, np.zeros((), np.float32))
        if part is not None:
            rows = len(queries[part.query_key].prompt.token_ids) if part.explain else 0
            data = np.array([100.0 - len(ids), *([0.5] * rows)], np.float32)
            places = np.arange(rows, dtype=np.int32) % len(ids) if part.explain else None
            return output(request, data, places)
        match request.params.task:
            case "embed":
                vector = np.random.default_rng(ids).normal(size=DIM)
                return output(request, (vector / np.linalg.norm(vector)).astype(np.float32))
            case "classify":
                probs = np.full(self.labels, 0.1, np.float32)
                probs[0] = len(ids) / 1000
                return output(request, probs)
            case "token_embed":
                return output(request, np.ones((len(ids), DIM), np.float32))
            case "token_classify":
                rows = np.arange(len(ids) * self.labels, dtype=np.float32)
                return output(request, rows.reshape(len(ids), self.labels))
            case _:
                weights = np.array([0.5, 0.0, 2.0, 0.5], np.float32)
                return output(request, weights, np.array([9, 4, 7, 3], np.int32))


def output(
    request: EngineRequest, data: np.ndarray, indices: np.ndarray | None = None
) -> EngineOutput:
    return EngineOutput(
        request_id=request.request_id,
        data=data.tobytes(),
        shape=data.shape,
        indices=None if indices is None else indices.tobytes(),
    )
