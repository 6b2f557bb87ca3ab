"""hybrisfs deletions list, accept, undo"""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from cli.output import columns, json_option, show, shown
from cli.volume_name import volume_option
from hybrisfs.api.decisions import (
    Deletions,
    DeletionsAcceptRequest,
    DeletionsListRequest,
    DeletionsUndoRequest,
)
from hybrisfs.client import Client


@click.group()
def deletions() -> None:
    """Decide on mass deletions by other machines, which wait for you."""


@deletions.command("list", epilog="\b\nExample:\n  hybrisfs deletions list --json")
@volume_option
@json_option
def list_(name: str | None, as_json: bool) -> None:
    """List what waits. This machine goes on showing it, and shows all else that is new."""
    with Client.connect() as client:
        facts = client.call(DeletionsListRequest(name))
    show(facts, as_json, _describe)


def _describe(facts: Deletions) -> Iterator[str]:
    if not facts.deletions:
        yield "No deletion waits."
        return
    rows = [["ID", "MACHINE", "WHEN", "DELETES"]]
    for one in facts.deletions:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.time))
        rows.append([one.id, shown(one.device), when, f"{one.names} of {one.of} files and folders"])
    yield from columns(rows, indent="")
    yield "hybrisfs deletions accept ID deletes them here, too; undo ID brings them back everywhere."


@deletions.command(epilog="\b\nExample:\n  hybrisfs deletions accept 3fa85f64a1b2")
@click.argument("deletion", metavar="ID")
@volume_option
def accept(deletion: str, name: str | None) -> None:
    """Delete here, too, what another machine deleted."""
    with Client.connect() as client:
        client.call(DeletionsAcceptRequest(name=name, id=deletion))
    click.echo("Deleted here, too.")


@deletions.command(epilog="\b\nExample:\n  hybrisfs deletions undo 3fa85f64a1b2")
@click.argument("deletion", metavar="ID")
@volume_option
def undo(deletion: str, name: str | None) -> None:
    """Bring back on all machines what another machine deleted."""
    with Client.connect() as client:
        client.call(DeletionsUndoRequest(name=name, id=deletion))
    click.echo("Brought back, on all machines.")
