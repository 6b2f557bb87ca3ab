"""hybrisfs device invite, join, list, proof, check-proof, rename, role, remove, keep"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from cli.output import columns, json_option, print_json, quoted, shown
from cli.passphrase import passphrase_file_option, read_passphrase
from cli.paths import complete_directories, mounted_place
from cli.volume_name import complete_volumes, volume_option
from hybrisfs.client import Client, Message

_MAX_PROOF = 1 << 19  # bytes


@click.group()
def device() -> None:
    """Let other machines into a volume, and manage them."""


class _Talk:
    """Shows a person where a pairing stands, and passes the answer on by a connection of its own."""

    def __init__(self, *, as_json: bool, yes: bool, greet: Callable[[Message], None]) -> None:
        self._as_json = as_json
        self._ask = sys.stdin.isatty() and not yes
        self._greet = greet
        self._greeted = False
        self._compared = False
        self._answered = False

    def __call__(self, facts: Message) -> None:
        if not self._greeted:
            self._greeted = True
            self._greet(facts)
        if facts.get("comparison") and not self._compared:
            self._compared = True
            if self._as_json:
                print_json({"comparison": facts["comparison"]})
            else:
                click.echo(f"Comparison string: {click.style(facts['comparison'], bold=True)}")
        if facts.get("question") and not self._answered:
            self._answered = True
            self._answer(facts)

    def _answer(self, facts: Message) -> None:
        accept = not self._ask or click.confirm(
            f"Does {shown(facts['device'])} show the same string?",
            default=False,
            err=True,  # the other output may go to a program
        )
        with Client.connect() as client:
            client.call("device confirm", {"pairing": facts["pairing"], "accept": accept})


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
@click.argument("name", required=False, shell_complete=complete_volumes)
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
    role: str,
    folders: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Let another machine into the volume NAME.

    Shows a one-time code, and waits for the machine that is given it. Both then show a short string; they are
    equal unless somebody is in between.

    A reader has all keys, and keeps what it is told to pin, but nothing can be changed on it, and no machine
    takes a change from it. A contributor reads everything, too, and changes what is in the folders that are
    named: see hybrisfs device role.
    """
    _check_folders(role, folders)

    def greet(facts: Message) -> None:
        if as_json:
            print_json({"code": facts["code"], "expires": facts["expires"]})
            sys.stdout.flush()
            return
        if sys.stdout.isatty():
            click.echo("\n".join(facts["qr"]))
        until = time.strftime("%H:%M", time.localtime(facts["expires"]))
        click.echo(f"On the other machine, before {until}:\n\n  hybrisfs device join {facts['code']}\n")

    arguments = {"name": name, "valid": valid, "with_credentials": with_credentials, "role": role}
    with Client.connect() as client:
        arguments |= _named_folders(client, name, folders)
        facts = client.call("device invite", arguments, _Talk(as_json=as_json, yes=yes, greet=greet))
    if as_json:
        print_json(facts)
    else:
        only = {"reader": ", and only reads", "contributor": f", and changes only {_these_folders(folders)}"}
        click.echo(f"{shown(facts['device'])} belongs to the volume now{only.get(role, '')}.")


@device.command(epilog="\b\nExample:\n  hybrisfs device join hfs1-... --name laptop")
@click.argument("code")
@click.option("--name", "own_name", help="What this machine is to be called. Default: its host name.")
@click.option("--as", "as_name", metavar="VOLUME", help="What the volume is to be called here.")
@_yes
@json_option
def join(code: str, own_name: str | None, as_name: str | None, yes: bool, as_json: bool) -> None:
    """Make this machine a device of the volume that CODE invites to.

    Nothing is deleted anywhere by that, here or there.
    """
    arguments = {"code": code, "own_name": own_name, "as_name": as_name}
    with Client.connect() as client:
        facts = client.call("device join", arguments, _Talk(as_json=as_json, yes=yes, greet=lambda _: None))
    if as_json:
        print_json(facts)
        return
    name = facts["volume"]["name"]
    click.echo(f"This machine belongs to the volume {shown(name)} now.")
    click.echo(f"Next: hybrisfs mount {shown(name)} DIR")


