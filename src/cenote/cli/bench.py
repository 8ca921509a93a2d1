"""`cenote bench`: throughput and latency of this machine, offline or against a running server.

A table on stderr for people, one JSON line on stdout for machines.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from cenote.cli.args import with_flags
from cenote.cli.console import note, stderr
from cenote.cli.load import percentiles, run_load, served_model
from cenote.cli.offline import open_model
from cenote.cli.workload import Workload, make_texts
from cenote.config.engine import EngineConfig


@with_flags(engine=EngineConfig)
def bench(
    url: Annotated[
        str | None, typer.Option(help="A running server, e.g. http://localhost:8000.")
    ] = None,
    workload: Annotated[
        Workload, typer.Option(help="Text lengths: 4-32, about 120, or 512-2048 tokens.")
    ] = "passages",
    count: Annotated[int, typer.Option(min=1, help="How many texts.")] = 1000,
    clients: Annotated[int, typer.Option(min=1, help="With --url: requests at a time.")] = 64,
    batch: Annotated[int, typer.Option(min=1, help="With --url: texts in a request.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Runs; the fastest counts.")] = 3,
    *,
    engine: EngineConfig,
) -> None:
    """Measure real tokens a second, and p50, p95 and p99 latency.

    Example: cenote bench --url http://localhost:8000 --workload short
    """
    texts = make_texts(workload, count)
    measured = (
        _online(url, texts, clients, batch, rounds) if url else _offline(engine, texts, rounds)
    )
    report({"workload": workload, "texts": count, **measured})


def _online(url: str, texts: list[str], clients: int, batch: int, rounds: int) -> dict[str, Any]:
    model = served_model(url)
    note(f"{len(texts)} texts to {model} at {url}, {clients} clients")
    run_load(url, texts[: min(len(texts), 4 * clients)], clients=clients, batch=batch, model=model)
    loads = [run_load(url, texts, clients=clients, batch=batch, model=model) for _ in range(rounds)]
    best = min(loads, key=lambda load: load.seconds)
    return {
        "model": model,
        "clients": clients,
        "batch": batch,
        **_rates(best.tokens, best.texts, best.seconds),
        **dict(percentiles(best.latencies)),
    }


def _offline(engine: EngineConfig, texts: list[str], rounds: int) -> dict[str, Any]:
    with open_model(engine) as llm:

        def run(some: Sequence[str]) -> tuple[float, int]:
            began = time.perf_counter()
            results = llm.embed(some, truncate_prompt_tokens=-1)
            took = time.perf_counter() - began
            return took, sum(result.prompt_tokens for result in results)

        run(texts[:64])
        seconds, tokens = min(run(texts) for _ in range(rounds))
        single = [run([text])[0] for text in make_texts("short", 200, seed=1)]
        ready = llm.ready
    return {
        "model": engine.model,
        "dtype": ready.dtype,
        "kernels": ready.kernels,
        **_rates(tokens, len(texts), seconds),
        **{f"single_{name}": value for name, value in percentiles(single)},
    }


def _rates(tokens: int, texts: int, seconds: float) -> dict[str, float]:
    return {
        "tokens_per_s": round(tokens / seconds, 1),
        "texts_per_s": round(texts / seconds, 1),
        "seconds": round(seconds, 3),
    }


def report(values: dict[str, Any]) -> None:
    """The table for people and the line for machines."""
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in values.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int | float) else str(value))
    stderr.print(table)
    typer.echo(json.dumps(values))
