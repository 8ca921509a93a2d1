"""Our server with many clients against our own offline engine on the same texts.

    python -m benchmarks.server --clients 64 --rounds 5

Clients run on the same cores as the server, so the share is a lower bound.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from benchmarks import workloads
from benchmarks.candidates.cenote import Embedder
from benchmarks.harness import compare, cosine, finish, interleave, print_table
from benchmarks.processes import server
from benchmarks.work import Array
from cenote.cli.load import run_load


class Clients:
    """`clients` connections that each send one text after another."""

    def __init__(self, name: str, url: str, clients: int, batch: int) -> None:
        self.name = name
        self._url, self._clients, self._batch = url, clients, batch

    def run(self, work: Sequence[str]) -> Array:
        return run_load(self._url, work, clients=self._clients, batch=self._batch).vectors

    def close(self) -> None:
        """The server is stopped by whoever started it."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", nargs="+", default=["short", "passages"])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1, help="texts in a request")
    parser.add_argument("--count", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=300, help="bound on a workload's rounds")
    return parser.parse_args()


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    args = arguments()
    results = {}
    offline = Embedder("offline", "minilm", dtype=args.dtype)
    with server("--dtype", args.dtype) as url:
        online = Clients(f"server, {args.clients} clients", url, args.clients, args.batch)
        for name in args.workload:
            texts = workloads.texts(name, args.count)
            tokens = offline.count_tokens(texts)
            measured = interleave([offline, online], texts, args.rounds, args.seconds)
            least = dict.fromkeys(measured.seconds, 0.999)
            results[name] = compare(
                measured, base="offline", tokens=tokens, agree=cosine, least=least
            )
            for row in results[name]:
                del row["cpu_ratio"]  # the server is another process
            print_table(f"{name}: {args.count} texts, {args.rounds} rounds", results[name])
    offline.close()
    finish("server", results)


if __name__ == "__main__":
    main()
