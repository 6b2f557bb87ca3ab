"""hybrisfs unpin"""

from __future__ import annotations

import click

from cli.output import json_option, show, shown
from cli.paths import absolute, complete_files
from hybrisfs.api.content import UnpinRequest
from hybrisfs.client import Client


@click.command(epilog="\b\nExample:\n  hybrisfs unpin ~/HybrisFS/Music")
@click.argument("paths", shell_complete=complete_files, metavar="PATH...", nargs=-1, required=True)
@json_option
def unpin(paths: tuple[str, ...], as_json: bool) -> None:
    """Let pinned files and folders be evicted again when room is needed.

    Nothing is evicted by that: see hybrisfs evict.
    """
    with Client.connect() as client:
        facts = client.call(UnpinRequest(absolute(paths)))
    show(facts, as_json, lambda done: [f"{shown(one.path)} is not pinned any more." for one in done.paths])
