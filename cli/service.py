"""hybrisfs service"""

from __future__ import annotations

import click

from cli.output import columns, json_option, print_json, shown
from hybrisfs.client import Message, install_service, remove_service, service_status


@click.group(epilog="\b\nExample:\n  hybrisfs service install")
def service() -> None:
    """Have systemd run the daemon: started at login, and again when it dies, ended in good order."""


@service.command(epilog="\b\nExample:\n  hybrisfs service install")
def install() -> None:
    """Install, enable and start the service; what is mounted is unmounted and mounted again.

    Running it again, as after a move of the program, does no harm.
    """
    facts = install_service()
    click.echo("The service is installed and runs; it starts whenever you log in.")
    if not facts["linger"]:
        click.echo("\n".join(_linger()))


@service.command(epilog="\b\nExample:\n  hybrisfs service remove")
def remove() -> None:
    """Stop and remove the service; volumes and all that is in them stay.

    From then on commands start the daemon when they need it.
    """
    kept, removed = remove_service()
    for path in removed:
        click.echo(f"Removed {shown(path)}.")
    click.echo(f"The service is not there any more. Volumes and keys stay in {shown(kept)}.")
    click.echo(
        "Folders that were mounted stay locked until the next hybrisfs command; hybrisfs umount opens them."
    )


@service.command(epilog="\b\nExamples:\n  hybrisfs service status\n  hybrisfs service status --json")
@json_option
def status(as_json: bool) -> int:
    """Show whether the service is installed and runs, and whether it runs while you are logged out.

    The exit code is 1 when it is not installed or does not run.
    """
    facts = service_status()
    if as_json:
        print_json(facts)
    else:
        _explain(facts)
    return 0 if facts["state"] == "active" else 1


def _explain(facts: Message) -> None:
    if not facts["manager"]:
        click.echo("systemd does not answer for this user (after su? log in directly).")
    if not facts["installed"]:
        click.echo("The service is not installed; hybrisfs service install does it.")
        return
    process = f", process {facts['pid']}" if facts["pid"] else ""
    rows = [
        ["state", f"{facts['state']}{process}"],
        ["starts at login", "yes" if facts["enabled"] else "no; hybrisfs service install"],
        ["runs without login", "yes" if facts["linger"] else "no"],
    ]
    click.echo("\n".join(columns(rows, indent="")))
    if not facts["current"]:
        click.echo("It runs another installation or other folders; hybrisfs service install changes that.")
    if facts["state"] == "failed":
        click.echo("journalctl --user -u hybrisfs -n 50 says why it failed.")
    if not facts["linger"]:
        click.echo("\n".join(_linger()))


def _linger() -> list[str]:
    return [
        "It ends when you log out for the last time. To have it run from boot on, without a login:",
        "  loginctl enable-linger",
    ]
