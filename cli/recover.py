"""hybrisfs recover"""

from __future__ import annotations

from typing import TextIO

import click

from cli.output import json_option, print_json, shown
from cli.passphrase import passphrase_file_option, read_passphrase
from cli.progress import progress_bar
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
    arguments = {
        "clouds": list(clouds),
        "passphrase": read_passphrase(file),
        "own_name": own_name,
        "as_name": as_name,
        "incomplete": incomplete,
    }
    with Client.connect() as client, progress_bar("steps") as show:
        facts = client.exchange("recover", arguments, lambda said: show(said["doing"], 0, 0))
    if as_json:
        print_json(facts)
        return
    name = shown(facts["volume"]["name"])
    click.echo(f"This machine belongs to the volume {name} now.")
    for url in facts["missing"]:
        click.echo(f"Not reached: {shown(url)}")
    if not facts["agreed"]:
        click.echo("Too few clouds have the same recovery kit: compare what you find with what you expect.")
    click.echo(f"Next: hybrisfs mount {name} DIR")
    click.echo("Then: hybrisfs recovery make, and remove the kit that was used (hybrisfs recovery show).")
    click.echo("Machines that are lost for good: hybrisfs device list, hybrisfs device remove NAME.")
