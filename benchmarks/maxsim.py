"""MaxSim of one query against 100 documents: ours, the padded product, and PyLate's.

    python -m benchmarks.maxsim --documents 100 1000 --python-for pylate=PATH

All get the same token vectors, a matrix for each document, and give a score for each. Lengths are
those of passages. `tokens_per_s` are document rows.
"""

from __future__ import annotations

import argparse
import random

import numpy as np

from benchmarks.candidates import MAXSIMS, interpreters, load
from benchmarks.harness import compare, correlation, finish, interleave, print_table
from benchmarks.work import Array, MaxSimWork
from cenote.cli.workload import LENGTHS

QUERY_ROWS = 32
DIM = 128
LEAST_CORRELATION = 0.99999

# Scored in a row, so that a turn takes some milliseconds.
DOCUMENTS_IN_A_TURN = 1000


def make_work(documents: int, times: int) -> MaxSimWork:
    """Unit vectors at random; document lengths as passages have them."""
    lengths, numbers = random.Random(0), np.random.default_rng(0)

    def rows(count: int) -> Array:
        made = numbers.standard_normal((count, DIM), dtype=np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    sizes = [round(LENGTHS["passages"](lengths)) for _ in range(documents)]
    return MaxSimWork(rows(QUERY_ROWS), [rows(size) for size in sizes], times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--documents", nargs="+", type=int, default=[100, 1000])
    parser.add_argument("--base", default="padded", choices=MAXSIMS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=60, help="bound on a size's rounds")
    parser.add_argument("--python-for", action="append", default=[], metavar="ENVIRONMENT=PATH")
    args = parser.parse_args()
    pythons = interpreters(args.python_for)
    candidates = load(MAXSIMS, list(MAXSIMS), "", pythons, make_work(2, 1))
    least = dict.fromkeys(MAXSIMS, LEAST_CORRELATION)
    results = {}
    for documents in args.documents:
        work = make_work(documents, max(1, DOCUMENTS_IN_A_TURN // documents))
        measured = interleave(candidates, work, args.rounds, args.seconds)
        title = f"1 × {documents}"
        results[title] = compare(
            measured,
            base=args.base,
            tokens=work.times * sum(map(len, work.documents)),
            agree=correlation,
            least=least,
        )
        print_table(f"MaxSim, {title}", results[title])
    for candidate in candidates:
        candidate.close()
    finish("maxsim", results)


if __name__ == "__main__":
    main()
