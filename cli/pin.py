"""hybrisfs pin"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from cli.output import columns, count, json_option, show, shown, size
from cli.paths import absolute, complete_files
from cli.progress import progress_bar
from hybrisfs.api.content import PinListRequest, PinnedPath, PinnedPaths, PinRequest, Pins
from hybrisfs.client import Client

_TIMED_OUT: Final = 3


@click.command(epilog="\b\nExample:\n  hybrisfs pin --wait ~/HybrisFS/Music")
@click.argument("paths", shell_complete=complete_files, metavar="[PATH]...", nargs=-1)
@click.option("--wait", is_flag=True, help="Return when all of it is on this machine.")
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0),
    help="With --wait: give up after S seconds, exit code 3; the rest still comes.",
)
@json_option
def pin(paths: tuple[str, ...], wait: bool, timeout: float | None, as_json: bool) -> int:
    """Keep files and folders on this machine, with all that is in them and comes into them later.

    What is not here yet is fetched in the background, and nothing of it is evicted until it is unpinned.
    Without PATH, lists what is pinned.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    if not paths:
        _list(as_json)
        return 0
    asked = PinRequest(absolute(paths), wait, timeout)
    with Client.connect() as client, progress_bar("bytes") as bar:
        facts = client.call(asked, lambda step: bar("fetching", step.done, step.total))
    show(facts, as_json, _describe)
    if wait and not facts.done and not as_json:
        why = f": {shown(facts.problem)}" if facts.problem else ""
        click.echo(f"Not all of it is here yet{why}; it still comes in the background.", err=True)
    return _TIMED_OUT if wait and not facts.done else 0


def _describe(facts: PinnedPaths) -> Iterator[str]:
    for one in facts.paths:
        what = f"{count(one.files, 'file')}, {size(one.bytes)}"
        yield f"{shown(one.path)} is pinned: {what}{_missing(one, facts.done)}."


def _missing(one: PinnedPath, done: bool) -> str:
    if done or not one.missing_bytes:
        return ""
    return f", of which {size(one.missing_bytes)} are being fetched"


def _list(as_json: bool) -> None:
    with Client.connect() as client:
        facts = client.call(PinListRequest())
    show(facts, as_json, _table)


def _table(facts: Pins) -> list[str]:
    if not facts.pins:
        return ["Nothing is pinned."]
    rows = [["PATH", "FILES", "SIZE", "MISSING"]]
    for one in facts.pins:
        where = one.path or f"{one.inside} in {one.volume}"
        rows.append([shown(where), f"{one.files:,}", size(one.bytes), size(one.missing_bytes)])
    return columns(rows, indent="")
