"""A progress bar for long work: on standard error, only on a terminal, gone when the work is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Show", "progress_bar"]

Show = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is, and how much it will be (0: not known)."""


@contextmanager
def progress_bar(unit: str) -> Iterator[Show]:
    """Yield the function that moves the bar; `unit` is "bytes" or a plural noun."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    amount: ProgressColumn = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    label = TextColumn("{task.description}", markup=False)
    with Progress(
        label, BarColumn(), amount, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield show
