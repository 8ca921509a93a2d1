"""An engine without a model, for the server's tests: it answers from the token ids alone.

Answers come from another thread, as a real engine's do. `hold` keeps them back, `refuse` and
`fail_with` make errors, `cancelled` tells what the server aborted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from cenote.engine.messages import EngineOutput, EngineReady, EngineRequest, StepStats
from cenote.errors import CenoteError
from cenote.params import PoolingParams, Task

Work = tuple[list[EngineRequest], "Future[list[EngineOutput]]"]


class FakeEngine:
    """Keeps what it was asked in `submits` and `controls`."""

    def __init__(
        self,
        tasks: list[Task] | None = None,
        *,
        dim: int = 8,
        labels: int = 3,
        max_model_len: int = 64,
    ) -> None:
        self.ready = EngineReady(
            supported_tasks=tasks or ["embed"],
            embedding_size=dim,
            max_model_len=max_model_len,
            dtype="float32",
            device="cpu",
            kernels="torch",
            kv_blocks=7,
        )
        self.dim = dim
        self.labels = labels
        self.is_alive = True
        self.restarts = 0
        self.stats = StepStats()
        self.hold = False
        self.refuse: CenoteError | None = None
        self.fail_with: Exception | None = None
        self.submits: list[list[EngineRequest]] = []
        self.controls: list[tuple[str, dict[str, Any]]] = []
        self.cancelled: list[str] = []
        self.was_cancelled = threading.Event()
        self.was_submitted = threading.Event()
        self._held: list[Work] = []
        self._listeners: list[Callable[[StepStats], None]] = []
        self._thread = ThreadPoolExecutor(1)

    @property
    def requests(self) -> list[EngineRequest]:
        """Everything that was asked, in order."""
        return [request for submit in self.submits for request in submit]

    def submit(self, requests: list[EngineRequest]) -> Future[list[EngineOutput]]:
        if self.refuse is not None:
            raise self.refuse
        self.submits.append(requests)
        future: Future[list[EngineOutput]] = Future()
        future.add_done_callback(lambda done: self._note_cancel(done, requests))
        if self.hold:
            self._held.append((requests, future))
        else:
            self._thread.submit(self._answer, requests, future)
        self.was_submitted.set()
        return future

    def release(self) -> None:
        """Answers what was held back, and holds no more."""
        self.hold = False
        for requests, future in self._held:
            self._thread.submit(self._answer, requests, future)
        self._held.clear()

    def cork(self) -> None:
        """What is submitted is answered all the same."""

    def uncork(self) -> None:
        """Nothing is kept."""

    def control(self, method: str, **args: Any) -> Future[Any]:
        self.controls.append((method, args))
        future: Future[Any] = Future()
        if self.fail_with is not None:
            future.set_exception(self.fail_with)
        else:
            future.set_result(None)
        return future

    def on_step(self, listener: Callable[[StepStats], None]) -> None:
        self._listeners.append(listener)

    def close(self) -> None:
        self._thread.shutdown()

    def _note_cancel(
        self, future: Future[list[EngineOutput]], requests: list[EngineRequest]
    ) -> None:
        if future.cancelled():
            self.cancelled += [request.request_id for request in requests]
            self.was_cancelled.set()

    def _answer(self, requests: list[EngineRequest], future: Future[list[EngineOutput]]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if self.fail_with is not None:
            future.set_exception(self.fail_with)
            return
        step = StepStats(
            batch_requests=len(requests),
            batch_tokens=sum(len(request.prompt.token_ids) for request in requests),
            step_time=0.001,
            query_cache_hits=1,
        )
        for listener in self._listeners:
            listener(step)
        future.set_result([self._output(request) for request in requests])

    def _output(self, request: EngineRequest) -> EngineOutput:
        ids = np.asarray(request.prompt.token_ids)
        part = request.params.late_interaction
        data: NDArray[Any]
        indices: NDArray[np.int32] | None = None
        if part is not None and part.mode == "cache_query":
            data = np.zeros((), np.float32)
        elif part is not None:
            data = np.array([100.0 - len(ids), *([0.5] * part.explain)], np.float32)
            indices = np.ones(1, np.int32) if part.explain else None
        else:
            data, indices = self._pool(ids, request.params)
        return EngineOutput(
            request_id=request.request_id,
            data=data.astype(np.float32).tobytes(),
            shape=data.shape,
            indices=None if indices is None else indices.tobytes(),
            queue_time=0.001,
            run_time=0.002,
            more=self._more(request) or None,
        )

    def _more(self, request: EngineRequest) -> list[EngineOutput]:
        """The results of the params' further tasks."""
        return [
            self._output(
                msgspec.structs.replace(
                    request, params=msgspec.structs.replace(request.params, task=task, also=())
                )
            )
            for task in request.params.also
        ]

    def _pool(
        self, ids: NDArray[Any], params: PoolingParams
    ) -> tuple[NDArray[Any], NDArray[np.int32] | None]:
        if params.task == "embed":
            return embedding(ids, params.dimensions or self.dim, params.use_activation), None
        if params.task == "classify":
            return class_scores(ids, self.labels, params.use_activation), None
        rows = np.arange(len(ids), dtype=np.int32)
        if params.task == "token_embed":
            return np.stack([embedding(ids[i : i + 1], self.dim, None) for i in rows]), rows
        if params.task == "token_classify":
            return np.stack([class_scores(ids[i : i + 1], self.labels, None) for i in rows]), rows
        kept = np.unique(ids).astype(np.int32)
        return np.linspace(0.5, 1.5, len(kept)), kept


def embedding(ids: NDArray[Any], dim: int, use_activation: bool | None) -> NDArray[np.float32]:
    """A vector that depends on the ids and their order; unit length unless told otherwise."""
    places = np.arange(1, dim + 1)
    weights = np.arange(1, len(ids) + 1)
    vector = np.cos(np.outer(ids * weights, places) * 0.37).sum(axis=0)
    if use_activation is False:
        return vector.astype(np.float32)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def class_scores(ids: NDArray[Any], labels: int, use_activation: bool | None) -> NDArray[Any]:
    """Logits that depend on the ids; sigmoid for one label, softmax for more."""
    logits = np.cos(np.arange(1, labels + 1) * ids.sum() * 0.7)
    if use_activation is False:
        return logits
    if labels == 1:
        return 1 / (1 + np.exp(-logits))
    exponents = np.exp(logits)
    return exponents / exponents.sum()