@device.command("list", epilog="\b\nExample:\n  hybrisfs device list --json")
@click.argument("name", required=False, shell_complete=complete_volumes)
@json_option
def list_(name: str | None, as_json: bool) -> None:
    """List the machines of the volume NAME, and when each was last heard of."""
    with Client.connect() as client:
        facts = client.call("device list", {"name": name})
    if as_json:
        print_json(facts)
        return
    rows = [["NAME", "ID", "LAST SEEN", "BEHIND", ""]]
    rows += [_row(one) for one in facts["devices"]]
    click.echo("\n".join(columns(rows, indent="")))
    for one in facts.get("accused", ()):
        click.echo(_trial(one))


def _trial(one: dict[str, Any]) -> str:
    """A device about which others vote, in sentences."""
    words = {"keep": "says keep", "suspend": "says suspend", "remove": "says remove"}
    votes = ", ".join(f"{shown(vote['by'])} {words[vote['stance']]}" for vote in one["votes"])
    who = f"{shown(one['name'])} ({one['id'][:8]})"
    if one["final"]:
        return f"{who} was removed for good: {votes}."
    if not one["suspended"]:
        return f"{who} belongs to the volume, although it was accused: {votes}."
    until = "" if one["until"] is None else f" until {_when(one['until'])}"
    keep = f"hybrisfs device keep {one['id'][:8]}"
    return f"{who} is suspended: {votes}. {keep} vetoes that{until}; hybrisfs device remove seconds it."


_REMARKS = {
    "this": "this machine",
    "reader": "only reads",
    "overstepped": "signed what it may not",
    "suspect": "changes may be missing",
}


def _row(one: dict[str, Any]) -> list[str]:
    remarks = [text for fact, text in _REMARKS.items() if one.get(fact)]
    if one.get("folders") is not None:
        remarks.append(f"changes only {_these_folders(one['folders'])}")
    if one.get("forked"):
        remarks.append("forked (restored from a backup)" if one.get("rejoined") else "forked")
    if any(charge["kind"] != "fork" for charge in one.get("charges", ())):
        remarks.append("broke a rule: see hybrisfs device proof")
    if one.get("unanswered_since"):
        day = time.strftime("%Y-%m-%d", time.localtime(one["unanswered_since"]))
        remarks.append(f"deleting from the clouds waits for it since {day}")
    remarks += [_proposal(proposed) for proposed in one.get("proposed", ())]
    if one.get("let_in_by"):
        remarks.append(f"let in by {shown(one['let_in_by'])}")
    seen = "now" if one.get("this") or one.get("linked") else _when(one.get("last_seen"))
    behind = "-" if one.get("lag") is None else str(one["lag"])
    return [shown(one["name"]), one["id"][:8], seen, behind, ", ".join(remarks)]


def _when(seconds: float | None) -> str:
    return "never" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


@device.command(epilog="\b\nExample:\n  hybrisfs device proof old-laptop --out proof.hfev")
@click.argument("device_name", metavar="DEVICE")
@volume_option
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the proof to this file, for others."
)
@json_option
def proof(device_name: str, name: str | None, out: Path | None, as_json: bool) -> None:
    """Tell what is proven against a machine: what it signed, and no machine that works as it should signs.

    The proof holds the machine's own signatures: who has it can check it without trusting anybody, see
    hybrisfs device check-proof. Two histories alone come of a backup, too, that was restored.
    """
    with Client.connect() as client:
        facts = client.call("device proof", {"name": name, "device": device_name})
    if out is not None:
        try:
            out.write_bytes(bytes.fromhex(facts["proof"]))
        except OSError as error:
            raise click.ClickException(f"{out} cannot be written: {error.strerror}") from error
    _print_charge(facts, as_json=as_json)


