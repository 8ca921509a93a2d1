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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from benchmarks.remote import Remote
from benchmarks.work import Array, Candidate

WorkT = TypeVar("WorkT")

# How the names of our own candidates begin.
OURS = ("cenote", "server", "offline")


@dataclass(frozen=True, slots=True)
class Rounds(Generic[WorkT]):
    """Seconds of each candidate in each round, by the clock and of its process on all cores, and
    its results."""

    seconds: dict[str, list[float]]
    cpu_seconds: dict[str, list[float]]
    results: dict[str, Array]


def interleave(
    candidates: Sequence[Candidate[WorkT]], work: WorkT, rounds: int, seconds: float = float("inf")
) -> Rounds[WorkT]:
    """Runs every candidate once to warm up, then in at most `rounds` interleaved rounds, of which
    none begins after `seconds`; at least one does."""
    results = {candidate.name: candidate.run(work) for candidate in candidates}
    clock: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    cpu: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    until = time.monotonic() + seconds
    for number in range(rounds):
        if number and time.monotonic() > until:
            break
        order = list(candidates) if number % 2 == 0 else list(reversed(candidates))
        for candidate in order:
            _, took, cpu_took = _timed(candidate, work)
            clock[candidate.name].append(took)
            cpu[candidate.name].append(cpu_took)
    return Rounds(clock, cpu, results)


def _timed(candidate: Candidate[WorkT], work: WorkT) -> tuple[Array, float, float]:
    """The results, and the seconds by the clock and of the candidate's processor time."""
    if isinstance(candidate, Remote):
        return candidate.timed(work)
    gc.collect()
    began, cpu_began = time.perf_counter(), time.process_time()
    results = candidate.run(work)
    return results, time.perf_counter() - began, time.process_time() - cpu_began


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
    least: Mapping[str, float],
) -> list[dict[str, Any]]:
    """One row for each candidate: rate, ratio to `base` and agreement with it (`least` by name).

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
                "rounds": len(seconds),
                "tokens_per_s": round(tokens / statistics.median(seconds)),
                "ratio": round(statistics.median(ratios), 2),
                "ratio_min": round(min(ratios), 2),
                "ratio_max": round(max(ratios), 2),
                "cpu_ratio": round(statistics.median(_ratios(rounds.cpu_seconds, base, name)), 2),
                "agreement": round(agreement, 6),
                "agrees": agreement >= least[name],
            }
        )
    return rows


def _ratios(seconds: dict[str, list[float]], base: str, name: str) -> list[float]:
    """Of each round: how many times as fast as `base`."""
    return [b / s for b, s in zip(seconds[base], seconds[name], strict=True)]


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Rows as a Markdown table, which docs/performance.md takes as it is."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    print(f"\n### {title}\n")
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(str(row.get(name, "")) for name in names) + " |")


def print_json(benchmark: str, results: dict[str, Any]) -> None:
    """The last line: everything, for machines."""
    print(json.dumps({"benchmark": benchmark, "machine": machine(), "results": results}))


def finish(benchmark: str, results: dict[str, list[dict[str, Any]]]) -> None:
    """Prints the JSON line; exits with 1 if our results were wrong (a peer's are only marked)."""
    print_json(benchmark, results)
    wrong = [
        f"{title}: {row['name']} ({row['agreement']})"
        for title, rows in results.items()
        for row in rows
        if not row.get("agrees", True) and row["name"].startswith(OURS)
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
