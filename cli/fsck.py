"""hybrisfs fsck"""

from __future__ import annotations

from typing import Any

import click

from cli.output import columns, count, json_option, print_json, shown
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.client import Client


@click.command(epilog="\b\nExamples:\n  hybrisfs fsck\n  hybrisfs fsck photos --clouds")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option(
    "--clouds", is_flag=True, help="Read and verify every object on every cloud, too: takes time and traffic."
)
@json_option
def fsck(name: str | None, clouds: bool, as_json: bool) -> int:
    """Verify the database, the log and the cache of the volume NAME; changes nothing.

    Says what is wrong where; the exit code is 1 when anything is. NAME can be left out when there is one
    volume. Programs can go on using the volume meanwhile.
    """
    with Client.connect() as client, progress_bar("things") as show:
        facts = client.call(
            "fsck",
            {"name": name, "clouds": clouds},
            lambda step: show(shown(step["stage"]), step["done"], step["total"]),
        )
    if as_json:
        print_json(facts)
    else:
        _explain(facts, clouds)
    return 1 if facts["problems"] else 0


def _explain(facts: dict[str, Any], clouds: bool) -> None:
    name, problems = shown(facts["name"]), facts["problems"]
    checked = ", ".join(f"{what}: {number:,}" for what, number in facts["checked"].items())
    if not problems:
        rest = "" if clouds else " --clouds checks the clouds, too."
        click.echo(f"{name}: no problem found ({checked}).{rest}")
        return
    click.echo(f"{name}: {count(len(problems), 'problem')} found ({checked}):")
    rows = [
        [
            click.style(problem["severity"], fg="red" if problem["severity"] == "error" else "yellow"),
            shown(problem["where"]),
            shown(problem["what"]),
        ]
        for problem in problems
    ]
    click.echo("\n".join(columns(rows)))
