"""hybrisfs recovery make, show, remove, and hybrisfs recover"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

import click
from msgspec import UNSET

from cli import output
from cli.output import columns, json_option, moment, progress_bar, shown
from cli.secrets import passphrase_file_option, read_passphrase
from cli.usage import Commands, command, volume_argument, volume_option
from hybrisfs.api.maintenance import (
    Kit,
    Kits,
    MadeKit,
    Recovered,
    RecoverRequest,
    RecoveryMakeRequest,
    RecoveryRemoveRequest,
    RecoveryShowRequest,
    RemovedKit,
)
from hybrisfs.client import Client

_HTML: Final = (".html", ".htm")


@click.group(cls=Commands)
def recovery() -> None:
    """Prepare for the loss of all machines.

    A recovery kit is kept on all clouds of a volume. With its passphrase and the accounts of the clouds,
    hybrisfs recover brings the volume back on a new machine, when none of the old ones is left.
    """


@recovery.command(
    epilog="""\b
Examples:
  hybrisfs recovery make --page kit.html
  hybrisfs recovery make photos --passphrase-file secret.txt"""
)
@volume_argument(required=False)
@click.option("--ask", is_flag=True, help="Ask for a passphrase of your own instead of drawing one.")
@passphrase_file_option
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page to be printed, without the passphrase: HTML if it is named so, else text.",
)
@json_option
def make(name: str | None, ask: bool, file: TextIO | None, page: Path | None, as_json: bool) -> None:
    """Make a recovery kit for the volume NAME.

    Its passphrase is drawn at random and shown once. Write it down and keep it away from the machines.
    Clouds that cannot be reached now get the kit later.
    """
    passphrase = read_passphrase(file, twice=True) if ask or file is not None else None
    kit, pages = make_kit(name, passphrase)
    output.show(kit, as_json, describe_kit)
    if page is not None:
        write_page(page, pages)
        click.echo(f"Print {shown(str(page))} and write the passphrase on it.", err=True)


def make_kit(name: str | None, passphrase: str | None) -> tuple[MadeKit, dict[str, str]]:
    """A new kit, with a drawn passphrase if none is given, and pages to be printed by format."""
    with Client.connect() as client:
        kit = client.call(RecoveryMakeRequest(name, passphrase))
    pages, kit.pages = kit.pages or {}, UNSET
    return kit, pages


def describe_kit(kit: MadeKit) -> Iterator[str]:
    """A new kit's passphrase, and which clouds have the kit."""
    yield f"Recovery kit {kit.kit[:8]} of the volume {shown(kit.name)}."
    if kit.passphrase is not UNSET:
        yield "\nIts passphrase, which is shown this once:\n"
        yield f"  {click.style(kit.passphrase, bold=True)}\n"
        yield f"It is as hard to guess as a random number of {kit.bits} bits."
    yield from _where(kit)


def write_page(page: Path, pages: dict[str, str]) -> None:
    """Write the page to be printed: HTML if it is named so, else text. Raises ClickException."""
    _write(page, pages["html" if page.suffix.lower() in _HTML else "text"])


def _write(path: Path, text: str) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"The page was not written, the kit was made: {error}") from error


def _where(kit: Kit) -> Iterator[str]:
    lacking = [one for one in kit.clouds if one.state != "complete"]
    if not lacking:
        yield "All clouds have the kit."
        return
    names = ", ".join(
        shown(one.name) + ("" if one.state == "unknown" else f" ({one.state})") for one in lacking
    )
    yield f"These clouds do not have the kit yet, and get it when they can be reached: {names}."
    yield "hybrisfs recovery show tells when they have."


@recovery.command(epilog="\b\nExample:\n  hybrisfs recovery show --json")
@volume_argument(required=False)
@json_option
def show(name: str | None, as_json: bool) -> int:
    """Show the recovery kits of the volume NAME, and whether the clouds hold them.

    Exit code 1 when there is none, or a cloud lacks one.
    """
    with Client.connect() as client:
        facts = client.call(RecoveryShowRequest(name))
    output.show(facts, as_json, _describe_kits)
    return 0 if facts.kits and all(kit.complete for kit in facts.kits) else 1


