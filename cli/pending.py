"""hybrisfs pending: what waits for the clouds, why, and how long yet?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import click

from cli.arguments import complete_places, place_unless_volume
from cli.output import columns, json_option, pending_work, print_json, shown, size
from cli.transfers import describe_hold
from cli.usage import command, volume_option
from hybrisfs.api.request import message_of
from hybrisfs.api.status import Pending, PendingFile, PendingRequest, StatusRequest, VolumeStatus
from hybrisfs.client import Client, judge

_SPANS: Final = ((86400, "days"), (3600, "hours"), (60, "minutes"))


@command(epilog="\b\nExamples:\n  hybrisfs pending\n  hybrisfs pending ~/HybrisFS/Videos --limit 5")
@click.argument("place", required=False, metavar="[NAME|PATH]", shell_complete=complete_places)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many to list."
)
@volume_option
@json_option
def pending(place: str | None, limit: int, name: str | None, as_json: bool) -> None:
    """List which files wait for the clouds: since when, how much of each, why, and how long that may take.

    NAME is a volume. With PATH, only what is in that folder. What has waited longest comes first. The time is
    a guess: what the clouds took in the last minute may not be what they take in the next, and much may be
    there already.
    """
    with Client.connect() as client:
        inside = ""
        if place is not None:
            found = place_unless_volume(client, place)
            volume, inside = found if found is not None else (place, "")
            if name not in (None, volume):
                raise click.UsageError(f"{shown(place)} is in the volume {shown(volume)}")
            name = volume
        facts = client.call(PendingRequest(name, inside or None, limit))
        if as_json:
            print_json(message_of(facts))
            return
        [state] = client.call(StatusRequest(facts.name, without_look=True)).volumes
    if not facts.total:
        click.echo("Nothing waits: the clouds have all of it.")
        return
    for line in describe(facts, state if isinstance(state, VolumeStatus) else None):
        click.echo(line)


def describe(facts: Pending, volume: VolumeStatus | None) -> Iterator[str]:
    """Lines for a terminal; *volume* is None when it cannot be used."""
    waits = "waits" if facts.total == 1 else "wait"
    yield f"{pending_work(facts.total, facts.bytes)} {waits}{_why(facts, volume)}"
    yield from columns([_row(one, time.time()) for one in facts.files])
    more = facts.total - len(facts.files)
    if more:
        yield f"  and {more:,} more: --limit {min(facts.total, 1000)} lists them"


def _why(facts: Pending, volume: VolumeStatus | None) -> str:
    """What keeps them, or how long it takes: the rest of a sentence, or another one."""
    if volume is not None:
        verdict, hold = judge(volume), describe_hold(volume.transfers)
        if hold is not None:
            return f". {hold}"
        if verdict.level == "removed":
            return ": this machine was removed from the volume, and no other takes its changes."
        if verdict.working < verdict.needed:
            return f": {verdict.needed} clouds are needed, {verdict.working} of {len(volume.clouds)} work."
    limit = volume.transfers.up.rate if volume is not None else None
    limited = f", limited to {size(limit)}/s" if limit is not None else ""
    if facts.seconds is None:
        return f": {'it is' if facts.total == 1 else 'they are'} about to go{limited}."
    speed = f", at {size(round(facts.rate))}/s to all clouds together" if facts.rate else ""
    return f": about {_span(facts.seconds)} to go{speed}{limited}."


def _row(file: PendingFile, now: float) -> list[str]:
    waited = _span(now - file.since) if file.since is not None else ""
    what = size(file.bytes) if file.bytes else "name or attributes"
    where = "(removed)" if file.path is None else shown(file.path) if file.path else "(the folder itself)"
    return [what, waited, f"{where}{'  open in a program' if file.is_open else ''}"]


def _span(seconds: float) -> str:
    """A time in its largest unit: "3 minutes"."""
    for length, unit in _SPANS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
