"""hybrisfs versions id, verify and diff"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click
from msgspec import Struct

from cli import output
from cli.arguments import Place, absolute, complete_files, moment, mounted_place
from cli.output import columns, json_option, progress_bar, shown
from cli.usage import command
from hybrisfs.api.request import Moved
from hybrisfs.api.versions import Differing, SomeDiffering, VersionsDiffRequest, VersionsIdRequest
from hybrisfs.client import Client, DaemonError
from hybrisfs.content_ids import ChangedError, DiskTree, compare, content_id

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


class Compared(Struct):
    first: str
    second: str
    differences: list[Differing]


@command(
    "id", epilog="\b\nExamples:\n  hybrisfs versions id ~/HybrisFS/data\n  hybrisfs versions id data --at 3d"
)
@click.argument("path", shell_complete=complete_files)
@click.option("--at", metavar="TIME", callback=moment, help="As it was then, of a path in a mounted volume.")
@json_option
def id_(path: str, at: str | None, as_json: bool) -> None:
    """Print the ID of the file or folder PATH: a hash of all that is in it, to be cited.

    Equal contents have equal IDs, on all machines and outside of volumes. It covers bytes, names, links and
    which files are programs, but not times, owners and other permissions. In a mounted volume only what has
    changed since the last ID is read; elsewhere all of it is.
    """
    with _daemon() as client:
        place = _place(client, path)
        if at is not None and place is None:
            raise click.UsageError(f"--at: {shown(path)} is in no mounted volume")
        facts = Named(id=_id(client, path, place, at), path=_absolute(path))
    output.show(facts, as_json, lambda one: [one.id])


@command(epilog="\b\nExamples:\n  hybrisfs versions verify f1-2c26... ~/HybrisFS/data.csv")
@click.argument("id", metavar="ID")
@click.argument("path", shell_complete=complete_files)
@json_option
def verify(id: str, path: str, as_json: bool) -> int:  # noqa: A002 - the name of the argument
    """Check that the file or folder PATH is what ID names. The exit code is 1 when it is not.

    PATH may be on any disk. All of it is read.
    """
    if not _NAME.fullmatch(id):
        raise click.UsageError(f"{shown(id)} is not an ID: hybrisfs versions id PATH prints one")
    found = _id(None, path, None)
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


@command(
    epilog="\b\nExamples:\n  hybrisfs versions diff ~/HybrisFS/src /mnt/usb/src\n"
    "  hybrisfs versions diff ~/HybrisFS/.hybrisfs/at/2026-11-20/src ~/HybrisFS/src"
)
@click.argument("first", shell_complete=complete_files)
@click.argument("second", shell_complete=complete_files)
@json_option
def diff(first: str, second: str, as_json: bool) -> int:
    """List what differs between the folders FIRST and SECOND. The exit code is 1 when something does.

    Each may be of the past, below .hybrisfs/at, or outside of the volume. Of one volume only what has changed
    since the last ID is read; of other places all is.
    """
    with _daemon() as client:
        facts = _compare(client, first, second)
    output.show(facts, as_json, _describe_compared)
    return 1 if facts.first != facts.second else 0


def _compare(client: Client | None, first: str, second: str) -> Compared:
    one, other = _place(client, first), _place(client, second)
    if client is not None and one is not None and other is not None and one.volume == other.volume:
        for path, place in ((first, one), (second, other)):
            if not _is_past(place):
                _id(client, path, place)  # which shows the progress, and is known then
        return _compare_within(client, one, other)
    ids = _id(client, first, one), _id(client, second, other)
    if ids[0] == ids[1]:
        return Compared(*ids, [])
    read = compare(_read(first), _read(second))
    differing = [Differing(what, os.fsdecode(path)) for path, what in read.differences]
    return Compared(read.first, read.second, differing)


def _compare_within(client: Client, first: Place, second: Place) -> Compared:
    found: list[Differing] = []

    def add(some: SomeDiffering) -> None:
        found.extend(some.differences)

    asked = VersionsDiffRequest(name=first.volume, first=first.path, second=second.path)
    answer = client.call(asked, add)
    return Compared(answer.first, answer.second, found)


def _describe_compared(facts: Compared) -> Iterator[str]:
    if not facts.differences:
        yield f"They are equal: {facts.first}"
    yield from columns([[one.what, shown(one.path)] for one in facts.differences], indent="")


# -- where the ID comes from: the daemon of a mounted volume knows what it has read before ----------------


@contextmanager
def _daemon() -> Iterator[Client | None]:
    """None where none can be asked: then all is read."""
    try:
        client = Client.connect(start=False)
    except DaemonError:
        yield None
        return
    with client:
        yield client


def _place(client: Client | None, path: str) -> Place | None:
    """Where a path is in a mounted volume. None of other paths, and of what the daemon makes no IDs of."""
    place = None if client is None else mounted_place(client, path)
    if place is None or (place.path.split("/")[0] == ".hybrisfs" and not _is_past(place)):
        return None
    return place


def _is_past(place: Place) -> bool:
    return place.path.startswith(".hybrisfs/at/")


def _id(client: Client | None, path: str, place: Place | None, at: str | None = None) -> str:
    if client is None or place is None:
        tree = _read(path)
        return content_id(tree.kind, tree.digest)
    with progress_bar("bytes") as bar:

        def show(moved: Moved) -> None:
            bar("Reading", moved.done, moved.total)

        return client.call(VersionsIdRequest(name=place.volume, path=place.path, at=at), show).id


def _read(path: str) -> DiskTree:
    try:
        with progress_bar("bytes") as bar:
            return DiskTree.read(os.fsencode(_absolute(path)), lambda done: bar("Reading", done, 0))
    except ChangedError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        where = os.fsdecode(error.filename) if error.filename else path
        raise click.ClickException(f"{shown(where)} cannot be read: {error.strerror}") from None


def _absolute(path: str) -> str:
    return absolute((path,))[0]
