"""What a person sees: messages and progress go to stderr, so that stdout holds only results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

stderr = Console(stderr=True, highlight=False, soft_wrap=True)
stdout = Console(highlight=False)


def fail(message: str) -> NoReturn:
    """Ends the command with exit code 1 and one message."""
    stderr.print(f"[bold red]Error:[/] {escape(message)}")
    sys.exit(1)


def note(message: str) -> None:
    """A line about what is going on."""
    stderr.print(f"[dim]{escape(message)}[/]")


class Bar(Protocol):
    """A progress bar that has been given its total."""

    def __call__(self, done: int) -> None:
        """`done` more are finished."""


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Bar]:
    """A bar on stderr, shown only to a person (not in a pipe or a log)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=stderr, disable=not stderr.is_terminal
    ) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done: bars.advance(task, done)
