"""Our server with many clients against our own offline engine on the same texts.

    python -m benchmarks.server --clients 64 --rounds 5

Clients run on the same cores as the server, so the ratio is a lower bound: a second table says what
processor time a text takes where, in which the clients are told apart.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence

from benchmarks import workloads
from benchmarks.candidates.cenote import Embedder
from benchmarks.harness import compare, cosine, finish, interleave, print_table
from benchmarks.processes import Server, server_process
from benchmarks.work import Array
from cenote.cli.load import run_load


class Clients:
    """`clients` connections that each send one text after another; `rounds` are processor
    microseconds for a text, of each run: in the API, the engine and the clients."""

    def __init__(self, name: str, served: Server, clients: int, batch: int) -> None:
        self.name = name
        self.rounds: list[tuple[float, ...]] = []
        self._served, self._clients, self._batch = served, clients, batch

    def run(self, work: Sequence[str]) -> Array:
        before = (*self._served.cpu_seconds(), time.process_time())
        load = run_load(self._served.url, work, clients=self._clients, batch=self._batch)
        after = (*self._served.cpu_seconds(), time.process_time())
        micros = [1e6 * (b - a) / len(work) for a, b in zip(before, after, strict=True)]
        self.rounds.append(tuple(micros))
        return load.vectors

    def processor_time(self) -> list[dict[str, object]]:
        """One row for each part: the median, and its share of all."""
        medians = [statistics.median(part) for part in zip(*self.rounds, strict=True)]
        return [
            {"part": part, "us_per_text": round(each), "share": f"{each / sum(medians):.0%}"}
            for part, each in zip(("API", "engine", "clients"), medians, strict=True)
        ]

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
    with server_process("--dtype", args.dtype) as served:
        for name in args.workload:
            online = Clients(f"server, {args.clients} clients", served, args.clients, args.batch)
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
            print_table(f"{name}: processor time", online.processor_time())
    offline.close()
    finish("server", results)


if __name__ == "__main__":
    main()
