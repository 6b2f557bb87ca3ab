"""What all commands share in talking to people and to scripts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from hybrisfs.api.clouds import Retention
from hybrisfs.api.ignoring import Ignored
from hybrisfs.api.request import message_of
from hybrisfs.api.status import Archive, MachinesOnly
from hybrisfs.client import clean, quoted, shown

__all__ = [
    "NOT_YET",
    "Show",
    "about_money",
    "clean",
    "columns",
    "count",
    "describe_archive",
    "describe_ignored",
    "describe_machines_only",
    "describe_retention",
    "exact_moment",
    "json_option",
    "moment",
    "money",
    "pending_work",
    "print_json",
    "progress_bar",
    "quoted",
    "show",
    "shown",
    "size",
    "warned",
]

NOT_YET: Final = 3
"""The exit code of a command that was to wait for something, and gave up."""

_Facts = TypeVar("_Facts")
_Function = TypeVar("_Function", bound=Callable[..., Any])

_UNITS: Final = ("kB", "MB", "GB", "TB", "PB")


json_option: Callable[[_Function], _Function] = click.option(
    "--json", "as_json", is_flag=True, help="Print facts as JSON, for scripts."
)


def print_json(facts: object) -> None:
    """Print one JSON document, in ASCII."""
    click.echo(json.dumps(message_of(facts), indent=2))


def show(facts: _Facts, as_json: bool, describe: Callable[[_Facts], Iterable[str]]) -> None:
    """Print an answer of the daemon: as one JSON document, or as the lines that describe it to people."""
    if as_json:
        print_json(facts)
        return
    for line in describe(facts):
        click.echo(line)


def size(number: int) -> str:
    """A number of bytes for people: "0 bytes", "512 bytes", "3.1 MB" (decimal units)."""
    if number < 1000:
        return count(number, "byte")
    value, unit = number / 1000, 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if value >= 99.95 else f"{value:.1f} {_UNITS[unit]}"


def count(number: int, noun: str) -> str:
    """A number of things: "1 file", "12,345 files"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def moment(seconds: float | None, unknown: str = "never") -> str:
    """A time in seconds since the epoch, as the clocks here show it, to the minute; *unknown* for None."""
    return unknown if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def exact_moment(seconds: float) -> str:
    """The same to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def pending_work(files: int, size_of_all: int) -> str:
    """What the clouds lack: "3 changes (1.2 MB)", or "1 change" where only names or attributes changed."""
    changes = count(files, "change")
    return f"{changes} ({size(size_of_all)})" if size_of_all else changes


def describe_ignored(facts: Ignored) -> str:
    """What ignore rules keep here: "3 files and folders (1.2 MB)"; "" when that is nothing."""
    if not facts.files:
        return ""
    what = "1 file or folder" if facts.files == 1 else f"{facts.files:,} files and folders"
    return f"{what} ({size(facts.bytes)})"


def describe_machines_only(facts: MachinesOnly) -> str:
    """What other devices wrote and no cloud is known to have, as a sentence: "2 files (1.2 MB) are on your
    machines only: alice has yet to put them on the clouds." """
    files = facts.files
    are, them = ("is", "it") if files == 1 else ("are", "them")
    what = f"{count(files, 'file')} ({size(facts.bytes)})" if files else "Changes of names or attributes"
    some = f"{what} {are} on your machines only"
    names = [shown(name) for name in facts.devices]
    if not names:
        return f"{some}."
    have = "has" if len(names) == 1 else "have"
    return f"{some}: {' and '.join(names)} {have} yet to put {them} on the clouds."


def warned(warnings: Sequence[str]) -> list[str]:
    """Lines with what a person should know."""
    return [click.style(f"Note: {shown(one)}.", fg="yellow") for one in warnings]


def columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Lines with the cells of `rows` below each other. Cells may be styled; the last is not padded."""
    widths = [max(len(click.unstyle(cell)) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(row, widths, strict=True)
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def money(dollars: float) -> str:
    """An amount for people: "$1.83", "under $0.01"."""
    return "under $0.01" if 0 < dollars < 0.01 else f"${dollars:,.2f}"


def about_money(dollars: float) -> str:
    """A guess at an amount: "about $1.83", "under $0.01"."""
    return money(dollars) if 0 < dollars < 0.01 else f"about {money(dollars)}"


def describe_archive(archive: Archive) -> str:
    """How much is archived, and what that saves."""
    if not archive.archived:
        when = f"without a read for {archive.after}" if archive.after != "off" else "it is switched off"
        how = f"as {archive.code}, {when}" if archive.code else "there are too few clouds for it"
        return f"archive: nothing yet; {how}"
    share = size(archive.archived), size(archive.hot + archive.archived)
    saves = f", which saves {about_money(archive.dollars)} a month" if archive.dollars else ""
    return (
        f"archive: {share[0]} of {share[1]} on the clouds, where it takes {size(archive.stored)}, "
        f"{size(archive.saved)} less than before{saves}"
    )


def describe_retention(found: Retention | None) -> str:
    """For how long a cloud keeps what is deleted, as far as a try has proven it."""
    if found is None:
        return "not tried"
    if not found.keeps:
        return "no" if found.keeps is False else "unknown"
    return "yes" if found.days is None else f"for {count(found.days, 'day')}"


# -- a progress bar for long work: on standard error, only on a terminal, gone when the work is done ----


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
