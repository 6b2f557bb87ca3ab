"""hybrisfs sync"""

from __future__ import annotations

from typing import Final

import click

from cli.output import describe_machines_only, json_option, pending_work, print_json, shown
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.api.status import Synced, SyncRequest
from hybrisfs.client import Client, machines_only

_TIMED_OUT: Final = 3


@click.command(epilog="\b\nExample:\n  hybrisfs sync --wait --timeout 600 && poweroff")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option("--wait", is_flag=True, help="Return when all that was written before is safe on the clouds.")
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0),
    help="With --wait: give up after S seconds, exit code 3.",
)
@json_option
def sync(name: str | None, wait: bool, timeout: float | None, as_json: bool) -> int:
    """Bring all that is pending in the volume NAME to the clouds.

    Without --wait, starts that now and says what is pending. NAME can be left out when there is one volume.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    with Client.connect() as client, progress_bar("bytes") as show:
        facts = client.call(
            SyncRequest(name=name, wait=wait, timeout=timeout),
            lambda step: show("uploading", step.done, step.total),
        )
    if as_json:
        print_json(facts)
    else:
        _explain(facts, wait, timeout)
    return _TIMED_OUT if wait and not facts.done else 0


def _explain(facts: Synced, wait: bool, timeout: float | None) -> None:
    name = shown(facts.name)
    if facts.done:
        click.echo(f"{name}: everything is safe on the clouds.")
        return
    elsewhere = machines_only(facts.machines_only)
    mine = elsewhere is None or facts.pending_files or facts.pending_bytes
    pending = pending_work(facts.pending_files, facts.pending_bytes)
    if not wait:
        if mine:
            click.echo(f"{name}: {pending} on the way to the clouds; hybrisfs sync --wait waits for them.")
        if elsewhere is not None:
            click.echo(f"{name}: {describe_machines_only(elsewhere)}")
        return
    if mine:
        click.echo(f"{name}: {pending} still pending after {timeout:g} s; the upload goes on.", err=True)
    if elsewhere is not None:
        click.echo(f"{name}: after {timeout:g} s {describe_machines_only(elsewhere)}", err=True)
    for cloud in facts.clouds:
        if cloud.state != "ok":
            reason = f": {shown(cloud.reason)}" if cloud.reason else ""
            click.echo(f"  {shown(cloud.name)} is {cloud.state}{reason}", err=True)
