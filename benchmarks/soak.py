"""Many rerank clients of which a third leave at a random time: are the others answered rightly, and
is nothing left of it?

    python -m benchmarks.soak --kind colbert cross-encoder --seconds 120

A real server in processes of its own; texts are short, so that much comes and goes. The decoder has
a tenth of the keys and values' room that 64 clients want. Every answer must be the one that the
same request had alone, before the clients came, but for the last bits of float32 (products of few
rows sum in another order than those of many). At the end the engine must hold nothing, and memory
must be what it was when it had warmed up, within 3 %. Exit code 1 where any of it does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import models
from benchmarks.harness import print_json, print_table
from benchmarks.memory import FLAT
from benchmarks.processes import Server, server_process
from cenote.cli.connection import Connection, Reply
from cenote.cli.workload import make_texts

KINDS = {
    "colbert": models.colbert,
    "cross-encoder": models.cross_encoder,
    "decoder": models.decoder_reranker,
}
# About a tenth of what the prompts of 64 clients take at once, so that they wait for each other.
TIGHT = {"decoder": ("--kv-cache-bytes", str(3 << 20))}
REQUESTS = 64
MOST_DOCUMENTS = 12

# Of a request's usual time: the longest that a client who leaves waits before it does.
LEAVES_WITHIN = 1.5
LEAVING = 1 / 3
# Of those who leave: how many don't even send their whole body.
LEAVING_EARLY = 0.2

# Scores of 32 products of float32 unit vectors, or one of a classifier: relative.
LAST_BITS = 1e-6

# Warm are the processes in the second quarter of the time; the last one is the end.
QUARTER = 0.25
QUIET_SECONDS = 15.0

# The query cache is small, so that it is full when the processes are warm.
SETTINGS = ("--enable-admin", "--query-cache-bytes", str(1 << 20))

# What must be 0 in the end, by its name in /engine_stats.
LEFT = ("request_entries", "score_groups", "running", "waiting", "kv_blocks_held")


@dataclass(slots=True)
class Seen:
    """What clients and the memory watch noted; MiB of the API's process and of the engine's."""

    latencies: list[float] = field(default_factory=list)
    left: int = 0
    wrong: int = 0
    most_off: float = 0.0
    errors: list[str] = field(default_factory=list)
    memory: list[tuple[float, float, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Case:
    """A request's fields, and the scores of its documents in their order."""

    fields: dict[str, Any]
    scores: Sequence[float]

    def body(self, chance: random.Random) -> bytes:
        """Half of all have a salt of their own, so that no cached query is theirs."""
        salt = {"cache_salt": f"{chance.random()}"} if chance.random() < 0.5 else {}
        return json.dumps(self.fields | salt).encode()


def scores_of(reply: Reply) -> list[float]:
    """The documents' scores in the order of the request."""
    results = json.loads(reply.content)["results"]
    return [item["relevance_score"] for item in sorted(results, key=lambda item: item["index"])]


async def make_cases(url: str) -> list[Case]:
    """Requests of different sizes, each asked alone."""
    chance = random.Random(1)
    queries = make_texts("short", REQUESTS, seed=2)
    documents = make_texts("short", REQUESTS * MOST_DOCUMENTS, seed=3)
    connection = await Connection.open(url, "/rerank")
    cases = []
    for at, query in enumerate(queries):
        chosen = documents[at * MOST_DOCUMENTS :][: chance.randint(1, MOST_DOCUMENTS)]
        fields = {"query": query, "documents": chosen, "truncate_prompt_tokens": -1}
        reply = await connection.post(json.dumps(fields).encode())
        if reply.status != 200:
            raise RuntimeError(f"{reply.status} {reply.content[:300].decode()}")
        cases.append(Case(fields, scores_of(reply)))
    connection.close()
    return cases


async def client(url: str, cases: Sequence[Case], seen: Seen, until: float, seed: int) -> None:
    """One request after another, each on a connection of its own."""
    chance = random.Random(seed)
    while time.monotonic() < until:
        case = chance.choice(cases)
        body = case.body(chance)
        connection = await Connection.open(url, "/rerank")
        try:
            if seen.latencies and chance.random() < LEAVING:
                await leave(connection, body, seen, chance)
            else:
                await stay(connection, body, case, seen)
        except (OSError, EOFError) as error:
            seen.errors.append(repr(error))
        finally:
            connection.close()


async def leave(connection: Connection, body: bytes, seen: Seen, chance: random.Random) -> None:
    """Sends a request, maybe only a part of it, and goes at some time before or after its end."""
    usual = float(np.median(seen.latencies[-100:]))
    early = chance.random() < LEAVING_EARLY
    connection.send(body, chance.randrange(len(body)) if early else None)
    await asyncio.sleep(chance.uniform(0, LEAVES_WITHIN * usual))
    seen.left += 1