def _describe_kits(facts: Kits) -> Iterator[str]:
    if not facts.kits:
        yield "There is no recovery kit: if all machines are lost, so is the volume."
        yield "Next: hybrisfs recovery make --page kit.html"
        return
    rows = [["KIT", "MADE", "USED", "CLOUD", "STATE"]]
    for kit in facts.kits:
        cells = [kit.kit[:8], moment(kit.created), "yes" if kit.used else "no"]
        for cloud in kit.clouds:
            rows.append([*cells, shown(cloud.name), cloud.state])
            cells = ["", "", ""]
    yield from columns(rows, indent="")
    for kit in facts.kits:
        if kit.made_by:
            yield f"{kit.kit[:8]} was made by {shown(kit.made_by)}."
        if kit.used:
            yield f"A machine was recovered by {kit.kit[:8]}: make a new kit, then remove this one."
        elif kit.unsigned:
            yield (
                f"{kit.kit[:8]} is of an earlier version, and any machine could overwrite it: "
                "make a new kit, then remove this one."
            )


@recovery.command(epilog="\b\nExample:\n  hybrisfs recovery remove 1f0c9a2e")
@click.argument("kit")
@volume_option
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nobody is asked.")
@json_option
def remove(kit: str, name: str | None, yes: bool, as_json: bool) -> None:
    """Make a recovery kit worthless, because its passphrase became known or another kit replaces it.

    KIT is the beginning of its id. It opens nothing that is written from now on; what it has opened before
    may be known to those who have the passphrase.
    """
    if sys.stdin.isatty() and not yes:
        click.confirm(f"Remove the recovery kit {shown(kit)} for good?", abort=True, err=True)
    with Client.connect() as client:
        facts = client.call(RecoveryRemoveRequest(name=name, kit=kit))
    output.show(facts, as_json, _describe_removed)


def _describe_removed(facts: RemovedKit) -> Iterator[str]:
    yield f"The recovery kit {facts.kit[:8]} opens nothing any more that is written from now on."
    if facts.left:
        names = ", ".join(shown(one) for one in facts.left)
        yield f"These clouds may keep it, since they could not be reached: {names}."


# -- hybrisfs recover -----------------------------------------------------------------------------------


@command(
    epilog="""\b
Example:
  hybrisfs recover --cloud s3://bucket/home --cloud file:///mnt/disk/home
  hybrisfs mount home ~/HybrisFS"""
)
@click.option(
    "--cloud", "clouds", metavar="URL", multiple=True, required=True, help="A cloud of the volume; repeat it."
)
@passphrase_file_option
@click.option("--name", "own_name", help="Name of this machine. Default: its host name.")
@click.option("--as", "as_name", metavar="VOLUME", help="Name of the volume here.")
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
    output.show(facts, as_json, _describe)


def _describe(facts: Recovered) -> Iterator[str]:
    name = shown(facts.volume.name)
    yield f"This machine belongs to the volume {name} now."
    for url in facts.missing:
        yield f"Not reached: {shown(url)}"
    if not facts.agreed:
        yield "Too few clouds have the same recovery kit: compare what you find with what you expect."
    elif facts.few_named is not UNSET:
        yield (
            f"Fewer than {facts.volume.f + 1} of the clouds that you named have this recovery kit. Only the "
            "kit says that the other clouds belong to the volume: look whether the files are those that you "
            "expect."
        )
    yield f"Next: hybrisfs mount {name} DIR"
    yield "Then: hybrisfs recovery make, and remove the kit that was used (hybrisfs recovery show)."
    yield "Machines that are lost for good: hybrisfs device list, hybrisfs device remove NAME."
