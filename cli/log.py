"""hybrisfs log"""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from cli.output import columns, json_option, show, shown
from cli.paths import absolute, complete_files
from cli.volume_name import complete_volumes
from hybrisfs.api.versions import Changes, LogRequest
from hybrisfs.client import Client

_LIMIT = 50
_MOST = 1000


@click.command(
    epilog="\b\nExamples:\n  hybrisfs log ~/HybrisFS/notes.txt\n  hybrisfs log Documents --volume home"
)
@click.argument("path", shell_complete=complete_files)
@click.option(
    "--volume",
    "name",
    metavar="NAME",
    help="PATH is relative to the folder of this volume, mounted or not.",
    shell_complete=complete_volumes,
)
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=_LIMIT, show_default=True, help="The last ones."
)
@json_option
def log(path: str, name: str | None, limit: int, as_json: bool) -> None:
    """Show who changed the file or folder PATH, and when: made, named, content, mode, owner, removed.

    It need not be there any more. What versions are no longer kept of is not shown.
    """
    where = path if name is not None else absolute((path,))[0]
    with Client.connect() as client:
        facts = client.call(LogRequest(name=name, path=where, limit=limit))
    show(facts, as_json, _describe)


def _describe(facts: Changes) -> Iterator[str]:
    rows = [[_time(one.time), shown(one.device), "; ".join(map(shown, one.what))] for one in facts.changes]
    yield from columns(rows, indent="")
    if facts.more:
        yield "There is more: --limit shows it."
    if facts.known_since is not None:
        yield f"What was before {_time(facts.known_since)}, this machine does not know."


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
