"""The work: texts from `cenote.cli.workload`, and reranks of one query against many documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cenote.cli.workload import Workload, make_texts

# Texts in a round: about a second of work for the slowest candidate.
COUNTS: dict[Workload, int] = {"short": 512, "passages": 128, "long": 24}


@dataclass(frozen=True, slots=True)
class RerankWork:
    """One query and the documents to be scored with it."""

    query: str
    documents: Sequence[str]


def texts(workload: Workload, count: int | None = None) -> list[str]:
    """The texts of a workload, in arrival order (mixed lengths)."""
    return make_texts(workload, count or COUNTS[workload])


def rerank(documents: int = 100) -> RerankWork:
    """One short query, `documents` passages."""
    return RerankWork(make_texts("short", 1, seed=5)[0], make_texts("passages", documents, seed=6))
