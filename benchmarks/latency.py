"""One short query over HTTP: alone, and while a bulk job keeps the server full; ours and a peer's.

    python -m benchmarks.latency --queries 200 --python-for infinity=PATH

The goal for ours: p99 under load ≤ 3 × the p50 alone + one step. Clients run on the same cores.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import numpy as np

from benchmarks import workloads
from benchmarks.candidates import interpreters
from benchmarks.harness import print_json, print_table
from benchmarks.processes import infinity, server
from cenote.cli.load import run_load
from cenote.loader.hub import resolve

# Queries in a row to one server before the next one has its turn.
TURN = 5

# Bulk requests that are always in flight, and texts in each.
BULK_CLIENTS = 2
BULK_TEXTS = 256
BULK_WARMUP_SECONDS = 2.0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queries", type=int, default=200, help="of each server, in each state")
    parser.add_argument("--seconds", type=float, default=30, help="bound on each state")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--python-for", action="append", default=[], metavar="ENVIRONMENT=PATH")
    parser.add_argument("--bulk-to", help=argparse.SUPPRESS)
    return parser.parse_args()


def send_bulk(url: str) -> NoReturn:
    """In a process of its own: passages by the hundred, one request after another, for ever."""
    texts = workloads.texts("passages", BULK_TEXTS * BULK_CLIENTS)
    while True:
        run_load(url, texts, clients=BULK_CLIENTS, batch=BULK_TEXTS)


@contextmanager
def bulk(url: str) -> Iterator[None]:
    """A server that is kept full until the block ends."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.latency", "--bulk-to", url])
    try:
        time.sleep(BULK_WARMUP_SECONDS)
        yield
    finally:
        process.kill()
        process.wait()


def ask(urls: Mapping[str, str], queries: int, seconds: float) -> dict[str, list[float]]:
    """Milliseconds of each query, the servers taking turns; no turn begins after `seconds`."""
    taken: dict[str, list[float]] = {name: [] for name in urls}
    until = time.monotonic() + seconds
    for at in range(0, queries, TURN):
        if at and time.monotonic() > until:
            break
        texts = workloads.texts("short", TURN, seed=at)
        for name, url in urls.items():
            load = run_load(url, texts, clients=1)
            taken[name] += [1e3 * seconds for seconds in load.latencies]
    return taken


def step_ms(url: str) -> float:
    """The mean duration of the server's steps so far, by its own metrics."""
    text = urllib.request.urlopen(f"{url}/metrics").read().decode()
    found = dict(re.findall(r"^cenote_step_seconds_(sum|count)\S* (\S+)$", text, re.MULTILINE))
    count = float(found.get("count", 0))
    return 1e3 * float(found.get("sum", 0)) / count if count else 0.0


def row(name: str, idle: list[float], busy: list[float], step: float) -> dict[str, Any]:
    p50, busy_p99 = float(np.percentile(idle, 50)), float(np.percentile(busy, 99))
    return {
        "name": name,
        "queries": len(busy),
        "idle_p50_ms": round(p50, 2),
        "idle_p99_ms": round(float(np.percentile(idle, 99)), 2),
        "busy_p50_ms": round(float(np.percentile(busy, 50)), 2),
        "busy_p99_ms": round(busy_p99, 2),
        "step_ms": round(step, 2),
        "of_goal": round(busy_p99 / (3 * p50 + step), 2),
    }


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    args = arguments()
    if args.bulk_to:
        send_bulk(args.bulk_to)
    python = interpreters(args.python_for).get("infinity")
    with ExitStack() as stack:
        ours = stack.enter_context(server("--model", args.model, "--dtype", args.dtype))
        urls = {"cenote": ours}
        if python:
            folder = str(resolve(args.model, None).folder)
            urls["infinity"] = stack.enter_context(infinity(python, folder, args.dtype))
        for url in urls.values():
            run_load(url, workloads.texts("short", TURN), clients=1)
        idle = ask(urls, args.queries, args.seconds)
        rows = []
        for name, url in urls.items():
            with bulk(url):
                busy = ask({name: url}, args.queries, args.seconds)[name]
            rows.append(row(name, idle[name], busy, step_ms(url) if name == "cenote" else 0.0))
    print_table(f"A short query over HTTP, {args.queries} of each", rows)
    print_json("latency", {"latency": rows})


if __name__ == "__main__":
    main()
