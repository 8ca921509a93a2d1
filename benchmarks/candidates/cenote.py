"""Ours, through the public offline API."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.work import Array, RerankWork
from cenote import LLM


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

    def count_tokens(self, work: RerankWork) -> int:
        """Real tokens of all prompts."""
        scores = self._llm.score(
            work.query, work.documents, truncate_prompt_tokens=-1, progress=False
        )
        return sum(score.prompt_tokens for score in scores)

    def close(self) -> None:
        self._llm.close()
