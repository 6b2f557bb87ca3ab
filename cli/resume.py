"""hybrisfs resume"""

from __future__ import annotations

import click

from cli.output import json_option, show, shown
from cli.transfers import describe_hold
from cli.volume_name import complete_volumes
from hybrisfs.api.transfers import ResumeRequest
from hybrisfs.client import Client


@click.command(epilog="\b\nExample:\n  hybrisfs resume photos")
@click.argument("name", required=False, shell_complete=complete_volumes)
@json_option
def resume(name: str | None, as_json: bool) -> None:
    """Let transfers between this machine and the clouds of the volume NAME go on after a pause.

    NAME can be left out when there is one volume.
    """
    with Client.connect() as client:
        facts = client.call(ResumeRequest(name=name))
    show(facts, as_json, lambda facts: [f"{shown(facts.name)}: {describe_hold(facts) or 'Transfers go on.'}"])
