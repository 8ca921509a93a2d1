"""`cenote rerank`: documents ordered by a query, with whichever scorer the model has."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cenote.cli.args import with_flags
from cenote.cli.console import stdout
from cenote.cli.embed import FieldName, Input, Truncate
from cenote.cli.offline import open_model
from cenote.cli.texts import read_texts
from cenote.config.engine import EngineConfig

if TYPE_CHECKING:
    from cenote.outputs import Ranking


@with_flags(engine=EngineConfig)
def rerank(
    query: Annotated[str, typer.Argument(help="What is asked.")],
    documents: Annotated[
        list[str] | None, typer.Argument(help="Documents, unless --input.", show_default=False)
    ] = None,
    file: Input = None,
    field: FieldName = "text",
    top_n: Annotated[int | None, typer.Option(help="Show only the best so many.")] = None,
    truncate: Truncate = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Late interaction: which tokens matched.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a document; the default in a pipe.")
    ] = False,
    *,
    engine: EngineConfig,
) -> None:
    """Order documents by a query, best first.

    Example: cenote rerank "What is a cenote?" "A sinkhole." "A kind of bread."
    """
    items = [item.text for item in read_texts(documents or (), file, field)]
    with open_model(engine) as llm:
        ranking = llm.rerank(
            query,
            items,
            top_n=top_n,
            explain=explain,
            truncate_prompt_tokens=-1 if truncate else None,
        )
    if as_json or explain or not sys.stdout.isatty():
        for result in ranking.results:
            typer.echo(json.dumps(asdict(result), ensure_ascii=False))
    else:
        _show(ranking)


def _show(ranking: Ranking) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("rank", "score", "index", "document")
    for rank, result in enumerate(ranking.results, start=1):
        score = f"{result.relevance_score:.4f}"
        table.add_row(str(rank), score, str(result.index), Text(result.document[:200]))
    stdout.print(table)
