"""hybrisfs scrub"""

from __future__ import annotations

from typing import Any

import click

from cli.output import columns, count, json_option, print_json, shown
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.client import Client


@click.command(epilog="\b\nExamples:\n  hybrisfs scrub\n  hybrisfs scrub photos --sample 5")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option(
    "--sample",
    metavar="P",
    type=click.FloatRange(min=0, max=100, min_open=True),
    default=100.0,
    help="Read a random P per cent of the data instead of all of it.",
)
@json_option
def scrub(name: str | None, sample: float, as_json: bool) -> int:
    """Verify what the clouds of the volume NAME hold; changes nothing.

    Says what is missing, stale or corrupt on which cloud, and whether that cloud keeps it as it was before;
    the exit code is 1 when anything is. It downloads what it verifies. NAME can be left out when there is one
    volume. hybrisfs repair puts things right.
    """
    with Client.connect() as client, progress_bar("things") as show:
        facts = client.call(
            "scrub",
            {"name": name, "sample": sample},
            lambda step: show(shown(step["stage"]), step["done"], step["total"]),
        )
    if as_json:
        print_json(facts)
    else:
        _explain(facts)
    return 1 if facts["wrong"] else 0


def _explain(facts: dict[str, Any]) -> None:
    name, wrong = shown(facts["name"]), facts["wrong"]
    of = "" if facts["sample"] == 100 else f" in a sample of {facts['sample']:g} %"
    found = f"{count(wrong, 'problem')} found{of}" if wrong else f"no problem found{of}"
    click.echo(f"{name}: {found}{':' if wrong else '.'}")
    click.echo("\n".join(columns([_cloud(cloud) for cloud in facts["clouds"]])))
    if wrong:
        rows = [
            [
                click.style(one["kind"], fg="red"),
                shown(one["cloud"]),
                shown(one["what"]),
                "the cloud keeps it as it was" if one.get("older") else "",
            ]
            for one in facts["problems"]
        ]
        click.echo("\n".join(columns(rows)))
        if wrong > len(rows):
            click.echo(f"  and {wrong - len(rows):,} more")
        kept = " and what clouds keep of earlier versions" if facts.get("older") else ""
        click.echo(f"hybrisfs repair puts them right from what the other clouds hold{kept}.")
    unnamed = _unnamed(facts)
    if unnamed is not None:
        click.echo(unnamed)


def _cloud(cloud: dict[str, Any]) -> list[str]:
    bad = [f"{cloud[kind]:,} {kind}" for kind in ("missing", "stale", "corrupt", "unreadable") if cloud[kind]]
    return [shown(cloud["name"]), f"{count(cloud['checked'], 'object')} read", ", ".join(bad) or "all right"]


def _unnamed(facts: dict[str, Any]) -> str | None:
    """What is on the clouds of values that no key names, which is no damage."""
    values = facts.get("values") or {}
    unnamed, former = values.get("unnamed", 0), values.get("former", 0)
    if not unnamed and not former:
        return None
    option = " --former" if former else ""
    return (
        f"{count(unnamed + former, 'object')} of the key-value store on the clouds, named by no key: "
        f"hybrisfs kv clean{option} {shown(facts['name'])} deletes them."
    )
