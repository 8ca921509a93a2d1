"""Offline throughput, text to vector, ours and the peers: rate, ratio, latency, memory, start-up.

python -m benchmarks.throughput --model minilm base --workload short passages \
    --python-for peers=PATH --python-for infinity=PATH
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import models, workloads
from benchmarks.candidates import EMBEDDERS, interpreters, load
from benchmarks.harness import compare, cosine, finish, interleave, print_table
from benchmarks.limits import Limits
from benchmarks.remote import Remote

LEAST_COSINE = 0.999
FIRST = ["The first text, which every candidate embeds when it starts."]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--model", nargs="+", default=["minilm"], help="small, base, or any name, id or folder"
    )
    parser.add_argument(
        "--workload", nargs="+", default=["short", "passages"], choices=workloads.COUNTS
    )
    parser.add_argument("--candidates", nargs="+", default=list(EMBEDDERS), choices=EMBEDDERS)
    parser.add_argument("--base", default="st-fp32", help="ratios are to this candidate")
    parser.add_argument("--count", type=int, help="texts in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=300, help="bound on a workload's rounds")
    parser.add_argument("--singles", type=int, default=50, help="single short queries; 0: none")
    parser.add_argument("--python-for", action="append", default=[], metavar="ENVIRONMENT=PATH")
    return parser.parse_args()


def measure(
    candidates: Sequence[Remote], texts: Sequence[str], args: argparse.Namespace, limits: Limits
) -> list[dict[str, Any]]:
    """One row for each candidate on the same texts."""
    counter = next(item for item in candidates if item.name.startswith("cenote"))
    tokens = counter.timed(texts, "count_tokens")[0]
    limits.measure()
    measured = interleave(candidates, texts, args.rounds, args.seconds)
    limits.measure()
    least = {name: EMBEDDERS[name].least or LEAST_COSINE for name in measured.seconds}
    rows = compare(measured, base=args.base, tokens=tokens, agree=cosine, least=least)
    for row in rows:
        row["of_peak"] = limits.share(row["tokens_per_s"], row["name"])
    return rows


def single_queries(candidates: Sequence[Remote], count: int) -> dict[str, tuple[float, float]]:
    """p50 and p95 of one short text in milliseconds, the candidates taking turns."""
    taken: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    for text in workloads.texts("short", count, seed=7):
        for candidate in candidates:
            taken[candidate.name].append(candidate.timed([text])[1] * 1e3)
    return {
        name: (float(np.percentile(some, 50)), float(np.percentile(some, 95)))
        for name, some in taken.items()
    }


def costs(candidates: Sequence[Remote], singles: int) -> list[dict[str, Any]]:
    """A row for each candidate: latency of a single query, peak memory, start-up."""
    latency = single_queries(candidates, singles)
    return [
        {
            "name": candidate.name,
            "p50_ms": round(latency[candidate.name][0], 2),
            "p95_ms": round(latency[candidate.name][1], 2),
            "peak_mib": round(candidate.peak_mib),
            "first_vector_s": round(candidate.start_seconds, 2),
        }
        for candidate in candidates
    ]


def run_model(
    name: str, folder: Path, args: argparse.Namespace, pythons: Mapping[str, str]
) -> dict[str, list[dict[str, Any]]]:
    """All tables of one model."""
    candidates = load(EMBEDDERS, args.candidates, str(folder), pythons, FIRST)
    present = [candidate.name for candidate in candidates]
    if args.base not in present or not any(one.startswith("cenote") for one in present):
        sys.exit(f"The base {args.base} and one of ours must run; there are: {present}.")
    limits = Limits(folder)
    tables = {}
    try:
        for workload in args.workload:
            texts = workloads.texts(workload, args.count)
            rows = measure(candidates, texts, args, limits)
            print_table(f"{name}, {workload}: {len(texts)} texts", rows)
            tables[f"{name}, {workload}"] = rows
        tables[f"{name}, limits"] = limits.rows()
        if args.singles:
            tables[f"{name}, costs"] = costs(candidates, args.singles)
        for title in list(tables)[len(args.workload) :]:
            print_table(title, tables[title])
    finally:
        for candidate in candidates:
            candidate.close()
    return tables


def main() -> None:
    args = arguments()
    pythons = interpreters(args.python_for)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made:
        for name in args.model:
            folder = models.folder_of(name, Path(made))
            results |= run_model(name, folder, args, pythons)
    finish("throughput", results)


if __name__ == "__main__":
    main()
