"""Infinity's engine in process: its own queue, batching and threads, no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from infinity_emb import AsyncEmbeddingEngine, EngineArgs

from benchmarks.work import Array


class Embedder:
    """`AsyncEmbeddingEngine.embed` with the torch back-end."""

    def __init__(self, name: str, model: str, dtype: str) -> None:
        self.name = name
        self._loop = asyncio.new_event_loop()
        arguments = EngineArgs(
            model_name_or_path=model,
            engine="torch",
            device="cpu",
            dtype=dtype,
            batch_size=32,
            bettertransformer=False,
            compile=False,
            model_warmup=False,
        )
        self._engine = AsyncEmbeddingEngine.from_args(arguments)
        self._loop.run_until_complete(self._engine.astart())

    def run(self, work: Sequence[str]) -> Array:
        vectors, _ = self._loop.run_until_complete(self._engine.embed(sentences=list(work)))
        return np.stack(vectors).astype(np.float32)

    def close(self) -> None:
        self._loop.run_until_complete(self._engine.astop())
