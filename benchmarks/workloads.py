"""The work: texts from `cenote.cli.workload`, and reranks of one query against many documents."""

from __future__ import annotations

import random
from typing import Literal

from benchmarks.work import RerankWork
from cenote.cli.workload import make_texts

WorkloadName = Literal["short", "passages", "long", "mixed"]

# Texts in a round: about a second of work for the slowest candidate.
COUNTS: dict[str, int] = {"short": 512, "passages": 128, "long": 24, "mixed": 160}

# What a server sees: mostly queries, many passages, now and then a document.
MIX = {"short": 0.55, "passages": 0.4, "long": 0.05}


def texts(workload: WorkloadName, count: int | None = None, seed: int = 0) -> list[str]:
    """The texts of a workload, in arrival order (mixed lengths)."""
    count = count or COUNTS[workload]
    if workload != "mixed":
        return make_texts(workload, count, seed)
    made = [
        text
        for name, share in MIX.items()
        for text in make_texts(name, max(1, round(share * count)), seed)  # type: ignore[arg-type]
    ]
    random.Random(seed).shuffle(made)
    return made


def rerank(documents: int = 100) -> RerankWork:
    """One short query, `documents` passages."""
    return RerankWork(make_texts("short", 1, seed=5)[0], make_texts("passages", documents, seed=6))