async def stay(connection: Connection, body: bytes, case: Case, seen: Seen) -> None:
    sent = time.perf_counter()
    reply = await connection.post(body)
    seen.latencies.append(time.perf_counter() - sent)
    if reply.status != 200:
        seen.errors.append(f"{reply.status} {reply.content[:300].decode()}")
        return
    size = np.maximum(np.abs(case.scores), 1)
    off = float((np.abs(np.subtract(scores_of(reply), case.scores)) / size).max())
    seen.wrong += off > LAST_BITS
    seen.most_off = max(seen.most_off, off)


async def watch(server: Server, seen: Seen) -> None:
    """Notes the memory of both processes, four times a second."""
    while True:
        seen.memory.append((time.monotonic(), *server.resident_mib()))
        await asyncio.sleep(0.25)


async def load(server: Server, args: argparse.Namespace) -> Seen:
    """All clients until the time is over."""
    cases = await make_cases(server.url)
    seen = Seen()
    until = time.monotonic() + args.seconds
    watching = asyncio.create_task(watch(server, seen))
    clients = (client(server.url, cases, seen, until, seed) for seed in range(args.clients))
    await asyncio.gather(*clients)
    watching.cancel()
    return seen


def get(url: str, path: str) -> Any:
    with urllib.request.urlopen(f"{url}{path}", timeout=30) as answer:
        return json.load(answer)


def what_is_left(url: str) -> dict[str, int]:
    """What the engine and the server hold once nobody asks any more; they get some seconds."""
    until = time.monotonic() + QUIET_SECONDS
    while True:
        stats = get(url, "/engine_stats")["result"]
        left = {name: stats[name] for name in LEFT}
        left["http_requests"] = get(url, "/load")["server_load"]
        if not any(left.values()) or time.monotonic() > until:
            return left
        time.sleep(0.1)


def row(kind: str, seen: Seen, left: dict[str, int]) -> dict[str, Any]:
    """Memory is the median of a quarter: a single sample may lie within a large step."""
    times, *memory = np.array(seen.memory).T
    at = (times - times[0]) / (times[-1] - times[0])
    is_warm, is_end = (at > QUARTER) & (at <= 2 * QUARTER), at > 1 - QUARTER
    made: dict[str, Any] = {
        "kind": kind,
        "answered": len(seen.latencies),
        "left": seen.left,
        "errors": len(seen.errors),
        "wrong": seen.wrong,
        "most_off": seen.most_off,
        "p50_ms": round(1e3 * float(np.median(seen.latencies)), 1),
        "held_at_end": sum(left.values()),
    }
    flat = True
    for name, sizes in zip(("api", "engine"), memory, strict=True):
        before, after = np.median(sizes[is_warm]), np.median(sizes[is_end])
        made |= {
            f"{name}_warm_mib": round(float(before), 1),
            f"{name}_end_mib": round(float(after), 1),
            f"{name}_growth": f"{100 * (after / before - 1):.1f} %",
        }
        flat = flat and after <= before * (1 + FLAT)
    held = not seen.errors and not seen.wrong and not made["held_at_end"] and flat
    return {**made, "holds": bool(held)}


def over_time(seen: Seen) -> str:
    """Both processes' memory at eleven times from the first to the last."""
    at = np.linspace(0, len(seen.memory) - 1, 11).astype(int)
    return " ".join(f"{api:.0f}+{engine:.0f}" for _, api, engine in (seen.memory[i] for i in at))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--seconds", type=float, default=120, help="of each kind")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    rows = []
    with tempfile.TemporaryDirectory() as made:
        for kind in args.kind:
            folder = str(KINDS[kind](Path(made) / kind))
            settings = (*SETTINGS, *TIGHT.get(kind, ()))
            with server_process(folder, "--dtype", args.dtype, *settings) as server:
                seen = asyncio.run(load(server, args))
                left = what_is_left(server.url)
            rows.append(row(kind, seen, left))
            for error in dict.fromkeys(seen.errors):
                print(f"{kind}: {error}", file=sys.stderr)
            print(f"{kind}: left in the end: {left}", file=sys.stderr)
            print(f"{kind}: MiB over time: {over_time(seen)}", file=sys.stderr)
    print_table(f"{args.clients} rerank clients for {args.seconds:.0f} s, a third leave", rows)
    print_json("soak", {"soak": rows})
    if not all(one["holds"] for one in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
