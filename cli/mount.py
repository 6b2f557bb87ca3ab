"""hybrisfs mount, umount"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import FrameType

import click

from cli.arguments import complete_directories, complete_mounts
from cli.output import shown
from cli.usage import command, volume_argument
from hybrisfs.api.volumes import MountRequest, UmountRequest, WaitUnmountedRequest
from hybrisfs.client import Client, NotRunningError, umount_without_daemon


@command(epilog="\b\nExample:\n  hybrisfs mount photos ~/Photos")
@volume_argument()
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


# -- hybrisfs umount ------------------------------------------------------------------------------------


@command(epilog="\b\nExamples:\n  hybrisfs umount photos\n  hybrisfs umount ~/Photos")
@volume_argument("target", metavar="NAME|DIR", complete=complete_mounts)
@click.option(
    "--lazy", is_flag=True, help="Unmount even while programs use it; they keep it until they are done."
)
def umount(target: str, lazy: bool) -> None:
    """Unmount a volume, named by its name or by the folder where it is mounted.

    What is not on the clouds yet goes on being uploaded.
    """
    try:
        client = Client.connect(start=False)
    except NotRunningError:
        done = umount_without_daemon(target)
        if done is not None:
            _explain_without_daemon(*done)
            return
        client = Client.connect()
    with client:
        place = str(Path(target).absolute())
        os.chdir("/")  # this program is not to be among those that keep the volume from being unmounted
        facts = client.call(UmountRequest(target, place, lazy))
    where = shown(facts.mountpoint)
    if facts.missing:
        click.echo(f"{shown(facts.name or '')} was not mounted; it will not be mounted at {where} again.")
    elif facts.stale:
        click.echo(f"Removed the mount that a dead daemon left behind at {where}.")
    else:
        click.echo(f"Unmounted {shown(facts.name or '')} from {where}.")


def _explain_without_daemon(directory: Path, stale: bool) -> None:
    where = shown(str(directory))
    if stale:
        click.echo(f"The daemon was dead; removed the mount that it left behind at {where}.")
    else:
        click.echo(f"The daemon is not running; {where} will not be mounted again.")
