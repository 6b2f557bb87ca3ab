"""hybrisfs mount"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click

from cli.output import shown
from hybrisfs.client import Client


@click.command(epilog="\b\nExample:\n  hybrisfs mount photos ~/Photos")
@click.argument("name")
@click.argument("directory", metavar="DIR")
@click.option("--foreground", is_flag=True, help="Stay until it is unmounted; Ctrl-C or SIGTERM unmounts it.")
@click.option("--allow-other", is_flag=True, help="Let other users see the folder, too.")
def mount(name: str, directory: str, foreground: bool, allow_other: bool) -> None:
    """Mount the volume NAME at the folder DIR, which must be empty and is made if need be.

    Starts the daemon if it does not run. The volume is mounted again whenever the daemon starts, until
    it is unmounted with `hybrisfs umount`.
    """
    place = str(Path(directory).absolute())
    with Client.connect() as client:
        facts = client.call("mount", {"name": name, "directory": place, "allow_other": allow_other})
        verb = "Mounted" if facts["mounted"] else "Already mounted:"
        click.echo(f"{verb} {shown(facts['name'])} at {shown(facts['mountpoint'])}.")
        if foreground:
            _stay(client, facts["name"], facts["mountpoint"])


def _stay(client: Client, name: str, mountpoint: str) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        client.call("wait unmounted", {"name": name})
    except KeyboardInterrupt:
        with Client.connect(start=False) as fresh:
            fresh.call("umount", {"target": name, "directory": mountpoint, "lazy": False})
    click.echo(f"Unmounted {shown(name)}.")


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
