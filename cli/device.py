"""hybrisfs device invite, join, list, proof, check-proof, rename, role, remove, keep"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import click
from msgspec import UNSET

from cli.arguments import complete_devices, complete_directories, mounted_place
from cli.output import columns, count, json_option, moment, print_json, quoted, show, shown
from cli.secrets import passphrase_file_option, read_passphrase
from cli.usage import Commands, volume_argument, volume_option
from hybrisfs.api.devices import (
    Accused,
    Device,
    DeviceAdmittedRequest,
    DeviceCheckProofRequest,
    DeviceConfirmRequest,
    DeviceInviteRequest,
    DeviceJoinRequest,
    DeviceKeepRequest,
    DeviceListRequest,
    DeviceProofRequest,
    DeviceRemoveRequest,
    DeviceRenameRequest,
    DeviceRole,
    DeviceRoleRequest,
    Devices,
    KeptDevice,
    NamedDevice,
    PairingNews,
    Proof,
    Proposal,
    RemovedDevice,
    Role,
)
from hybrisfs.api.volumes import MadeVolume
from hybrisfs.client import Client

_MAX_PROOF = 1 << 19  # bytes
_device_argument = click.argument("device_name", metavar="DEVICE", shell_complete=complete_devices)


@click.group(cls=Commands)
def device() -> None:
    """Let other machines into a volume, and manage them."""


class _Talk:
    """Shows a person where a pairing stands, and passes the answer on by a connection of its own."""

    def __init__(self, *, as_json: bool, yes: bool, greet: Callable[[PairingNews], None]) -> None:
        self._as_json = as_json
        self._ask = sys.stdin.isatty() and not yes
        self._greet = greet
        self._greeted = False
        self._compared = False
        self._answered = False

    def __call__(self, facts: PairingNews) -> None:
        if not self._greeted:
            self._greeted = True
            self._greet(facts)
        if facts.comparison and not self._compared:
            self._compared = True
            if self._as_json:
                print_json({"comparison": facts.comparison})
            else:
                click.echo(f"Comparison string: {click.style(facts.comparison, bold=True)}")
        if facts.question and not self._answered:
            self._answered = True
            self._answer(facts)

    def _answer(self, facts: PairingNews) -> None:
        accept = not self._ask or click.confirm(
            f"Does {shown(facts.device or '')} show the same string?",
            default=False,
            err=True,  # the other output may go to a program
        )
        with Client.connect() as client:
            client.call(DeviceConfirmRequest(facts.pairing, accept))


_ROLES = click.Choice(["full", "contributor", "reader"])

_folders = click.option(
    "--folder",
    "folders",
    metavar="PATH",
    multiple=True,
    shell_complete=complete_directories,
    help="With contributor: the folder that it may change, in the volume; may be given several times.",
)

_yes = click.option(
    "--yes",
    is_flag=True,
    help="Do not ask whether the comparison strings are equal; without a terminal nobody is asked.",
)


@device.command(
    epilog="""\b
Example:
  hybrisfs device invite
  then on the other machine: hybrisfs device join CODE"""
)
@volume_argument(required=False)
@click.option(
    "--valid",
    type=click.IntRange(10, 86400),
    default=900,
    show_default=True,
    help="Seconds that the code is good.",
)
@click.option(
    "--with-credentials",
    is_flag=True,
    help="Hand on the secrets of the clouds, as far as this machine has them.",
)
@click.option(
    "--role",
    type=_ROLES,
    default="full",
    show_default=True,
    help="What it may do: all that this machine may, change what is in some folders, or only read.",
)
@_folders
@_yes
@json_option
def invite(
    name: str | None,
    valid: int,
    with_credentials: bool,
    role: Role,
    folders: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Let another machine into the volume NAME.

    Shows a one-time code, and waits for the machine that is given it. Both then show a short string; they are
    equal unless somebody is in between.

    A reader has all keys, and keeps what is pinned there, but nothing can be changed on it, and no machine
    takes a change from it. A contributor reads everything, too, and changes what is in the folders that are
    named: see hybrisfs device role.
    """
    _check_folders(role, folders)

    def greet(facts: PairingNews) -> None:
        if as_json:
            print_json({"code": facts.code, "expires": facts.expires})
            sys.stdout.flush()
            return
        if sys.stdout.isatty():
            click.echo("\n".join(facts.qr or ()))
        until = time.strftime("%H:%M", time.localtime(facts.expires or 0))
        click.echo(f"On the other machine, before {until}:\n\n  hybrisfs device join {facts.code}\n")

    with Client.connect() as client:
        volume, places = _named_folders(client, name, folders)
        asked = DeviceInviteRequest(volume, valid, with_credentials, role, places or None)
        facts = client.call(asked, _Talk(as_json=as_json, yes=yes, greet=greet))
    only = {"reader": ", and only reads", "contributor": f", and changes only {_these_folders(folders)}"}
    text = f"{shown(facts.device)} belongs to the volume now{only.get(role, '')}."
    show(facts, as_json, lambda _: [text])


