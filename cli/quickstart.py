"""hybrisfs quickstart"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from cli.output import columns, json_option, print_json, quoted, shown
from cli.paths import complete_directories
from hybrisfs.api.volumes import QuickstartRequest, Started
from hybrisfs.client import Client


@click.command(epilog="\b\nExample:\n  hybrisfs quickstart ~/HybrisFS")
@click.argument("directory", shell_complete=complete_directories, metavar="[DIR]", required=False)
@json_option
def quickstart(directory: str | None, as_json: bool) -> None:
    """Set up the volume "home" over three local folders that play the clouds, and mount it at DIR.

    DIR is ~/HybrisFS unless given. Running it again does no harm: it does what is still to be done.
    """
    place = str(Path(directory).absolute()) if directory else None
    with Client.connect() as client:
        facts = client.call(QuickstartRequest(place))
    if as_json:
        print_json(facts)
    else:
        _explain(facts)


def _explain(facts: Started) -> None:
    volume, mountpoint = facts.volume, facts.mountpoint or ""
    folders = [unquote(urlsplit(cloud.url).path, errors="surrogateescape") for cloud in volume.clouds]
    made = "Created the volume" if facts.created else "There is the volume"
    click.echo(f"{made} {volume.name}. These folders play its clouds, any {volume.f} of which may fail:")
    for folder in folders:
        click.echo(f"  {shown(folder)}")
    click.echo(f"{'Mounted it' if facts.mounted else 'It is mounted'} at {shown(mountpoint)}.")
    copy = quoted(f"{mountpoint}/os-release")
    _suggest(
        "Try next:",
        [
            (f"cp /etc/os-release {quoted(mountpoint)}", "use it like any folder"),
            ("hybrisfs status", "is everything safe?"),
            ("hybrisfs sync --wait", "wait until it is"),
        ],
    )
    _suggest(
        "Then lose a cloud, forget what is kept here, and read it back:",
        [
            (f"mv {quoted(folders[0])} {quoted(folders[0] + '.lost')}", ""),
            ("hybrisfs cache drop", ""),
            (f"cmp /etc/os-release {copy} && hybrisfs status", ""),
        ],
    )


def _suggest(title: str, commands: list[tuple[str, str]]) -> None:
    click.echo(f"\n{title}")
    rows = [[command, f"# {remark}" if remark else ""] for command, remark in commands]
    click.echo("\n".join(columns(rows)))
