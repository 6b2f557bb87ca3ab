"""hybrisfs umount"""

from __future__ import annotations

import os
from pathlib import Path

import click

from cli.output import shown
from cli.volume_name import complete_mounts
from hybrisfs.api.mounts import UmountRequest
from hybrisfs.client import Client, NotRunningError, umount_without_daemon


@click.command(epilog="\b\nExamples:\n  hybrisfs umount photos\n  hybrisfs umount ~/Photos")
@click.argument("target", metavar="NAME|DIR", shell_complete=complete_mounts)
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