@device.command(epilog="\b\nExample:\n  hybrisfs device join hfs1-... --name laptop")
@click.argument("code")
@click.option("--name", "own_name", help="Name of this machine. Default: its host name.")
@click.option("--as", "as_name", metavar="VOLUME", help="Name of the volume here.")
@_yes
@json_option
def join(code: str, own_name: str | None, as_name: str | None, yes: bool, as_json: bool) -> None:
    """Make this machine a device of the volume that CODE invites to.

    Nothing is deleted anywhere by that, here or there.
    """
    asked = DeviceJoinRequest(code, as_name, own_name)
    with Client.connect() as client:
        facts = client.call(asked, _Talk(as_json=as_json, yes=yes, greet=lambda _: None))
    show(facts, as_json, _describe_joined)


def _describe_joined(facts: MadeVolume) -> Iterator[str]:
    name = shown(facts.volume.name)
    yield f"This machine belongs to the volume {name} now."
    yield f"Next: hybrisfs mount {name} DIR"


@device.command("list", epilog="\b\nExample:\n  hybrisfs device list --json")
@volume_argument(required=False)
@json_option
def list_(name: str | None, as_json: bool) -> None:
    """List the machines of the volume NAME, and when each was last seen."""
    with Client.connect() as client:
        facts = client.call(DeviceListRequest(name))
    show(facts, as_json, _table)


def _table(facts: Devices) -> Iterator[str]:
    rows = [["NAME", "ID", "LAST SEEN", "BEHIND", ""]]
    rows += [_row(one) for one in facts.devices]
    yield from columns(rows, indent="")
    yield from map(_trial, facts.accused)


def _trial(one: Accused) -> str:
    """A device about which others vote, in sentences."""
    words = {"keep": "says keep", "suspend": "says suspend", "remove": "says remove"}
    votes = ", ".join(f"{shown(vote.by)} {words[vote.stance]}" for vote in one.votes)
    who = f"{shown(one.name)} ({one.id[:8]})"
    if one.final and any(vote.id == one.id and vote.stance == "remove" for vote in one.votes):
        return f"{who} has left the volume."
    if one.final:
        return f"{who} was removed for good: {votes}."
    if not one.suspended:
        return f"{who} belongs to the volume, although it was accused: {votes}."
    until = "" if one.until is None else f" until {moment(one.until)}"
    keep = f"hybrisfs device keep {one.id[:8]}"
    return f"{who} is suspended: {votes}. {keep} vetoes that{until}; hybrisfs device remove seconds it."


def _row(one: Device) -> list[str]:
    seen = "now" if one.this or one.linked else moment(one.seen)
    behind = "-" if one.lag is UNSET else count(one.lag, "update") if one.lag else "nothing"
    return [shown(one.name), one.id[:8], seen, behind, ", ".join(_remarks(one))]


def _remarks(one: Device) -> Iterator[str]:
    """What there is to be said of a device."""
    if one.this:
        yield "this machine"
    if one.linked:
        through = f" through the relay {shown(one.relay)}" if one.relay else ""
        yield f"linked{through}" + (f" ({round(one.round_trip * 1000)} ms)" if one.round_trip else "")
    if one.reader:
        yield "only reads"
    if one.overstepped:
        yield "signed what it may not"
    if one.suspect:
        yield "changes may be missing"
    if one.folders is not None:
        yield f"changes only {_these_folders(one.folders)}"
    if one.forked:
        yield "forked (restored from a backup)" if one.rejoined else "forked"
    if any(charge.kind != "fork" for charge in one.charges):
        yield "broke a rule: see hybrisfs device proof"
    if one.unanswered_since:
        day = time.strftime("%Y-%m-%d", time.localtime(one.unanswered_since))
        yield f"deleting from the clouds waits for it since {day}"
    yield from map(_proposal, one.proposed or ())
    if one.let_in_by:
        yield f"let in by {shown(one.let_in_by)}"


@device.command(epilog="\b\nExample:\n  hybrisfs device proof old-laptop --out proof.hfev")
@_device_argument
@volume_option
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the proof to this file, for others."
)
@json_option
def proof(device_name: str, name: str | None, out: Path | None, as_json: bool) -> None:
    """Show the proof that a machine broke the rules of the volume, if there is one.

    The proof is something that the machine has signed itself, and that a machine in order never signs: so it
    is faulty, or somebody has taken it over. Nobody can make up a proof against another machine, and
    everybody can check one with hybrisfs device check-proof. One kind may be harmless: two different
    histories, which a machine that was restored from a backup signs, too.
    """
    with Client.connect() as client:
        facts = client.call(DeviceProofRequest(name=name, device=device_name))
    if out is not None:
        try:
            out.write_bytes(bytes.fromhex(facts.proof or ""))
        except OSError as error:
            raise click.ClickException(f"{out} cannot be written: {error.strerror}") from error
    show(facts, as_json, _describe_proof)