@device.command("check-proof", epilog="\b\nExample:\n  hybrisfs device check-proof proof.hfev")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@volume_option
@json_option
def check_proof(file: Path, name: str | None, as_json: bool) -> None:
    """Check a file of `hybrisfs device proof`, without asking any other machine or cloud."""
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_PROOF + 1)
    except OSError as error:
        raise click.ClickException(f"{file} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_PROOF:
        raise click.ClickException(f"{file} is no proof: it is too large")
    with Client.connect() as client:
        facts = client.call("device check-proof", {"name": name, "proof": data.hex()})
    _print_charge(facts, as_json=as_json)


def _print_charge(facts: Message, *, as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    who = shown(facts["device"]) if facts["device"] else "A machine of another volume"
    click.echo(f"{who} ({facts['id'][:8]}) {shown(facts['what'])}")
    click.echo(f"It signed that on {_when(facts['at'])}, by its own clock. The signatures are good.")


@device.command(epilog="\b\nExample:\n  hybrisfs device rename laptop old-laptop")
@click.argument("device_name", metavar="DEVICE")
@click.argument("new_name", metavar="NEW")
@volume_option
def rename(device_name: str, new_name: str, name: str | None) -> None:
    """Call a machine otherwise, on all machines. DEVICE is its name or the beginning of its id."""
    with Client.connect() as client:
        client.call("device rename", {"name": name, "device": device_name, "new_name": new_name})
    click.echo(f"{shown(device_name)} is called {shown(new_name)} now.")


_with_kit = click.option(
    "--with-kit", is_flag=True, help="Decide with the passphrase of the recovery kit, which is asked for."
)


@device.command(
    epilog="\b\nExamples:\n  hybrisfs device role nas reader\n"
    "  hybrisfs device role tablet contributor --folder Photos/Holiday"
)
@click.argument("device_name", metavar="DEVICE")
@click.argument("role", metavar="[full|contributor|reader]", type=_ROLES, required=False)
@_folders
@volume_option
@_with_kit
@passphrase_file_option
@json_option
def role(
    device_name: str,
    role: str | None,
    folders: tuple[str, ...],
    name: str | None,
    with_kit: bool,
    file: TextIO | None,
    as_json: bool,
) -> None:
    """Tell what a machine may do, or say what it may do from now on.

    A reader has all keys and reads everything. On it nothing can be changed, and no machine takes a change
    from it. It still agrees, or not, to what others want discarded, and gives itself a name. Only a full
    member says what others may do. What a machine did before it heard that it only reads is kept.

    A contributor reads everything, and makes, changes, moves and removes what is in its folders, and nothing
    else. Between such a folder and the rest of the volume nothing is moved, on any machine: programs copy
    instead, as between two disks. Name the role and the folders again to let it change also what machines
    that had not heard of it have put there.

    No machine takes rights from another one alone, unless it has let it in: until the same command on a
    second machine agrees, it is proposed only, and full refuses it. With --with-kit, the passphrase of the
    recovery kit decides.
    """
    _check_folders(role, folders)
    arguments: Message = {"name": name, "device": device_name, "role": role}
    if role is not None:
        arguments |= _of_kit(file, with_kit=with_kit)
    with Client.connect() as client:
        arguments |= _named_folders(client, name, folders)
        facts = client.call("device role", arguments)
    if as_json:
        print_json(facts)
        return
    what = "only reads" if facts["reader"] else "is a full member"
    if facts.get("folders") is not None:
        what = f"changes only {_these_folders(facts['folders'])}"
    proposed = facts.get("proposed", ())
    now = " now" if role and not proposed else ""
    click.echo(f"{shown(facts['device'])} ({facts['id'][:8]}) {what}{now}.")
    for one in proposed:
        click.echo(f"{_proposal(one)}, which has no effect until another machine agrees:")
        words = [one["role"], *(f"--folder {quoted(folder)}" for folder in one.get("folders", ()))]
        click.echo(f"  hybrisfs device role {facts['id'][:8]} {' '.join(words)}")


def _proposal(one: dict[str, Any]) -> str:
    folders = one.get("folders")
    what = f"change only {_these_folders(folders)}" if folders else "only read"
    return f"{shown(one['by'])} wants it to {what}"


def _check_folders(role: str | None, folders: Sequence[str]) -> None:
    if folders and role != "contributor":
        raise click.UsageError("--folder needs the role contributor")
    if role == "contributor" and not folders:
        raise click.UsageError("a contributor is limited to folders: name them with --folder")


def _named_folders(client: Client, name: str | None, folders: Sequence[str]) -> Message:
    """The folders as the daemon wants them: by their paths in the volume, and which that is, if a path in the
    folder of one tells."""
    found, volume = [], name
    for folder in folders:
        place = mounted_place(client, folder) if name is None else None
        if place is not None and volume not in (None, place.volume):
            raise click.UsageError(f"{folder} is not in the volume {volume}")
        volume = volume if place is None else place.volume
        found.append(folder if place is None else place.path)
    return {"folders": found, "name": volume} if found else {}


def _these_folders(paths: Sequence[str]) -> str:
    return ", ".join(map(shown, paths)) or "folders that are gone"


@device.command(epilog="\b\nExample:\n  hybrisfs device remove old-laptop")
@click.argument("device_name", metavar="DEVICE")
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
    """Let a machine belong to the volume no longer, because it is lost, sold or not trusted.

    DEVICE is its name or the beginning of its id. The others get new keys: it can read nothing that is
    written from now on, and nothing that it writes is accepted. What it has read before, it may have kept. A
    machine that was removed never comes back under its old identity; invite it again instead.

    If it is not trusted, nor are those that it has let in: with --with-admitted they go with it.

    No machine removes another one alone for good, or a thief could remove all others: until the same command
    on another machine seconds it, any of them can veto it with hybrisfs device keep. With --with-kit, the
    passphrase of the recovery kit decides.
    """
    arguments: Message = {"name": name, "device": device_name}
    with Client.connect() as client:
        if sys.stdin.isatty() and not yes:
            click.confirm(f"Remove {shown(device_name)} for good?", abort=True, err=True)
            admitted = client.call("device admitted", arguments)["admitted"]
            if admitted and not with_admitted:
                click.echo(f"It has let in {_these(admitted)}.", err=True)
                with_admitted = click.confirm("Remove them with it?", default=False, err=True)
        arguments |= _of_kit(file, with_kit=with_kit)
        facts = client.call("device remove", {**arguments, "with_admitted": with_admitted})
    if as_json:
        print_json(facts)
        return
    _say_how_final(facts)
    for charge in facts.get("charges", ()):
        click.echo(f"It {shown(charge['what'])}; the proof is kept.")
    if facts["removed"]:
        click.echo(f"Nor do those that it had let in: {_these(facts['removed'])}.")
    if facts["remain"]:
        click.echo(f"Those that it has let in remain: {_these(facts['remain'])}.")
        click.echo("Unless you know them: hybrisfs device remove, hybrisfs recovery remove.")
    click.echo("If it has secrets of these clouds, it can still delete there: change the secrets.")
    for url in facts["clouds"]:
        click.echo(f"  {shown(url)}")


def _say_how_final(facts: Message) -> None:
    who, device = shown(facts["device"]), facts["id"][:8]
    if not facts.get("counts", True):
        click.echo(f"This machine wants {who} removed, which has no effect yet: somebody has vetoed it, or")
        click.echo("this machine has removed another one, and that is not final.")
        click.echo(f"For good: hybrisfs device remove {device} on another machine, or here --with-kit.")
        return
    click.echo(f"{who} no longer belongs to the volume.")
    if not facts.get("final", True):
        click.echo(f"That can be vetoed on other machines: hybrisfs device keep {device}.")
        click.echo(f"For good: hybrisfs device remove {device} on another machine, or here --with-kit.")


@device.command(epilog="\b\nExample:\n  hybrisfs device keep old-laptop")
@click.argument("device_name", metavar="DEVICE")
@volume_option
@_with_kit
@passphrase_file_option
@json_option
def keep(device_name: str, name: str | None, with_kit: bool, file: TextIO | None, as_json: bool) -> None:
    """Veto the removal of a machine that another one accuses.

    DEVICE is its name or the beginning of its id, see hybrisfs device list. It belongs to the volume again,
    and what it did meanwhile arrives. A removal that two machines have signed only --with-kit undoes, with
    the passphrase of the recovery kit.
    """
    arguments: Message = {"name": name, "device": device_name, **_of_kit(file, with_kit=with_kit)}
    with Client.connect() as client:
        facts = client.call("device keep", arguments)
    if as_json:
        print_json(facts)
    elif facts["kept"]:
        click.echo(f"{shown(facts['device'])} belongs to the volume.")
    else:
        click.echo(f"{shown(facts['device'])} does not belong to the volume yet: see hybrisfs device list.")


def _of_kit(file: TextIO | None, *, with_kit: bool) -> Message:
    """What tells the daemon to have the kit vote."""
    return {"passphrase": read_passphrase(file)} if with_kit else {}


def _these(devices: list[dict[str, Any]]) -> str:
    return ", ".join(f"{shown(one['device'])} ({one['id'][:8]})" for one in devices)
