"""Rerank of one query against 100 passages: cross-encoder and ColBERT, ours and the peers'.

python -m benchmarks.rerank --kind cross-encoder colbert --rounds 7 --python-for peers=PATH
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import models, workloads
from benchmarks.candidates import COLBERTS, CROSS_ENCODERS, interpreters, load
from benchmarks.harness import compare, correlation, finish, interleave, print_table
from benchmarks.remote import Remote
from benchmarks.work import RerankWork

# Scores of random heads: what must agree is how documents differ.
LEAST_CORRELATION = 0.99
SHARE_RUNS = 5
KINDS = {
    "cross-encoder": (models.cross_encoder, CROSS_ENCODERS),
    "colbert": (models.colbert, COLBERTS),
}
FIRST = RerankWork("the first query", ["one document", "another one"])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--candidates", nargs="+", help="default: all of the kind")
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--base", default="st-fp32")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=300, help="bound on a kind's rounds")
    parser.add_argument("--python-for", action="append", default=[], metavar="ENVIRONMENT=PATH")
    return parser.parse_args()


def add_maxsim_share(
    rows: Sequence[dict[str, Any]], candidates: Sequence[Remote], work: RerankWork
) -> None:
    """What late interaction itself takes of our time; the median of some runs."""
    for row, candidate in zip(rows, candidates, strict=True):
        if candidate.name.startswith("cenote"):
            shares = [candidate.timed(work, "maxsim_share")[0] for _ in range(SHARE_RUNS)]
            row["maxsim_share"] = f"{100 * statistics.median(shares):.2f} %"


def main() -> None:
    args = arguments()
    pythons = interpreters(args.python_for)
    work = workloads.rerank(args.documents)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.kind:
            make, table = KINDS[kind]
            names = [name for name in args.candidates or table if name in table]
            candidates = load(table, names, str(make(Path(folder) / kind)), pythons, FIRST)
            counter = next(item for item in candidates if item.name.startswith("cenote"))
            tokens = counter.timed(work, "count_tokens")[0]
            measured = interleave(candidates, work, args.rounds, args.seconds)
            least = {name: table[name].least or LEAST_CORRELATION for name in measured.seconds}
            results[kind] = compare(
                measured, base=args.base, tokens=tokens, agree=correlation, least=least
            )
            if kind == "colbert":
                add_maxsim_share(results[kind], candidates, work)
            print_table(f"{kind}: 1 × {args.documents}", results[kind])
            for candidate in candidates:
                candidate.close()
    finish("rerank", results)


if __name__ == "__main__":
    main()
