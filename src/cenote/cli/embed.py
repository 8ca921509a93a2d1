"""`cenote embed`: texts to vectors on this machine, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cenote.cli.args import with_flags
from cenote.cli.console import progress
from cenote.cli.offline import CHUNK, open_model, run_naming_lines, strings
from cenote.cli.texts import chunks, count_lines, read_texts
from cenote.cli.writers import embedding_writer
from cenote.config.engine import EngineConfig

Texts = Annotated[list[str] | None, typer.Argument(help="Texts.", show_default=False)]
Input = Annotated[
    Path | None,
    typer.Option("--input", "-i", help="File: a text a line, or .jsonl; - is stdin."),
]
FieldName = Annotated[str, typer.Option("--field", help="Field of a .jsonl object with the text.")]
Truncate = Annotated[
    bool, typer.Option("--truncate", help="Cut texts that are too long instead of refusing them.")
]


@with_flags(engine=EngineConfig)
def embed(
    texts: Texts = None,
    file: Input = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File: .jsonl, .npy or .parquet. Default: stdout."),
    ] = None,
    field: FieldName = "text",
    dimensions: Annotated[
        int | None, typer.Option(help="Cut the vectors to this size (matryoshka models).")
    ] = None,
    prompt_name: Annotated[
        str | None, typer.Option(help="One of the model's own prompts, e.g. query.")
    ] = None,
    truncate: Truncate = False,
    *,
    engine: EngineConfig,
) -> None:
    """Embed texts: arguments, a file or stdin, to JSON lines, NumPy or Parquet. Order is kept.

    Example: cenote embed --input notes.txt --output notes.parquet
    """
    items = read_texts(texts or (), file, field)
    total = len(texts) if texts else count_lines(file)
    with (
        embedding_writer(output) as write,
        open_model(engine) as llm,
        progress("Embedding", total) as bar,
    ):
        for chunk in chunks(items, CHUNK):
            write(
                run_naming_lines(
                    chunk,
                    lambda batch: llm.embed(
                        strings(batch),
                        dimensions=dimensions,
                        prompt_name=prompt_name,
                        truncate_prompt_tokens=-1 if truncate else None,
                    ),
                )
            )
            bar(len(chunk))
