"""hybrisfs repair"""

from __future__ import annotations

from typing import Any

import click

from cli.output import columns, count, json_option, print_json, shown
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.client import Client


@click.command(epilog="\b\nExample:\n  hybrisfs scrub photos || hybrisfs repair photos")
@click.argument("name", required=False, shell_complete=complete_volumes)
@json_option
def repair(name: str | None, as_json: bool) -> int:
    """Rebuild what the clouds of the volume NAME have lost or damaged.

    Everything is read and verified; what is wrong is rebuilt from the other clouds and put back, or onto
    another cloud when its own is down or full. It may be interrupted and run again. The exit code is 1 when
    something could not be repaired. NAME can be left out when there is one volume.
    """
    with Client.connect() as client, progress_bar("things") as show:
        facts = client.call(
            "repair",
            {"name": name},
            lambda step: show(shown(step["stage"]), step["done"], step["total"]),
        )
    if as_json:
        print_json(facts)
    else:
        _explain(facts)
    return 1 if facts["failed"] else 0


def _explain(facts: dict[str, Any]) -> None:
    name, repaired, failed = shown(facts["name"]), facts["repaired"], facts["failed"]
    if not repaired and not failed:
        click.echo(f"{name}: nothing was wrong.")
        return
    click.echo(f"{name}: {count(repaired, 'object')} repaired, {failed:,} not:")
    rows = [[shown(cloud["name"]), _cloud(cloud)] for cloud in facts["clouds"]]
    click.echo("\n".join(columns(rows)))
    rows = [[shown(one["cloud"]), shown(one["what"]), shown(one["why"])] for one in facts["problems"]]
    if rows:
        click.echo("Not repaired:")
        click.echo("\n".join(columns(rows)))
        if failed > len(rows):
            click.echo(f"  and {failed - len(rows):,} more")


def _cloud(cloud: dict[str, Any]) -> str:
    parts = [f"{cloud['repaired']:,} repaired"] if cloud["repaired"] else []
    parts += [f"{cloud['moved']:,} moved to other clouds"] if cloud["moved"] else []
    parts += [f"{cloud['failed']:,} not repaired"] if cloud["failed"] else []
    return ", ".join(parts) or "nothing was wrong"
