"""`cenote score`: pairs of texts to scores, in the order given, by the scorer that a model has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cenote.cli.args import with_flags
from cenote.cli.console import progress
from cenote.cli.embed import Truncate
from cenote.cli.offline import CHUNK, open_model, run_naming_lines
from cenote.cli.texts import Pair, chunks, count_lines, read_pairs
from cenote.cli.writers import open_output
from cenote.config.engine import EngineConfig
from cenote.errors import InvalidRequest

if TYPE_CHECKING:
    from cenote.outputs import Score


@with_flags(engine=EngineConfig)
def score(
    query: Annotated[
        str | None, typer.Argument(help="What is asked, unless --input.", show_default=False)
    ] = None,
    documents: Annotated[
        list[str] | None, typer.Argument(help="One or more documents.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--input", "-i", help="A .jsonl file of pairs; - is stdin."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A .jsonl file. Default: stdout.")
    ] = None,
    query_field: Annotated[str, typer.Option(help="Field of a pair's query.")] = "query",
    document_field: Annotated[str, typer.Option(help="Field of a pair's document.")] = "document",
    activation: Annotated[
        bool | None,
        typer.Option("--activation/--no-activation", help="Cross-encoder: scores, or logits."),
    ] = None,
    truncate: Truncate = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Late interaction: which tokens matched.")
    ] = False,
    *,
    engine: EngineConfig,
) -> None:
    """Score pairs of a query and a document, in the order given, to JSON lines.

    Example: cenote score "What is a cenote?" "A sinkhole." "A kind of bread."
    """
    pairs = _pairs(query, documents or [], file, (query_field, document_field))
    total = count_lines(file) if file else len(documents or [])
    with (
        open_output(output) as out,
        open_model(engine) as llm,
        progress("Scoring", total) as bar,
    ):

        def run(batch: Sequence[Pair]) -> list[Score]:
            queries = list(dict.fromkeys(pair.query for pair in batch))
            return llm.score(
                queries if len(queries) == 1 else [pair.query for pair in batch],
                [pair.document for pair in batch],
                explain=explain,
                use_activation=activation,
                truncate_prompt_tokens=-1 if truncate else None,
            )

        for chunk in chunks(pairs, CHUNK):
            for result in run_naming_lines(chunk, run):
                out.write(json.dumps(asdict(result), ensure_ascii=False).encode() + b"\n")
            bar(len(chunk))


def _pairs(
    query: str | None, documents: Sequence[str], file: Path | None, fields: tuple[str, str]
) -> Iterator[Pair]:
    if file is not None:
        if query is not None:
            raise InvalidRequest("Give a query and documents, or --input, not both.", param="input")
        return read_pairs(file, *fields)
    if query is None or not documents:
        raise InvalidRequest("Give a query and at least one document, or --input.", param="input")
    return (Pair(query, text, f"document {index}") for index, text in enumerate(documents, start=1))
