"""The one way in which everything here is measured.

Machines are noisy, so only ratios inside one round count: every round runs every candidate on the
same work, the order is reversed every other round, and a ratio is the median of the rounds' ratios.
A candidate whose results do not agree with the reference is not compared: it is reported as wrong.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

WorkT = TypeVar("WorkT", contravariant=True)
Array = NDArray[np.float32]


class Candidate(Protocol[WorkT]):
    """Something that can do the work: ours or a peer's, loaded and ready."""

    name: str

    def run(self, work: WorkT) -> Array:
        """The results, one row (or one number) for each item of the work, in its order."""

    def close(self) -> None:
        """Frees its memory and threads."""


@dataclass(frozen=True, slots=True)
class Rounds(Generic[WorkT]):
    """Seconds of each candidate in each round, by the clock and of this process on all cores, and
    its results."""

    seconds: dict[str, list[float]]
    cpu_seconds: dict[str, list[float]]
    results: dict[str, Array]


def interleave(candidates: Sequence[Candidate[WorkT]], work: WorkT, rounds: int) -> Rounds[WorkT]:
    """Runs every candidate once to warm up, then in `rounds` interleaved rounds."""
    results = {candidate.name: candidate.run(work) for candidate in candidates}
    seconds: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    cpu_seconds: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    for number in range(rounds):
        order = list(candidates) if number % 2 == 0 else list(reversed(candidates))
        for candidate in order:
            gc.collect()
            began, cpu_began = time.perf_counter(), time.process_time()
            candidate.run(work)
            seconds[candidate.name].append(time.perf_counter() - began)
            cpu_seconds[candidate.name].append(time.process_time() - cpu_began)
    return Rounds(seconds, cpu_seconds, results)


def cosine(left: Array, right: Array) -> float:
    """The least cosine of two matrices' rows."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float(((a * b).sum(axis=1) / norms).min())


def correlation(left: Array, right: Array) -> float:
    """Pearson's correlation of two lists of scores."""
    return float(np.corrcoef(left, right)[0, 1])


def compare(
    rounds: Rounds[Any],
    *,
    base: str,
    tokens: int,
    agree: Callable[[Array, Array], float],
    least: float,
) -> list[dict[str, Any]]:
    """One row for each candidate: rate, ratio to `base` and agreement with it.

    `tokens` is the number of real tokens in the work, the same for all. `cpu_ratio` compares
    processor time: it hardly moves when other programs take the cores, which the clock does.
    """
    rows = []
    for name, seconds in rounds.seconds.items():
        ratios = _ratios(rounds.seconds, base, name)
        agreement = agree(rounds.results[name], rounds.results[base])
        rows.append(
            {
                "name": name,
                "tokens_per_s": round(tokens / statistics.median(seconds)),
                "ratio": round(statistics.median(ratios), 2),
                "ratio_min": round(min(ratios), 2),
                "ratio_max": round(max(ratios), 2),
                "cpu_ratio": round(statistics.median(_ratios(rounds.cpu_seconds, base, name)), 2),
                "agreement": round(agreement, 6),
                "agrees": agreement >= least,
            }
        )
    return rows


def _ratios(seconds: dict[str, list[float]], base: str, name: str) -> list[float]:
    """Of each round: how many times as fast as `base`."""
    return [b / s for b, s in zip(seconds[base], seconds[name], strict=True)]


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Rows as a Markdown table, which docs/performance.md takes as it is."""
    names = list(rows[0])
    print(f"\n### {title}\n")
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(row.get(name, "")) for name in names) + " |")


def print_json(benchmark: str, results: dict[str, Any]) -> None:
    """The last line: everything, for machines."""
    print(json.dumps({"benchmark": benchmark, "machine": machine(), "results": results}))


def finish(benchmark: str, results: dict[str, list[dict[str, Any]]]) -> None:
    """Prints the JSON line; exits with 1 if any candidate's results were wrong."""
    print_json(benchmark, results)
    wrong = [
        f"{title}: {row['name']} ({row['agreement']})"
        for title, rows in results.items()
        for row in rows
        if not row.get("agrees", True)
    ]
    if wrong:
        sys.exit("Results disagree with the reference: " + "; ".join(wrong))


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    flags = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            flags = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        pass
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "instructions": [name for name in wanted if f" {name}" in flags],
    }
