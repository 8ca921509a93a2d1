"""Offline throughput, text to vector: real tokens a second, and the ratio to a base candidate.

python -m benchmarks.throughput --workload short passages --rounds 7
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from benchmarks import workloads
from benchmarks.candidates import EMBEDDERS, load
from benchmarks.harness import compare, cosine, finish, interleave, print_table
from cenote.loader.hub import resolve

LEAST_COSINE = 0.999


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="minilm", help="folder, hub id or built-in name")
    parser.add_argument("--workload", nargs="+", default=["short", "passages"])
    parser.add_argument("--candidates", nargs="+", default=list(EMBEDDERS), choices=EMBEDDERS)
    parser.add_argument("--base", default="st-fp32", help="ratios are to this candidate")
    parser.add_argument("--count", type=int, help="texts in a round")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def measure(
    candidates: Sequence[Any], texts: Sequence[str], base: str, rounds: int
) -> list[dict[str, Any]]:
    """One row for each candidate on the same texts."""
    counter = next(item for item in candidates if hasattr(item, "count_tokens"))
    tokens = counter.count_tokens(texts)
    measured = interleave(candidates, texts, rounds)
    return compare(measured, base=base, tokens=tokens, agree=cosine, least=LEAST_COSINE)


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    args = arguments()
    folder = str(resolve(args.model, None).folder)
    candidates = load(EMBEDDERS, args.candidates, folder)
    results = {}
    try:
        for name in args.workload:
            texts = workloads.texts(name, args.count)
            results[name] = measure(candidates, texts, args.base, args.rounds)
            print_table(f"{name}: {len(texts)} texts, {args.rounds} rounds", results[name])
    finally:
        for candidate in candidates:
            candidate.close()
    finish("throughput", results)


if __name__ == "__main__":
    main()
