"""hybrisfs copies: on how many machines folders are to be, and on which they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from cli.arguments import absolute, complete_files
from cli.output import columns, count, json_option, show, shown, size
from cli.usage import Commands
from hybrisfs.api.copies import (
    CopiesListRequest,
    CopiesSetRequest,
    CopiesShowRequest,
    FilesCopies,
    FolderCopies,
    FoldersCopies,
)
from hybrisfs.api.files import Paths
from hybrisfs.client import Client

__all__ = ["copies", "describe"]


@click.group(cls=Commands)
def copies() -> None:
    """Have folders kept on several of your machines, and see on which they are.

    That comes on top of the clouds. The machines agree among themselves which of them keep a folder: first
    those that have it, then those with the most room, and all with hybrisfs volume set --hoard all. What
    they keep is fetched when it changes and is not evicted.
    """


@copies.command(
    "set",
    epilog="\b\nExample:\n  hybrisfs copies set ~/HybrisFS/Photos 2",
)
@click.argument("path", shell_complete=complete_files)
@click.argument("number", type=click.IntRange(1, 32))
@json_option
def set_(path: str, number: int, as_json: bool) -> None:
    """Have the file or folder PATH kept on at least NUMBER machines, with all that comes into it later.

    All machines see it, as the label copies=NUMBER.
    """
    with Client.connect() as client:
        facts = client.call(CopiesSetRequest(absolute([path]), number))
    machines = count(number, "machine")
    show(
        facts,
        as_json,
        lambda done: [f"{shown(one.path)} is to be on at least {machines}." for one in done.paths],
    )


@copies.command(epilog="\b\nExample:\n  hybrisfs copies remove ~/HybrisFS/Photos")
@click.argument("paths", shell_complete=complete_files, metavar="PATH...", nargs=-1, required=True)
@json_option
def remove(paths: tuple[str, ...], as_json: bool) -> None:
    """Ask for no copies of files and folders any more.

    Each machine then keeps what is used on it, as usual. Nothing is evicted by that before there is need for
    room.
    """
    with Client.connect() as client:
        facts = client.call(CopiesSetRequest(absolute(paths), 0))
    show(facts, as_json, _removed)


def _removed(facts: Paths) -> Iterator[str]:
    for one in facts.paths:
        yield f"{shown(one.path)} need not be on several machines any more."


@copies.command(
    "list",
    epilog="\b\nExamples:\n  hybrisfs copies list\n  hybrisfs copies list ~/HybrisFS/Photos/*.jpg",
)
@click.argument("paths", shell_complete=complete_files, metavar="[PATH]...", nargs=-1)
@json_option
def list_(paths: tuple[str, ...], as_json: bool) -> None:
    """List what is to be on several machines, and which of them have it.

    With the PATHs of files, tells on how many clouds and on which machines each is, by what the machines
    state.
    """
    with Client.connect() as client:
        if paths:
            show(client.call(CopiesShowRequest(absolute(paths))), as_json, _shown)
        else:
            show(client.call(CopiesListRequest()), as_json, _listed)


def _shown(facts: FilesCopies) -> Iterator[str]:
    for one in facts.files:
        clouds = count(one.clouds, "cloud") if one.clouds else "no cloud yet"
        yield f"{shown(one.path)}: {', '.join([clouds, *map(shown, one.on)])}"


def _listed(facts: FoldersCopies) -> list[str]:
    if not facts.folders:
        return ["Nothing is to be on several machines."]
    rows = [["PATH", "SIZE", "COPIES", "ON", "FETCHING"]]
    for one in facts.folders:
        where = one.path or f"{one.inside} in {one.volume}"
        rows.append([shown(where), size(one.bytes), _copies(one), _names(one.on), _names(one.fetching)])
    return columns(rows, indent="")


def _copies(one: FolderCopies) -> str:
    return f"{len(one.on)} of {one.copies}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names)) or "-"


def describe(folders: Sequence[FolderCopies]) -> Iterator[str]:
    """What is to be on several machines, for `hybrisfs status`."""
    for one in folders:
        coming = f"; {_names(one.fetching)} fetching it" if one.fetching else ""
        where = shown(one.inside) if one.inside else "everything"
        yield f"{where} is on {_copies(one)} machines: {_names(one.on)}{coming}"
