"""hybrisfs recover"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO

import click

from cli.output import json_option, show, shown
from cli.passphrase import passphrase_file_option, read_passphrase
from cli.progress import progress_bar
from hybrisfs.api.recovery import Recovered, RecoverRequest
from hybrisfs.client import Client


@click.command(
    epilog="""\b
Example:
  hybrisfs recover --cloud s3://bucket/home --cloud file:///mnt/disk/home
  hybrisfs mount home ~/HybrisFS"""
)
@click.option(
    "--cloud", "clouds", metavar="URL", multiple=True, required=True, help="A cloud of the volume; repeat it."
)
@passphrase_file_option
@click.option("--name", "own_name", help="What this machine is to be called. Default: its host name.")
@click.option("--as", "as_name", metavar="VOLUME", help="What the volume is to be called here.")
@click.option(
    "--incomplete",
    is_flag=True,
    help="Go on when more clouds are missing than the volume can do without.",
)
@json_option
def recover(
    clouds: tuple[str, ...],
    file: TextIO | None,
    own_name: str | None,
    as_name: str | None,
    incomplete: bool,
    as_json: bool,
) -> None:
    """Bring a volume back on this machine, from its clouds and the passphrase of a recovery kit.

    One cloud is enough to find the others; name all that you know. Their secrets must be on this machine. It
    becomes a machine of the volume like any other; nothing is deleted anywhere.
    """
    asked = RecoverRequest(
        clouds=list(clouds),
        passphrase=read_passphrase(file),
        own_name=own_name,
        as_name=as_name,
        incomplete=incomplete,
    )
    with Client.connect() as client, progress_bar("steps") as bar:
        facts = client.call(asked, lambda said: bar(said.doing, 0, 0))
    show(facts, as_json, _describe)


def _describe(facts: Recovered) -> Iterator[str]:
    name = shown(facts.volume.name)
    yield f"This machine belongs to the volume {name} now."
    for url in facts.missing:
        yield f"Not reached: {shown(url)}"
    if not facts.agreed:
        yield "Too few clouds have the same recovery kit: compare what you find with what you expect."
    yield f"Next: hybrisfs mount {name} DIR"
    yield "Then: hybrisfs recovery make, and remove the kit that was used (hybrisfs recovery show)."
    yield "Machines that are lost for good: hybrisfs device list, hybrisfs device remove NAME."