@device.command("check-proof", epilog="\b\nExample:\n  hybrisfs device check-proof proof.hfev")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@volume_option
@json_option
def check_proof(file: Path, name: str | None, as_json: bool) -> None:
    """Check a proof that `hybrisfs device proof --out` has written, without asking any machine or cloud."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_PROOF + 1)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_PROOF:
        raise click.ClickException(f"{file} is not a proof: it is too large")
    with Client.connect() as client:
        facts = client.call(DeviceCheckProofRequest(name=name, proof=data.hex()))
    show(facts, as_json, _describe_proof)


def _describe_proof(facts: Proof) -> Iterator[str]:
    who = shown(facts.device) if facts.device else "A machine of another volume"
    yield f"{who} ({facts.id[:8]}) {shown(facts.what)}"
    yield f"It signed that on {moment(facts.at)}, by its own clock. The signatures are good."


@device.command(epilog="\b\nExample:\n  hybrisfs device rename laptop old-laptop")
@_device_argument
@click.argument("new_name", metavar="NEW")
@volume_option
def rename(device_name: str, new_name: str, name: str | None) -> None:
    """Rename a machine, on all machines. DEVICE is its name or the beginning of its id."""
    with Client.connect() as client:
        client.call(DeviceRenameRequest(name=name, device=device_name, new_name=new_name))
    click.echo(f"{shown(device_name)} is called {shown(new_name)} now.")


_with_kit = click.option(
    "--with-kit", is_flag=True, help="Decide with the passphrase of the recovery kit, which is asked for."
)


@device.command(
    epilog="\b\nExamples:\n  hybrisfs device role nas reader\n"
    "  hybrisfs device role tablet contributor --folder Photos/Holiday"
)
@_device_argument
@click.argument("role", metavar="[full|contributor|reader]", type=_ROLES, required=False)
@_folders
@volume_option
@_with_kit
@passphrase_file_option
@json_option
def role(
    device_name: str,
    role: Role | None,
    folders: tuple[str, ...],
    name: str | None,
    with_kit: bool,
    file: TextIO | None,
    as_json: bool,
) -> None:
    """Tell what a machine may do, or say what it may do from now on.

    A reader has all keys and reads everything. On it nothing can be changed, and no machine takes a change
    from it. It still agrees, or not, to what others want deleted, and gives itself a name. Only a full
    member says what others may do. What a machine did before it heard that it only reads is kept.

    A contributor reads everything, and makes, changes, moves and removes what is in its folders, and nothing
    else. Between such a folder and the rest of the volume nothing is moved, on any machine: programs copy
    instead, as between two disks. Name the role and the folders again to let it change also what machines
    that did not know it yet have put there.

    No machine takes rights from another one alone, unless it has let it in: until the same command on a
    second machine agrees, it is proposed only, and full refuses it. With --with-kit, the passphrase of the
    recovery kit decides.
    """
    _check_folders(role, folders)
    passphrase = read_passphrase(file) if with_kit and role is not None else None
    with Client.connect() as client:
        volume, places = _named_folders(client, name, folders)
        facts = client.call(
            DeviceRoleRequest(
                name=volume,
                device=device_name,
                role=role,
                folders=places or None,
                passphrase=passphrase,
            )
        )
    show(facts, as_json, partial(_describe_role, changed=role is not None))


def _describe_role(facts: DeviceRole, changed: bool) -> Iterator[str]:
    what = "only reads" if facts.reader else "is a full member"
    if facts.folders is not None:
        what = f"changes only {_these_folders(facts.folders)}"
    now = " now" if changed and not facts.proposed else ""
    yield f"{shown(facts.device)} ({facts.id[:8]}) {what}{now}."
    for one in facts.proposed or ():
        yield f"{_proposal(one)}, which has no effect until another machine agrees:"
        words = [one.role, *(f"--folder {quoted(folder)}" for folder in one.folders or ())]
        yield f"  hybrisfs device role {facts.id[:8]} {' '.join(words)}"


def _proposal(one: Proposal) -> str:
    what = f"change only {_these_folders(one.folders)}" if one.folders else "only read"
    return f"{shown(one.by)} wants it to {what}"


def _check_folders(role: str | None, folders: Sequence[str]) -> None:
    if folders and role != "contributor":
        raise click.UsageError("--folder needs the role contributor")
    if role == "contributor" and not folders:
        raise click.UsageError("a contributor is limited to folders: name them with --folder")


def _named_folders(client: Client, name: str | None, folders: Sequence[str]) -> tuple[str | None, list[str]]:
    """The volume, if a path in the folder of one tells that, and the folders by their paths in it."""
    found, volume = [], name
    for folder in folders:
        place = mounted_place(client, folder) if name is None else None
        if place is not None and volume not in (None, place.volume):
            raise click.UsageError(f"{folder} is not in the volume {volume}")
        volume = volume if place is None else place.volume
        found.append(folder if place is None else place.path)
    return volume, found


def _these_folders(paths: Sequence[str]) -> str:
    return ", ".join(map(shown, paths)) or "folders that are gone"


@device.command(epilog="\b\nExample:\n  hybrisfs device remove old-laptop")
@_device_argument
@volume_option
@click.option(
    "--with-admitted",
    is_flag=True,
    help="Remove all whom this machine has let in, too, and so on; its recovery kits, too.",
)
@_with_kit
@passphrase_file_option
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nobody is asked.")
@json_option
def remove(
    device_name: str,
    name: str | None,
    with_admitted: bool,
    with_kit: bool,
    file: TextIO | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove a machine from the volume, because it is lost, sold or not trusted.

    DEVICE is its name or the beginning of its id. The others get new keys: it can read nothing that is
    written from now on, and nothing that it writes is accepted. What it has read before, it may have kept. A
    machine that was removed never comes back under its old identity; invite it again instead.

    If it is not trusted, nor are those that it has let in: with --with-admitted they go with it. This machine
    itself goes by hybrisfs volume leave.

    No machine removes another one alone for good, or a thief could remove all others: until the same command
    on another machine seconds it, any of them can veto it with hybrisfs device keep. With --with-kit, the
    passphrase of the recovery kit decides.
    """
    with Client.connect() as client:
        if sys.stdin.isatty() and not yes:
            click.confirm(f"Remove {shown(device_name)} for good?", abort=True, err=True)
            admitted = client.call(DeviceAdmittedRequest(name=name, device=device_name)).admitted
            if admitted and not with_admitted:
                click.echo(f"It has let in {_these(admitted)}.", err=True)
                with_admitted = click.confirm("Remove them with it?", default=False, err=True)
        facts = client.call(
            DeviceRemoveRequest(
                name=name,
                device=device_name,
                with_admitted=with_admitted,
                passphrase=read_passphrase(file) if with_kit else None,
            )
        )
    show(facts, as_json, _describe_removed)


