"""The command `cenote`: its subcommands, and how a failure is told (a sentence, never a traceback).

Exit codes: 0 success, 1 a failure with a message (or `verify` out of bounds), 2 wrong usage, 130
interrupted. Starting it loads no torch: commands import what they need when they run.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from cenote.cli.bench import bench
from cenote.cli.console import fail
from cenote.cli.embed import embed
from cenote.cli.encode import encode
from cenote.cli.rerank import rerank
from cenote.cli.score import score
from cenote.cli.serve import serve
from cenote.cli.tune import tune
from cenote.cli.verify import verify
from cenote.errors import CenoteError

app = typer.Typer(
    name="cenote",
    help="Embeddings, reranking, late interaction and classification: one engine, fast on a CPU.",
    epilog="Start with: cenote serve    and then: cenote embed 'some text'",
    no_args_is_help=True,
    # Plain help: the boxed form cuts long option names off.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (serve, embed, rerank, score, encode, verify, bench, tune):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    try:
        typer.echo(f"cenote {version('cenote')}")
    except PackageNotFoundError:
        typer.echo("cenote (not installed)")
    raise typer.Exit


@app.callback()
def options(
    wanted: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version)
    ] = False,
) -> None:
    """Options of `cenote` itself; every command has its own --help."""


def main() -> None:
    """Runs the command line and exits with its code."""
    try:
        app()
    except CenoteError as error:
        fail(error.message)
    except KeyboardInterrupt:
        sys.exit(130)
