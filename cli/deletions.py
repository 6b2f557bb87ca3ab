"""hybrisfs deletions list, accept, undo"""

from __future__ import annotations

import time

import click

from cli.output import columns, json_option, print_json, shown
from cli.volume_name import volume_option
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
        facts = client.call("deletions list", {"name": name})
    if as_json:
        print_json(facts)
        return
    found = facts["deletions"]
    if not found:
        click.echo("No deletion waits.")
        return
    rows = [["ID", "MACHINE", "WHEN", "DELETES"]]
    for one in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["time"]))
        rows.append(
            [one["id"], shown(one["device"]), when, f"{one['names']} of {one['of']} files and folders"]
        )
    click.echo("\n".join(columns(rows, indent="")))
    click.echo("hybrisfs deletions accept ID deletes them here, too; undo ID brings them back everywhere.")


@deletions.command(epilog="\b\nExample:\n  hybrisfs deletions accept 3fa85f64a1b2")
@click.argument("deletion", metavar="ID")
@volume_option
def accept(deletion: str, name: str | None) -> None:
    """Delete here, too, what another machine deleted."""
    with Client.connect() as client:
        client.call("deletions accept", {"name": name, "id": deletion})
    click.echo("Deleted here, too.")


@deletions.command(epilog="\b\nExample:\n  hybrisfs deletions undo 3fa85f64a1b2")
@click.argument("deletion", metavar="ID")
@volume_option
def undo(deletion: str, name: str | None) -> None:
    """Bring back on all machines what another machine deleted."""
    with Client.connect() as client:
        client.call("deletions undo", {"name": name, "id": deletion})
    click.echo("Brought back, on all machines.")
