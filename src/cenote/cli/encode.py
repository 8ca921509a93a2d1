"""`cenote encode`: any task of the model by its name, as JSON lines."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from cenote.cli.args import with_flags
from cenote.cli.console import progress
from cenote.cli.embed import FieldName, Input, Texts, Truncate
from cenote.cli.offline import CHUNK, open_model, run_naming_lines, strings
from cenote.cli.texts import chunks, count_lines, read_texts
from cenote.cli.writers import open_output
from cenote.config.engine import EngineConfig
from cenote.params import Task


@with_flags(engine=EngineConfig)
def encode(
    texts: Texts = None,
    file: Input = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .jsonl file. Default: stdout.")
    ] = None,
    field: FieldName = "text",
    task: Annotated[
        Task | None, typer.Option(help="What to compute. Default: the model's own.")
    ] = None,
    activation: Annotated[
        bool | None,
        typer.Option("--activation/--no-activation", help="Probabilities, or logits."),
    ] = None,
    truncate: Truncate = False,
    *,
    engine: EngineConfig,
) -> None:
    """Run a task of the model: class scores, token vectors, token classes, sparse vectors.

    Example: cenote encode --task token_embed --model my-colbert "some text"
    """
    items = read_texts(texts or (), file, field)
    total = len(texts) if texts else count_lines(file)
    with (
        open_output(output) as out,
        open_model(engine) as llm,
        progress("Encoding", total) as bar,
    ):
        for chunk in chunks(items, CHUNK):
            results = run_naming_lines(
                chunk,
                lambda batch: llm.encode(
                    strings(batch),
                    task=task,
                    use_activation=activation,
                    truncate_prompt_tokens=-1 if truncate else None,
                ),
            )
            for result in results:
                out.write(json.dumps(to_json(result), ensure_ascii=False).encode() + b"\n")
            bar(len(chunk))


def to_json(result: Any) -> dict[str, Any]:
    """A result's fields with arrays as lists."""
    values = {item.name: getattr(result, item.name) for item in fields(result)}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }
