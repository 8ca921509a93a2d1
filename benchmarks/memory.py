"""Peak resident memory of each candidate in a process of its own, and whether it stays flat.

python -m benchmarks.memory --texts 4000
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import psutil

from benchmarks.candidates import EMBEDDERS, load
from benchmarks.harness import print_json, print_table
from cenote.cli.workload import make_texts
from cenote.loader.hub import resolve

PARTS = 8
MIB = 1 << 20


def watch(name: str, count: int) -> None:
    """In the child: embeds texts of ever new lengths in parts; prints the memory after each."""
    import resource

    (candidate,) = load(EMBEDDERS, [name], str(resolve("minilm", None).folder))
    process = psutil.Process()
    after = []
    for part in range(PARTS):
        candidate.run(make_texts("passages", count // PARTS, seed=part))
        after.append(process.memory_info().rss / MIB)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    candidate.close()
    print(json.dumps({"peak": peak, "after": after}))


def main() -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--candidates", nargs="+", default=list(EMBEDDERS), choices=EMBEDDERS)
    parser.add_argument("--texts", type=int, default=4000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        watch(args.child, args.texts)
        return
    rows = []
    for name in args.candidates:
        command = [sys.executable, "-m", "benchmarks.memory", "--child", name]
        done = subprocess.run(
            [*command, "--texts", str(args.texts)], check=True, capture_output=True, text=True
        )
        seen = json.loads(done.stdout.splitlines()[-1])
        half = seen["after"][PARTS // 2 - 1]
        rows.append(
            {
                "name": name,
                "peak_mib": round(seen["peak"]),
                "growth_in_second_half": f"{100 * (seen['after'][-1] / half - 1):.1f} %",
            }
        )
    print_table(f"Memory, {args.texts} passages", rows)
    print_json("memory", {"memory": rows})


if __name__ == "__main__":
    main()