def _describe_removed(facts: RemovedDevice) -> Iterator[str]:
    yield from _how_final(facts)
    for charge in facts.charges:
        yield f"It {shown(charge.what)}; the proof is kept."
    if facts.removed:
        yield f"Nor do those that it had let in: {_these(facts.removed)}."
    if facts.remain:
        yield f"Those that it has let in remain: {_these(facts.remain)}."
        yield "Unless you know them: hybrisfs device remove, hybrisfs recovery remove."
    yield "If it has secrets of these clouds, it can still delete there: change the secrets."
    for url in facts.clouds:
        yield f"  {shown(url)}"


def _how_final(facts: RemovedDevice) -> Iterator[str]:
    who, device = shown(facts.device), facts.id[:8]
    if not facts.counts:
        yield f"This machine wants {who} removed, which has no effect yet: somebody has vetoed it, or"
        yield "this machine has removed another one, and that is not final."
        yield f"For good: hybrisfs device remove {device} on another machine, or here --with-kit."
        return
    yield f"{who} no longer belongs to the volume."
    if not facts.final:
        yield f"That can be vetoed on other machines: hybrisfs device keep {device}."
        yield f"For good: hybrisfs device remove {device} on another machine, or here --with-kit."


@device.command(epilog="\b\nExample:\n  hybrisfs device keep old-laptop")
@_device_argument
@volume_option
@_with_kit
@passphrase_file_option
@json_option
def keep(device_name: str, name: str | None, with_kit: bool, file: TextIO | None, as_json: bool) -> None:
    """Veto the removal of a machine that another one accuses.

    DEVICE is its name or the beginning of its id, see hybrisfs device list. It belongs to the volume again,
    and what it did since then arrives. A removal that two machines have signed only --with-kit undoes, with
    the passphrase of the recovery kit.
    """
    passphrase = read_passphrase(file) if with_kit else None
    with Client.connect() as client:
        facts = client.call(DeviceKeepRequest(name=name, device=device_name, passphrase=passphrase))
    show(facts, as_json, _describe_kept)


def _describe_kept(facts: KeptDevice) -> list[str]:
    if facts.kept:
        return [f"{shown(facts.device)} belongs to the volume."]
    return [f"{shown(facts.device)} does not belong to the volume yet: see hybrisfs device list."]


def _these(devices: Sequence[NamedDevice]) -> str:
    return ", ".join(f"{shown(one.device)} ({one.id[:8]})" for one in devices)
