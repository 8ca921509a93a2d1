"""Ours, through the public offline API."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from benchmarks.work import Array, MaxSimWork, RerankWork
from cenote import LLM
from cenote.kernels.maxsim import maxsim, maxsim_torch
from cenote.runner.late_interaction_runner import LateInteractionRunner
from cenote.runner.model_runner import ModelRunner

STEP_ROWS = 2048


class Embedder:
    """Texts to vectors."""

    def __init__(self, name: str, model: str, **fields: object) -> None:
        self.name = name
        self._llm = LLM(model, profile=False, **fields)

    def run(self, work: Sequence[str]) -> Array:
        results = self._llm.embed(work, truncate_prompt_tokens=-1, progress=False)
        return np.stack([result.embedding for result in results])

    def count_tokens(self, work: Sequence[str]) -> int:
        """Real tokens that the model sees, after its own cut."""
        results = self._llm.embed(work, truncate_prompt_tokens=-1, progress=False)
        return sum(result.prompt_tokens for result in results)

    def close(self) -> None:
        self._llm.close()


class Reranker:
    """A query and its documents to scores: cross-encoder or ColBERT, as the model is."""

    def __init__(self, name: str, model: str, **fields: object) -> None:
        self.name = name
        # A real stream of queries has few repeats: reuse of encoded queries would flatter us.
        self._llm = LLM(model, profile=False, query_cache_bytes=0, **fields)

    def run(self, work: RerankWork) -> Array:
        scores = self._llm.score(
            work.query, work.documents, truncate_prompt_tokens=-1, progress=False
        )
        return np.array([score.score for score in scores], np.float32)

    def maxsim_share(self, work: RerankWork) -> float:
        """Late interaction's share of the processor time of steps: finding each document's query,
        packing, checks, MaxSim, and letting go. Not of the clock, which shows whatever else the
        machine does in between."""
        taken: dict[str, list[float]] = {"score": [], "forward": [], "end": []}

        def timed(kind: type, name: str) -> Any:
            method = getattr(kind, name)

            def measured(*arguments: Any) -> Any:
                began = time.thread_time()
                result = method(*arguments)
                taken[name].append(time.thread_time() - began)
                return result

            return mock.patch.object(kind, name, measured)

        parts = timed(ModelRunner, "forward"), timed(ModelRunner, "end")
        with timed(LateInteractionRunner, "score"), parts[0], parts[1]:
            self.run(work)
        return sum(taken["score"]) / sum(taken["forward"] + taken["end"])

    def count_tokens(self, work: RerankWork) -> int:
        """Real tokens of all prompts."""
        scores = self._llm.score(
            work.query, work.documents, truncate_prompt_tokens=-1, progress=False
        )
        return sum(score.prompt_tokens for score in scores)

    def close(self) -> None:
        self._llm.close()


class MaxSim:
    """Documents packed as in a step, then a call of the kernel (`native`) or of its oracle."""

    def __init__(self, name: str, model: str, native: bool) -> None:
        self.name = name
        self._score = maxsim if native else maxsim_torch

    def run(self, work: MaxSimWork) -> Array:
        query = torch.from_numpy(work.query)
        documents = [torch.from_numpy(rows) for rows in work.documents]
        for _ in range(work.times):
            scores = [self._score(query, *pack) for pack in _packs(documents)]
        return torch.cat(scores).numpy()

    def close(self) -> None:
        """Holds nothing."""


def _packs(documents: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows and bounds of so many documents as the engine runs in one step."""
    first, rows = 0, 0
    for end, document in enumerate(documents, start=1):
        rows += len(document)
        if rows >= STEP_ROWS or end == len(documents):
            part = documents[first:end]
            bounds = [0, *accumulate(len(one) for one in part)]
            yield torch.cat(list(part)), torch.tensor(bounds, dtype=torch.int32)
            first, rows = end, 0
