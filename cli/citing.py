"""hybrisfs versions id, verify and diff"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from cli import output
from cli.arguments import absolute, complete_files, moment
from cli.output import columns, json_option, shown
from cli.tree_names import ChangedError, NameTree, differences, name_tree

__all__ = ["diff", "id_", "verify"]

_NAME: Final = re.compile(r"[fdlpscb]1-[0-9a-f]{64}")


class Named(Struct):
    id: str
    path: str


class Verified(Struct):
    id: str
    found: str
    path: str
    equal: bool


class Differing(Struct):
    what: str
    path: str


class Compared(Struct):
    first: str
    second: str
    differences: list[Differing]


@click.command(
    "id", epilog="\b\nExamples:\n  hybrisfs versions id ~/HybrisFS/data\n  hybrisfs versions id data --at 3d"
)
@click.argument("path", shell_complete=complete_files)
@click.option("--at", metavar="TIME", callback=moment, help="As it was then, of a path in a mounted volume.")
@json_option
def id_(path: str, at: str | None, as_json: bool) -> None:
    """Print the ID of the file or folder PATH: a hash of all that is in it, to be cited.

    Equal contents have equal IDs, on all machines and outside of volumes. It covers bytes, names, links and
    which files are programs, but not times, owners and other permissions. All of it is read.
    """
    where = _absolute(path) if at is None else _then(path, at)
    facts = Named(id=_tree(where).name, path=where)
    output.show(facts, as_json, lambda one: [one.id])


@click.command(epilog="\b\nExamples:\n  hybrisfs versions verify f1-2c26... ~/HybrisFS/data.csv")
@click.argument("id", metavar="ID")
@click.argument("path", shell_complete=complete_files)
@json_option
def verify(id: str, path: str, as_json: bool) -> int:  # noqa: A002 - the name of the argument
    """Check that the file or folder PATH is what ID names. The exit code is 1 when it is not.

    PATH may be on any disk. All of it is read.
    """
    if not _NAME.fullmatch(id):
        raise click.UsageError(f"{shown(id)} is not an ID: hybrisfs versions id PATH prints one")
    found = _tree(_absolute(path)).name
    facts = Verified(id=id, found=found, path=_absolute(path), equal=found == id)
    output.show(facts, as_json, _describe_verified)
    return 0 if facts.equal else 1


def _describe_verified(facts: Verified) -> list[str]:
    if facts.equal:
        return [f"{shown(facts.path)} is what the ID names."]
    return [
        f"{shown(facts.path)} is not what the ID names: its own is {facts.found}.",
        "With a copy that is right, hybrisfs versions diff COPY PATH says what differs.",
    ]


@click.command(epilog="\b\nExamples:\n  hybrisfs versions diff ~/HybrisFS/src /mnt/usb/src")
@click.argument("first", shell_complete=complete_files)
@click.argument("second", shell_complete=complete_files)
@json_option
def diff(first: str, second: str, as_json: bool) -> int:
    """List what differs between the folders FIRST and SECOND. The exit code is 1 when something does.

    Each may be of the past, below .hybrisfs/at, or outside of the volume. All of both is read.
    """
    one, other = _tree(_absolute(first)), _tree(_absolute(second))
    found = [Differing(each.what, os.fsdecode(each.path)) for each in differences(one, other)]
    found.sort(key=lambda each: each.path)
    facts = Compared(one.name, other.name, found)
    output.show(facts, as_json, _describe_compared)
    return 1 if found or one.name != other.name else 0


def _describe_compared(facts: Compared) -> Iterator[str]:
    if not facts.differences:
        yield f"They are equal: {facts.first}"
    yield from columns([[one.what, shown(one.path)] for one in facts.differences], indent="")


def _tree(path: str) -> NameTree:
    try:
        return name_tree(os.fsencode(path))
    except ChangedError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        where = os.fsdecode(error.filename) if error.filename else path
        raise click.ClickException(f"{shown(where)} cannot be read: {error.strerror}") from None


def _then(path: str, at: str) -> str:
    """Where a path of a mounted volume shows what it was at a moment."""
    whole = Path(_absolute(path))
    for mountpoint in (whole, *whole.parents):
        history = mountpoint / ".hybrisfs" / "at"
        if history.is_dir():
            return str(history / at / whole.relative_to(mountpoint))
    raise click.UsageError(f"--at: {shown(path)} is in no mounted volume")


def _absolute(path: str) -> str:
    return absolute((path,))[0]
