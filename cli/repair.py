"""hybrisfs repair"""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.output import columns, count, json_option, show, shown
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.api.maintenance import RepairedCloud, RepairedVolume, RepairRequest
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
    with Client.connect() as client, progress_bar("things") as bar:
        facts = client.call(
            RepairRequest(name),
            lambda step: bar(shown(step.stage), step.done, step.total),
        )
    show(facts, as_json, _describe)
    return 1 if facts.failed else 0


def _describe(facts: RepairedVolume) -> Iterator[str]:
    name, repaired, failed = shown(facts.name), facts.repaired, facts.failed
    if not repaired and not failed:
        yield f"{name}: nothing was wrong."
        return
    yield f"{name}: {count(repaired, 'object')} repaired, {failed:,} not:"
    yield from columns([[shown(cloud.name), _cloud(cloud)] for cloud in facts.clouds])
    rows = [[shown(one.cloud), shown(one.what), shown(one.why)] for one in facts.problems]
    if rows:
        yield "Not repaired:"
        yield from columns(rows)
        if failed > len(rows):
            yield f"  and {failed - len(rows):,} more"


def _cloud(cloud: RepairedCloud) -> str:
    parts = [f"{cloud.repaired:,} repaired"] if cloud.repaired else []
    parts += [f"{cloud.moved:,} moved to other clouds"] if cloud.moved else []
    parts += [f"{cloud.failed:,} not repaired"] if cloud.failed else []
    return ", ".join(parts) or "nothing was wrong"
