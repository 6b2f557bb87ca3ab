"""hybrisfs cache drop"""

from __future__ import annotations

import click

from cli.output import json_option, show, shown, size
from cli.volume_name import complete_volumes
from hybrisfs.api.maintenance import CacheDropRequest, Dropped
from hybrisfs.client import Client


@click.group()
def cache() -> None:
    """Manage the local copies of what the clouds hold."""


@cache.command(epilog="\b\nExample:\n  hybrisfs cache drop photos")
@click.argument("name", required=False, shell_complete=complete_volumes)
@json_option
def drop(name: str | None, as_json: bool) -> None:
    """Forget every cached byte of the volume NAME that the clouds hold.

    What is pinned or not on the clouds yet is kept. NAME can be left out when there is one volume.
    """
    with Client.connect() as client:
        facts = client.call(CacheDropRequest(name))
    show(facts, as_json, _describe)


def _describe(facts: Dropped) -> list[str]:
    kept = facts.kept_bytes
    rest = f" Kept {size(kept)} that are in use, pinned, or not on the clouds yet." if kept else ""
    return [f"{shown(facts.name)}: freed {size(facts.freed_bytes)}.{rest}"]
