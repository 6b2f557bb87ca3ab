"""hybrisfs daemon, service, doctor: the daemon on this machine."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cli.output import columns, json_option, print_json, shown
from cli.usage import Commands, command
from hybrisfs.client import (
    Message,
    NotRunningError,
    examine,
    install_service,
    remove_service,
    serve,
    service_status,
    stop_daemon,
)


@command(epilog="\b\nExamples:\n  hybrisfs daemon\n  hybrisfs daemon --stop")
@click.option("--stop", is_flag=True, help="Unmount everything and end the daemon that runs.")
def daemon(stop: bool) -> int:
    """Run the daemon in the foreground until SIGTERM or Ctrl-C; it then unmounts everything and ends.

    This is what a service manager runs. Other commands start a daemon in the background when there is none.
    """
    if not stop:
        return serve()
    try:
        stop_daemon()
    except NotRunningError:
        click.echo("The daemon was not running.")
    else:
        click.echo("The daemon has ended. What was mounted is mounted again when it next starts.")
    return 0


# -- hybrisfs service -----------------------------------------------------------------------------------


@click.group(cls=Commands, epilog="\b\nExample:\n  hybrisfs service install")
def service() -> None:
    """Have systemd run the daemon: started at login, and again when it dies, ended cleanly."""


@service.command(epilog="\b\nExample:\n  hybrisfs service install")
def install() -> None:
    """Install, enable and start the service; what is mounted is unmounted and mounted again.

    It is safe to run again, as after a move of the program.
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
        _explain_service(facts)
    return 0 if facts["state"] == "active" else 1


def _explain_service(facts: Message) -> None:
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


# -- hybrisfs doctor ------------------------------------------------------------------------------------


_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


@command(epilog="\b\nExamples:\n  hybrisfs doctor\n  hybrisfs doctor --json")
@json_option
def doctor(as_json: bool) -> int:
    """Examine this machine: FUSE, disk, limits, clock, daemon, mounts and clouds; changes nothing.

    Needs no daemon. Each result is "ok", "warn" (it works, but look at it) or "bad"; the exit code is 1 when
    anything is bad.
    """
    findings = examine()
    if as_json:
        print_json({"checks": findings})
    else:
        _explain_findings(findings)
    return 1 if any(finding["result"] == "bad" for finding in findings) else 0


def _explain_findings(findings: Sequence[Message]) -> None:
    rows = [
        [click.style(one["result"], fg=_COLOURS[one["result"]]), one["check"], shown(one["what"])]
        for one in findings
    ]
    for line, finding in zip(columns(rows, indent=""), findings, strict=True):
        click.echo(line)
        if finding["advice"]:
            click.echo(f"      {shown(finding['advice'])}")
