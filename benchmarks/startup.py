"""Seconds from the start of a process to its first answer: the server, offline, and the peer.

python -m benchmarks.startup --rounds 5
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.harness import print_json, print_table
from benchmarks.processes import server
from cenote.cli.load import run_load
from cenote.loader.hub import resolve


def start_server() -> float:
    """Until a text was embedded over HTTP; stopping the server is not counted."""
    began = time.perf_counter()
    with server() as url:
        run_load(url, ["first"], clients=1)
        return time.perf_counter() - began


def run_python(code: str) -> Callable[[], float]:
    """A fresh interpreter that runs `code`, until it has ended."""

    def run() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.DEVNULL)
        return time.perf_counter() - began

    return run


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    folder = str(resolve("minilm", None).folder)
    starts: dict[str, Callable[[], float]] = {
        "cenote serve, first answer": start_server,
        "cenote LLM, first vector": run_python(
            "from cenote import LLM\nwith LLM('minilm') as llm: llm.embed('first')"
        ),
        "sentence-transformers, first vector": run_python(
            "from sentence_transformers import SentenceTransformer as S\n"
            f"S({folder!r}, device='cpu').encode('first')"
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in starts}
    for _ in range(rounds):
        for name, start in starts.items():
            seconds[name].append(start())
    rows = [
        {"name": name, "seconds": round(statistics.median(some), 2), "least": round(min(some), 2)}
        for name, some in seconds.items()
    ]
    print_table(f"Start-up, {rounds} rounds", rows)
    print_json("startup", {"startup": rows})


if __name__ == "__main__":
    main()
