"""hybrisfs gc"""

from __future__ import annotations

import time
from typing import Any

import click

from cli.output import count, json_option, print_json, shown, size
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.client import Client


@click.command(epilog="\b\nExamples:\n  hybrisfs gc --dry-run\n  hybrisfs gc photos")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option("--dry-run", is_flag=True, help="Only say what there is to be deleted.")
@json_option
def gc(name: str | None, dry_run: bool, as_json: bool) -> int:
    """Delete from the clouds of the volume NAME what no file needs any more.

    That goes on in the background anyway. What has been deleted or overwritten stays on the clouds for some
    days (discard_hours in volume.json), and until all machines of the volume have agreed that they need
    nothing of it. NAME can be left out when there is one volume. The exit code is 1 when something cannot be
    done now.
    """
    with Client.connect() as client, progress_bar("steps") as show:
        facts = client.call(
            "gc",
            {"name": name, "dry_run": dry_run},
            lambda step: show(shown(step["stage"]), step["done"], step["total"]),
        )
    if as_json:
        print_json(facts)
    else:
        _explain(facts)
    return 1 if facts["trouble"] else 0


def _explain(facts: dict[str, Any]) -> None:
    click.echo(f"{shown(facts['name'])}: {_deleted(facts)}")
    for line in _lines(facts):
        click.echo(f"  {line}")
    for one in facts["waiting_for"]:
        seen = one["last_seen"]
        when = "" if seen is None else f", last seen {time.strftime('%Y-%m-%d %H:%M', time.localtime(seen))}"
        click.echo(f"  waiting for {shown(one['device'])} to agree{when}")
    if facts["trouble"]:
        click.echo(f"  it could not be finished: {shown(facts['trouble'])}")


def _deleted(facts: dict[str, Any]) -> str:
    if facts["dry_run"]:
        return "nothing was changed."
    deleted = facts["deleted"]
    return f"{_packs(deleted)} deleted." if deleted["packs"] else "nothing was deleted."


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = []
    if facts["empty"]["packs"]:
        lines.append(f"not needed at all: {_packs(facts['empty'])}")
    if facts["sparse"]["packs"]:
        done = f"; {count(facts['rewritten'], 'pack')} packed anew" if facts["rewritten"] else ""
        lines.append(f"hardly needed: {_packs(facts['sparse'])}{done}")
    if facts["young"]["packs"]:
        lines.append(f"kept for some time yet: {_packs(facts['young'])}")
    unnamed = facts["unnamed"]
    shares = unnamed["strays"] + unnamed["leftovers"]
    if unnamed["orphans"] or shares:
        lines.append(
            f"named by nothing: {count(unnamed['orphans'], 'pack')}, {count(shares, 'single share')}"
        )
    if unnamed["young"]:
        lines.append(f"perhaps on the way still: {count(unnamed['young'], 'share')} that nothing names")
    values = facts.get("values") or {}
    if values.get("unnamed"):
        of_this = count(values["unnamed"], "object")
        lines.append(f"of the key-value store, named by no key: {of_this} (hybrisfs kv clean)")
    if values.get("former"):
        former = count(values["former"], "object")
        lines.append(f"of key-value stores that this machine had: {former} (hybrisfs kv clean --former)")
    if facts.get("undeletable"):
        what = count(facts["undeletable"], "object")
        lines.append(f"{what} wait for a device that may delete: the credentials of this one may not")
    elif facts["due"]["packs"]:
        lines.append(f"to be deleted when the clouds can be reached: {_packs(facts['due'])}")
    log = facts["log"]
    if log["dropped"]:
        lines.append(
            f"the log: {count(log['dropped'], 'change')} summed up in a checkpoint "
            f"({size(log['freed_bytes'])} freed on this device), {log['kept']:,} kept one by one"
        )
    return lines


def _packs(facts: dict[str, int]) -> str:
    return f"{count(facts['packs'], 'pack')} ({size(facts['bytes'])})"
