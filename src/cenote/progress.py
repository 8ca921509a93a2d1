"""A progress bar on standard error, for long work at a terminal. It knows nothing of the work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(label: str, total: int | None, *, shown: bool) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told how many items were done; `total` None: not known.

    Nothing is drawn unless `shown`, and only where standard error is a terminal.
    """
    if not (shown and sys.stderr.isatty()):
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as drawn:
        task = drawn.add_task(label, total=total)
        yield lambda count: drawn.advance(task, count)
