"""Peak resident memory of each candidate in a process of its own, and whether it stays flat.

    python -m benchmarks.memory --texts 4000
    python -m benchmarks.memory --candidates cenote-bf16 --texts 1000000 --seconds 1500

Lengths are log-normal: most texts are short, so that a million of them end in time, and now and
then there is a long one. Every step has a new number of tokens, so anything kept per shape or per
text would grow. Flat: within 3 % from the half of the run on.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from typing import Any

from benchmarks.candidates import EMBEDDERS, interpreters, load
from benchmarks.harness import print_json, print_table
from benchmarks.remote import Remote
from cenote.cli.workload import words
from cenote.loader.hub import resolve

PART_TEXTS = 500

# Of the logarithm of a length: with a median of 6 words one text in a thousand has 100.
SPREAD = 0.9
FLAT = 0.03
FIRST = ["The first text."]


def make_part(number: int, median: float, longest: int) -> list[str]:
    """Texts of one to `longest` words."""
    rng = random.Random(number)
    source = words()
    drawn = (rng.lognormvariate(math.log(median), SPREAD) for _ in range(PART_TEXTS))
    sizes = [min(longest, max(1, round(size))) for size in drawn]
    starts = [rng.randrange(len(source) - longest) for _ in sizes]
    return [" ".join(source[at : at + size]) for at, size in zip(starts, sizes, strict=True)]


def watch(candidate: Remote, args: argparse.Namespace) -> dict[str, Any]:
    """Runs part after part; a row with the resident memory at the half and at the end."""
    until = time.monotonic() + args.seconds
    seen: list[float] = []
    done = 0
    while done < args.texts and time.monotonic() < until:
        candidate.run(make_part(len(seen), args.median, args.words))
        done += PART_TEXTS
        seen.append(candidate.resident_mib)
    half = max(seen[: len(seen) // 2 + 1])
    last = max(seen[len(seen) // 2 :])
    return {
        "name": candidate.name,
        "texts": done,
        "peak_mib": round(candidate.peak_mib),
        "first_part_mib": round(seen[0]),
        "first_half_mib": round(half),
        "second_half_mib": round(last),
        "growth": f"{100 * (last / half - 1):.1f} %",
        "flat": last <= half * (1 + FLAT),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = ["st-fp32", "cenote-bf16"]
    parser.add_argument("--candidates", nargs="+", default=names, choices=EMBEDDERS)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--median", type=float, default=6, help="words of a text")
    parser.add_argument("--words", type=int, default=400, help="longest text")
    parser.add_argument("--seconds", type=float, default=300, help="bound on a candidate's run")
    parser.add_argument("--python-for", action="append", default=[], metavar="ENVIRONMENT=PATH")
    args = parser.parse_args()
    folder = str(resolve(args.model, None).folder)
    pythons = interpreters(args.python_for)
    rows = []
    for name in args.candidates:
        for candidate in load(EMBEDDERS, [name], folder, pythons, FIRST):
            rows.append(watch(candidate, args))
            candidate.close()
    print_table("Memory under texts of ever new lengths", rows)
    print_json("memory", {"memory": rows})


if __name__ == "__main__":
    main()
