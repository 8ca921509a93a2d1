"""`cenote tune`: finds the fastest settings for a model on this machine and keeps them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cenote.cli.args import with_flags
from cenote.cli.console import note, stderr
from cenote.cli.tuning import Search, Trial, challenges
from cenote.cli.workload import Workload, make_texts
from cenote.config.engine import STEP_TOKENS, EngineConfig
from cenote.config.profile import UNSET, Profile, machine, profile_path, usable_cores

# Clock time that one run of the texts is to take.
RUN_SECONDS = 0.4
MAX_TEXTS = 4096

TUNED = (*UNSET, "model", "profile", "device")


class ProcessEngine:
    """An engine in a process of its own, so that nothing of another's settings is left over."""

    def __init__(self, config: EngineConfig, texts: Sequence[str]) -> None:
        from cenote.config.model import load_model_config
        from cenote.engine.client import start_engine
        from cenote.llm import LLM
        from cenote.loader.hub import resolve
        from cenote.processors.tokenizer import Tokenizer

        found = resolve(config.model, config.revision)
        model = load_model_config(
            found.folder, name=found.name, revision=found.revision, engine=config
        )
        tokenizer = Tokenizer(found.folder, model)
        client = start_engine(config, in_process=False)
        self.llm = LLM.over(client, config, model, tokenizer)
        self.texts = list(texts)

    def run(self) -> float:
        return self.timed()[0]

    def timed(self) -> tuple[float, int]:
        """Seconds for all texts, and their tokens."""
        began = time.perf_counter()
        results = self.llm.encode(self.texts, truncate_prompt_tokens=-1, progress=False)
        return time.perf_counter() - began, sum(result.prompt_tokens for result in results)

    def close(self) -> None:
        self.llm.close()


@with_flags(leave_out=TUNED, engine=EngineConfig)
def tune(
    model: Annotated[str, typer.Argument(help="A folder, a hub id or a built-in name.")] = "minilm",
    workload: Annotated[
        Workload, typer.Option(help="Text lengths: 4-32, about 120, or 512-2048 tokens.")
    ] = "passages",
    seconds: Annotated[float, typer.Option(min=1, help="When to stop trying.")] = 60.0,
    write: Annotated[bool, typer.Option("--write/--no-write", help="Keep what was found.")] = True,
    *,
    engine: EngineConfig,
) -> None:
    """Find dtype, kernels, threads, lanes and step size for a model on this machine, in a minute.

    serve, embed, bench… and LLM use what was found, unless a flag says otherwise or --no-profile.

    Example: cenote tune minilm && cenote serve minilm
    """
    from cenote.loader.hub import resolve

    deadline = time.monotonic() + seconds
    start = replace(engine, model=model, device="cpu", profile=False)
    folder = resolve(model, start.revision).folder
    search = _search(start, workload, deadline)
    path = profile_path(folder, start)
    found = {name: getattr(search.best, name) for name in UNSET}
    profile = Profile(
        model=model,
        machine=machine(),
        tokens_per_s=round(search.rate, 1),
        measured=time.strftime("%Y-%m-%d"),
        **found,
    )
    if write:
        profile.write(path)
    _report(search, path if write else None)
    trials = [
        {"settings": one.settings, "ratio": one.ratio, "kept": one.kept} for one in search.trials
    ]
    written = str(path) if write else None
    left = [one.settings for one in search.left_out]
    typer.echo(
        json.dumps(
            {
                "model": model,
                "profile": written,
                **found,
                "tokens_per_s": profile.tokens_per_s,
                "trials": trials,
                "left_out": left,
            }
        )
    )


def _search(start: EngineConfig, workload: Workload, deadline: float) -> Search:
    """Sizes the work with the machine's own choice of settings, then tries others."""
    note(f"Loading {start.model}")
    engine = ProcessEngine(start, make_texts(workload, 8))
    try:
        ready = engine.llm.ready
        engine.run()
        took = min(engine.run(), engine.run())
        count = max(8, min(MAX_TEXTS, round(8 * RUN_SECONDS / took)))
        engine.texts = texts = make_texts(workload, count, seed=1)
        tokens = engine.timed()[1]
    except BaseException:
        engine.close()
        raise
    search = Search(start, engine, lambda config: ProcessEngine(config, texts), tokens, deadline)
    search.run(challenges(start, ready.dtype, STEP_TOKENS["cpu"], len(usable_cores())), _say)
    return search


def _say(trial: Trial) -> None:
    ratio = "can't run" if trial.ratio is None else f"{trial.ratio:.2f}"
    note(f"{_words(trial.settings)}: {ratio}")


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or "as it starts"


def _report(search: Search, path: Path | None) -> None:
    from rich.table import Table

    table = Table("setting", "tokens/s", "to the best before", "")
    for trial in search.trials:
        ratio = "" if trial.ratio is None else f"{trial.ratio:.2f}"
        verdict = trial.note or ("[green]kept[/]" if trial.kept else "")
        table.add_row(_words(trial.settings), f"{trial.rate:,.0f}", ratio, verdict)
    for challenge in search.left_out:
        table.add_row(_words(challenge.settings), "", "", "no time left")
    stderr.print(table)
    best = {name: getattr(search.best, name) for name in UNSET}
    chosen = {name: value for name, value in best.items() if value != UNSET[name]}
    stderr.print(f"Best: {_words(chosen)}" if chosen else "Best: the settings it starts with.")
    if path is not None:
        stderr.print(f"Written to {path}")
