"""hybrisfs conflicts list, keep, keep-all"""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from cli.output import columns, count, json_option, show, shown, size
from cli.paths import complete_files, mounted_place
from cli.volume_name import volume_option
from hybrisfs.api.decisions import (
    Conflicts,
    ConflictsKeepAllRequest,
    ConflictsKeepRequest,
    ConflictsListRequest,
)
from hybrisfs.client import Client


@click.group()
def conflicts() -> None:
    """See and settle what several machines have changed at the same time."""


@conflicts.command("list", epilog="\b\nExample:\n  hybrisfs conflicts list --json")
@volume_option
@json_option
def list_(name: str | None, as_json: bool) -> None:
    """List what stands under a conflict name. Nothing is lost meanwhile: all versions are there."""
    with Client.connect() as client:
        facts = client.call(ConflictsListRequest(name))
    show(facts, as_json, _describe)


def _describe(facts: Conflicts) -> Iterator[str]:
    found = facts.conflicts
    if not found:
        yield "There are no conflicts."
        return
    yield f"{count(len(found), 'conflict')}; hybrisfs conflicts keep PATH settles one."
    rows = [["VERSION", "OF", "MODIFIED", "SIZE"]]
    rows += [[shown(one.path), shown(one.of), one.modified, size(one.size)] for one in found]
    yield from columns(rows, indent="")


@conflicts.command(
    epilog="\b\nExample:\n  hybrisfs conflicts keep 'notes (conflict, laptop, 2026-11-21).txt'"
)
@click.argument("path", shell_complete=complete_files)
@volume_option
def keep(path: str, name: str | None) -> None:
    """Let the version at PATH be the only one; the others are deleted.

    PATH is the file itself, or one of the versions beside it: where it is on this machine, or as
    conflicts list names it, relative to the volume's folder.
    """
    with Client.connect() as client:
        volume, place = _what(client, path, name)
        client.call(ConflictsKeepRequest(name=volume, path=place))
    click.echo(f"Kept {shown(path)}.")


@conflicts.command("keep-all", epilog="\b\nExample:\n  hybrisfs conflicts keep-all notes.txt")
@click.argument("path", shell_complete=complete_files)
@volume_option
def keep_all(path: str, name: str | None) -> None:
    """Let every version of PATH be a file of its own, under the name that it has now."""
    with Client.connect() as client:
        volume, place = _what(client, path, name)
        client.call(ConflictsKeepAllRequest(name=volume, path=place))
    click.echo(f"All versions of {shown(path)} are files of their own now.")


def _what(client: Client, path: str, name: str | None) -> tuple[str | None, str]:
    """The volume, if that is known, and the path in it."""
    if name is None and os.path.lexists(path):
        place = mounted_place(client, path)
        if place is not None:
            return place.volume, place.path
    return name, path
