"""hybrisfs evict"""

from __future__ import annotations

from collections.abc import Iterator

import click

from cli.output import json_option, show, shown, size
from cli.paths import absolute, complete_files
from hybrisfs.api.content import EvictedPath, EvictedPaths, EvictRequest
from hybrisfs.client import Client


@click.command(epilog="\b\nExample:\n  hybrisfs evict ~/HybrisFS/Videos")
@click.argument("paths", shell_complete=complete_files, metavar="PATH...", nargs=-1, required=True)
@json_option
def evict(paths: tuple[str, ...], as_json: bool) -> None:
    """Free the disk space of files and folders whose content the clouds hold.

    They stay visible, and are fetched again when they are read. What is pinned or not on the clouds
    yet is kept.
    """
    with Client.connect() as client:
        facts = client.call(EvictRequest(absolute(paths)))
    show(facts, as_json, _describe)


def _describe(facts: EvictedPaths) -> Iterator[str]:
    for one in facts.paths:
        yield f"{shown(one.path)}: freed {size(one.freed_bytes)}.{_kept(one)}"


def _kept(one: EvictedPath) -> str:
    parts = []
    if one.pinned_bytes:
        parts.append(f"{size(one.pinned_bytes)} that are pinned")
    if one.pending_bytes:
        parts.append(f"{size(one.pending_bytes)} that are not on the clouds yet")
    return f" Kept {' and '.join(parts)}." if parts else ""
