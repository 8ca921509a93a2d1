"""Rerank of one query against 100 passages: cross-encoder and ColBERT, ours and the peers'.

python -m benchmarks.rerank --kind cross-encoder colbert --rounds 7
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks import models, workloads
from benchmarks.candidates import COLBERTS, CROSS_ENCODERS, load
from benchmarks.harness import compare, correlation, finish, interleave, print_table

# Scores of random heads: what must agree is how documents differ.
LEAST_CORRELATION = 0.99
KINDS = {
    "cross-encoder": (models.cross_encoder, CROSS_ENCODERS),
    "colbert": (models.colbert, COLBERTS),
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--documents", type=int, default=100)
    parser.add_argument("--base", default="st-fp32")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    args = arguments()
    work = workloads.rerank(args.documents)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.kind:
            make, table = KINDS[kind]
            candidates = load(table, list(table), str(make(Path(folder) / kind)))
            counter = next(item for item in candidates if hasattr(item, "count_tokens"))
            tokens = counter.count_tokens(work)
            measured = interleave(candidates, work, args.rounds)
            results[kind] = compare(
                measured, base=args.base, tokens=tokens, agree=correlation, least=LEAST_CORRELATION
            )
            print_table(f"{kind}: 1 × {args.documents}, {args.rounds} rounds", results[kind])
            for candidate in candidates:
                candidate.close()
    finish("rerank", results)


if __name__ == "__main__":
    main()
