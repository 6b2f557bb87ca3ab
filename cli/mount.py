"""hybrisfs mount"""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

import click

from cli.output import shown
from cli.paths import complete_directories
from cli.volume_name import complete_volumes
from hybrisfs.api.mounts import MountRequest, UmountRequest, WaitUnmountedRequest
from hybrisfs.client import Client


@click.command(epilog="\b\nExample:\n  hybrisfs mount photos ~/Photos")
@click.argument("name", shell_complete=complete_volumes)
@click.argument("directory", shell_complete=complete_directories, metavar="DIR")
@click.option("--foreground", is_flag=True, help="Stay until it is unmounted; Ctrl-C or SIGTERM unmounts it.")
@click.option("--allow-other", is_flag=True, help="Let other users see the folder, too.")
def mount(name: str, directory: str, foreground: bool, allow_other: bool) -> None:
    """Mount the volume NAME at the folder DIR, which must be empty and is made if need be.

    Starts the daemon if it does not run. The volume is mounted again whenever the daemon starts, until
    it is unmounted with `hybrisfs umount`.
    """
    asked = MountRequest(name, str(Path(directory).absolute()), allow_other)
    if foreground:
        _mount_and_stay(asked)
    else:
        with Client.connect() as client:
            _mount(client, asked)


def _mount(client: Client, asked: MountRequest) -> None:
    facts = client.call(asked)
    verb = "Mounted" if facts.mounted else "Already mounted:"
    click.echo(f"{verb} {shown(facts.name)} at {shown(facts.mountpoint)}.")


def _mount_and_stay(asked: MountRequest) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with Client.connect() as client:
            _mount(client, asked)
            client.call(WaitUnmountedRequest(asked.name))
    except KeyboardInterrupt:
        with Client.connect(start=False) as client:
            client.call(UmountRequest(asked.name, asked.directory))
    click.echo(f"Unmounted {shown(asked.name)}.")


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt
