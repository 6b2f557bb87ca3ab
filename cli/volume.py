"""hybrisfs volume create, list, set, redundancy, rebuild, rename, leave, delete"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from typing import Any, Final

import click

from cli.arguments import SizeType, SpanType, make_option
from cli.output import (
    NOT_YET,
    columns,
    count,
    json_option,
    pending_work,
    print_json,
    progress_bar,
    quoted,
    show,
    shown,
    size,
    warned,
)
from cli.usage import Commands, volume_argument
from hybrisfs.api.clouds import Redundancy, RedundancyRequest, RedundancyWaitRequest, Waited
from hybrisfs.api.maintenance import RecoveryShowRequest
from hybrisfs.api.request import message_of
from hybrisfs.api.status import AnyVolume, StatusRequest, VolumeStatus
from hybrisfs.api.volumes import (
    CreatedVolume,
    DeletedVolume,
    LeftVolume,
    RebuiltVolume,
    VolumeCreateRequest,
    VolumeDeleteRequest,
    VolumeLeaveRequest,
    VolumeListRequest,
    VolumeRebuildRequest,
    VolumeRenameRequest,
    Volumes,
    VolumeSetRequest,
    VolumeSettings,
)
from hybrisfs.client import Client

_LIAR: Final = (
    "a machine at once, until you keep or remove it, when its own signatures prove that it is faulty or "
    "taken over: see hybrisfs device proof. A restored backup does not count as that."
)
_LISTS: Final = ("no_fetch_programs", "link_addresses")
_OPTIONS: Final = {"cache_bytes": "cache", "announce_seconds": "announce"}
_SWITCHES: Final = ("notifications", "evict_liars", "discover", "merge_texts")


@click.group(cls=Commands)
def volume() -> None:
    """Create, list, leave and delete volumes, and change how they behave."""


@volume.command(
    epilog="""\b
Example:
  hybrisfs volume create photos --cloud usb=file:///mnt/usb/photos \\
    --cloud nas=file:///mnt/nas/photos --cloud file:///srv/photos -f 1 -k 1"""
)
@volume_argument(complete=None)
@click.option(
    "--cloud",
    "clouds",
    metavar="[NAME=]URL",
    multiple=True,
    required=True,
    help="A cloud, with a name if it is to have one; give it once for each.",
)
@make_option
@click.option(
    "-f", "f", type=click.IntRange(min=0), help="How many clouds may fail or lie. Default: 1, if there are 3."
)
@click.option(
    "-k",
    "k",
    type=click.IntRange(min=1),
    help="How many clouds are needed to read: 1 keeps whole copies, as always below 1 MiB.",
)
@click.option(
    "--evict-liars",
    is_flag=True,
    help=f"Suspend {_LIAR}",
)
@json_option
def create(
    name: str,
    clouds: tuple[str, ...],
    make: bool,
    f: int | None,
    k: int | None,
    evict_liars: bool,
    as_json: bool,
) -> None:
    """Create the volume NAME over the clouds with the given URLs.

    Everything is kept on f+k clouds, any f of which may vanish or lie; with k above 1 each keeps a k-th of
    the data. That takes 2f+k clouds or more. Less than 1 MiB at a time is always kept as f+1 whole copies.
    """
    with Client.connect() as client:
        asked = VolumeCreateRequest(name, list(clouds), f, k, evict_liars or None, make or None)
        facts = client.call(asked)
    show(facts, as_json, _describe_made)


def _describe_made(facts: CreatedVolume) -> Iterator[str]:
    made = facts.volume
    yield (
        f"Created the volume {shown(made.name)} over {count(len(made.clouds), 'cloud')}: everything is "
        f"kept on {made.f + made.k} of them, {_tolerance(made.f, made.k)}."
    )
    yield from warned(facts.warnings)
    yield f"Next: hybrisfs mount {quoted(made.name)} DIR"


@volume.command("list", epilog="\b\nExample:\n  hybrisfs volume list --json")
@json_option
def list_(as_json: bool) -> None:
    """List the volumes of this machine."""
    with Client.connect() as client:
        facts = client.call(VolumeListRequest())
    show(facts, as_json, _table)


def _table(facts: Volumes) -> list[str]:
    if not facts.volumes:
        return ["There is no volume yet: hybrisfs quickstart makes one."]
    rows = [["NAME", "CLOUDS", "MAY FAIL", "MOUNTED AT"]]
    for each in facts.volumes:
        where = shown(each.mountpoint) if each.mountpoint else "-"
        rows.append([shown(each.name), str(len(each.clouds)), str(each.f), where])
    return columns(rows, indent="")


@volume.command(
    "set",
    epilog="""\b
Examples:
  hybrisfs volume set photos
  hybrisfs volume set photos --cache 40G --keep-versions all:2d,room:50G""",
)
@volume_argument()
@click.option(
    "--cache", "cache_bytes", type=SizeType(), help="The most that is kept on this machine, for example 40G."
)
@click.option(
    "--stale-reads",
    type=click.Choice(["warn", "block"]),
    help="What to do while another machine is silent for too long, so that changes may be missing here.",
)
@click.option(
    "--keep-versions",
    metavar="RULE",
    help='Which earlier versions of files to keep: "default", "off", or for example '
    '"all:2d,daily:14d,weekly:60d,monthly:2y,room:50G".',
)
@click.option(
    "--notifications",
    type=click.Choice(["on", "off"]),
    help="Whether the desktop shows what needs a person: a conflict, a cloud that is down for long.",
)
@click.option(
    "--deletion-percent",
    type=click.IntRange(0, 100),
    help="Deletions by another machine of more than so much of the volume wait for you. 100: none does.",
)
@click.option(
    "--discard-hours",
    type=click.IntRange(min=0),
    help="How long the clouds keep what nothing needs any more.",
)
@click.option(
    "--veto-hours",
    type=click.IntRange(min=1),
    help="How long the removal of a machine can be vetoed before this machine seconds it. Default: 72.",
)
@click.option(
    "--evict-liars",
    type=click.Choice(["on", "off"]),
    help=f"Whether to suspend {_LIAR}",
)
@click.option(
    "--hoard",
    type=click.Choice(["all", "asked", "none"]),
    help="What this machine keeps beside what is used on it: all, what is asked for copies of, or none.",
)
@click.option(
    "--check-days",
    type=click.IntRange(min=1),
    help="Within how many days it is checked that each share is on its cloud. Default: 90.",
)
@click.option(
    "--no-fetch-programs",
    metavar="LIST",
    help='Programs whose reads fetch nothing from the clouds, with commas between them; "default" or "none".',
)
@click.option(
    "--link-port",
    type=click.IntRange(0, 65535),
    help="On which port this machine listens for the others. 0: any.",
)
@click.option(
    "--link-addresses",
    metavar="LIST",
    help='Where other machines may be found, as host:port with commas between them; or "none".',
)
@click.option(
    "--discover", type=click.Choice(["on", "off"]), help="Whether to look for them on the local network."
)
@click.option(
    "--announce",
    "announce_seconds",
    type=SpanType(),
    help="How often each machine says at least that it is there, on all machines: 10s to 15m.",
)
@click.option(
    "--merge-texts",
    type=click.Choice(["on", "off"]),
    help="Whether texts that were changed in different places are merged unasked, on all machines.",
)
@click.option(
    "--archive-after",
    metavar="SPAN",
    help='Store wide over the clouds what was not read for so long, on all machines: "30d", or "off".',
)
@click.option(
    "--archive-code",
    metavar="K+F",
    help='How: "4+1" takes five clouds, any four of which are enough; "auto" is the cheapest. Default: auto.',
)
@json_option
def set_(name: str, as_json: bool, **wanted: Any) -> None:
    """Show how the volume NAME behaves on this machine, or change that with the options.

    With --stale-reads block, a program that opens a file for reading waits up to 30 seconds while changes of
    another machine may be missing here, and then fails with "Connection timed out". Machines that are shut
    down cleanly hold nobody up. With warn, the default, hybrisfs status tells of it.

    By default every version is kept for a day, that of each midnight for a week, of each Monday for a month,
    of each first of a month for a year. Spans are counted in h, d, w, m and y; beyond the room in bytes the
    oldest versions go sooner. Other machines of the volume go by their own rule.

    With --announce 30s you know sooner that changes of a machine may be missing: when it has been silent for
    two and a half minutes instead of 36. Each machine then puts a small object on the clouds, and asks for
    those of the others, every 30 seconds, which some clouds charge for.

    What is new is kept in whole copies, unless k says otherwise, so that it is read quickly. With
    --archive-after 30d what nobody read for 30 days is stored again over more clouds, each of which has a
    piece: over five it takes 1.25 times its size instead of 2, and one of them may still fail. Each machine
    does that in the background for what it has written; what is read again on two days becomes whole copies.

    Clouds, redundancy and limits have commands of their own: hybrisfs cloud, volume redundancy, limit.
    """
    asked = VolumeSetRequest(name, **{option: _value(option, value) for option, value in wanted.items()})
    with Client.connect() as client:
        facts = client.call(asked)
    chosen = {option for option, value in wanted.items() if value is not None}
    show(facts, as_json, lambda facts: _describe_settings(facts, chosen))


def _value(option: str, value: Any) -> Any:
    """What an option of `set` means."""
    if option in _LISTS and value is not None:
        return [] if value == "none" else [one.strip() for one in value.split(",")]
    return {"on": True, "off": False}.get(value, value) if option in _SWITCHES else value


def _describe_settings(facts: VolumeSettings, chosen: Collection[str]) -> list[str]:
    """The settings that were *chosen*, or all."""
    rows = [
        [f"--{_OPTIONS.get(field, field).replace('_', '-')}", _shown_setting(field, value)]
        for field, value in message_of(facts).items()
        if field in (chosen or facts.__struct_fields__) and field not in ("name", "warnings")
    ]
    return [f"{shown(facts.name)}:", *columns(rows), *warned(facts.warnings)]


def _shown_setting(field: str, value: Any) -> str:
    if field == "cache_bytes":
        return size(value)
    if field == "announce_seconds":
        return f"{value}s"
    if isinstance(value, bool):
        return "on" if value else "off"
    return (", ".join(map(shown, value)) or "none") if isinstance(value, list) else str(value)


@volume.command(epilog="\b\nExample:\n  hybrisfs volume redundancy photos -f 2 -k 1 --wait")
@volume_argument(required=False)
@click.option("-f", "f", type=click.IntRange(min=0), help="How many clouds may fail or lie.")
@click.option(
    "-k",
    "k",
    type=click.IntRange(min=1),
    help="How many clouds are needed to read: 1 keeps whole copies, as always below 1 MiB.",
)
@click.option("--wait", is_flag=True, help="Wait until all is rewritten.")
@click.option("--timeout", type=click.FloatRange(min=0), help="Wait no longer than so many seconds.")
@json_option
def redundancy(
    name: str | None, f: int | None, k: int | None, wait: bool, timeout: float | None, as_json: bool
) -> int:
    """Change how many clouds of the volume NAME may fail, and how many are needed to read.

    What is not given stays as it is. It counts for what is written from now on; what is stored is read and
    rewritten in the background. The exit code is 3 when that is not done in time.
    """
    if f is None and k is None:
        raise click.UsageError("give -f, -k or both")
    with Client.connect() as client:
        facts = client.call(RedundancyRequest(name, f, k))
    waited = Waited(facts.name, done=False, trouble="")
    if wait:
        with Client.connect() as client, progress_bar("packs") as bar:
            waited = client.call(
                RedundancyWaitRequest(name, timeout),
                lambda step: bar("rewritten", step.done, step.total),
            )
    if as_json:
        print_json({**message_of(facts), **message_of(waited)})
    else:
        _explain_redundancy(facts, waited)
    return NOT_YET if wait and not waited.done else 0


def _explain_redundancy(facts: Redundancy, waited: Waited) -> None:
    kept = f"{count(facts.f + facts.k, 'cloud')} now: {_tolerance(facts.f, facts.k)}"
    click.echo(f"{shown(facts.name)} keeps everything on {kept}.")
    if not waited.done:
        why = f": {shown(waited.trouble)}" if waited.trouble else ", hybrisfs status shows how far it is"
        click.echo(f"What is stored already is rewritten in the background{why}.")


@volume.command(epilog="\b\nExample:\n  hybrisfs volume rebuild photos")
@volume_argument()
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nobody is asked.")
@json_option
def rebuild(name: str, yes: bool, as_json: bool) -> int:
    """Rebuild the database of the volume NAME on this machine, when it is damaged.

    You are asked first if it can still be read. The damaged files are set aside. What the clouds have comes
    back from there in the background; files that no cloud had are put into a folder of their own, as far as
    they can be read. The exit code is 1 when some could not.
    """
    with Client.connect() as client:
        if sys.stdin.isatty() and not yes and isinstance(_facts(client, name), VolumeStatus):
            click.confirm(
                f"The database of {shown(name)} can be read; hybrisfs fsck {quoted(name)} tells whether it "
                "is damaged. Rebuild it?",
                abort=True,
                err=True,
            )
    with Client.connect() as client, progress_bar("files") as bar:
        facts = client.call(VolumeRebuildRequest(name), lambda step: bar("recovered", step.done, step.total))
    show(facts, as_json, _describe_rebuilt)
    return 1 if facts.lost else 0


def _describe_rebuilt(facts: RebuiltVolume) -> Iterator[str]:
    yield f"Set aside: {shown(facts.set_aside)}. Remove it when all is well."
    for path in facts.recovered:
        yield f"recovered: {shown(path)}"
    for path in facts.lost:
        yield f"lost: {shown(path)}"
    yield "What the clouds have comes back in the background: hybrisfs status tells how far it is."


@volume.command(epilog="\b\nExample:\n  hybrisfs volume rename photos pictures")
@volume_argument(metavar="OLD")
@click.argument("new_name", metavar="NEW")
@json_option
def rename(name: str, new_name: str, as_json: bool) -> None:
    """Rename the volume OLD on this machine.

    Other machines have a name of their own for it. If it is mounted, it is unmounted for a moment, which
    fails while programs use it, and mounted again at the same folder.
    """
    with Client.connect() as client:
        facts = client.call(VolumeRenameRequest(name, new_name))
    mounted = f", and is mounted at {shown(facts.mountpoint)}" if facts.mountpoint else ""
    show(facts, as_json, lambda facts: [f"{shown(name)} is called {shown(facts.name)} now{mounted}."])


@volume.command(
    epilog="""\b
Examples:
  hybrisfs volume leave photos
  hybrisfs volume leave photos --yes --timeout 600"""
)
@volume_argument()
@click.option("--force", is_flag=True, help="Leave also when something is lost by that; it says what.")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nobody is asked.")
@click.option(
    "--last",
    is_flag=True,
    help="Leave also with the last machine: there is a recovery kit, or nobody is to read it again.",
)
@click.option("--timeout", type=click.FloatRange(min=0), help="Wait for the clouds no longer than that.")
@json_option
def leave(name: str, force: bool, yes: bool, last: bool, timeout: float | None, as_json: bool) -> None:
    """Give up the volume NAME on this machine. The data stays on the clouds and on the other machines.

    Everything is brought to the clouds first; if that fails, nothing has happened. Then the volume is
    unmounted, this machine is taken out of it, and what it has of it is deleted: keys, database, files that
    are here, settings, and secrets of clouds that no other volume here uses. Folders that were mirrored stay.

    With --force it goes also when the clouds cannot be reached, or the volume cannot be opened. It waits for
    them for a minute at most, unless --timeout says otherwise.
    """
    with Client.connect() as client:
        facts = _facts(client, name)
        if force and isinstance(facts, VolumeStatus) and (facts.pending_files or facts.pending_bytes):
            pending = pending_work(facts.pending_files, facts.pending_bytes)
            click.echo(f"Lost is what does not reach the clouds before: {pending} now.", err=True)
        last = _may_leave(client, facts, yes=yes, last=last)
        with progress_bar("bytes") as bar:
            left = client.call(
                VolumeLeaveRequest(name, force, last, timeout),
                lambda moved: bar("uploaded", moved.done, moved.total),
            )
    show(left, as_json, _describe_left)


def _facts(client: Client, name: str) -> AnyVolume:
    [facts] = client.call(StatusRequest(name)).volumes
    return facts


def _may_leave(client: Client, facts: AnyVolume, *, yes: bool, last: bool) -> bool:
    """Ask a person whether to leave; whether also as the last machine."""
    others = [one.name for one in facts.devices if not one.this]
    asks = sys.stdin.isatty()
    if facts.devices and not others:
        if last or not asks:
            return last
        kits = client.call(RecoveryShowRequest(facts.name)).kits
        click.echo(
            f"This is the last machine of {shown(facts.name)}: nobody could then read the clouds without a "
            f"recovery kit. There {'is one' if kits else 'is none, see hybrisfs recovery make'}.",
            err=True,
        )
        if click.prompt("Type the name of the volume to leave it", err=True) != facts.name:
            raise click.ClickException("that is not the name of the volume: nothing has happened")
        return True
    if asks and not yes:
        rest = f"; it stays with {', '.join(map(shown, others))}" if others else ""
        click.confirm(f"Leave {shown(facts.name)} on this machine{rest}?", abort=True, err=True)
    return last


def _describe_left(facts: LeftVolume) -> Iterator[str]:
    name = shown(facts.name)
    yield f"This machine has left {name}: nothing of it is here any more."
    if facts.lost_files or facts.lost_bytes:
        yield f"Lost is what no cloud had: {pending_work(facts.lost_files, facts.lost_bytes)}."
    if facts.lost_containers:
        yield f"Lost are the keys of {', '.join(map(shown, facts.lost_containers))}."
    if not facts.told:
        yield f"The others do not know it yet ({shown(facts.trouble)}): hybrisfs device remove there."
    elif facts.others:
        yield f"The data stays with {', '.join(map(shown, facts.others))}, and on the clouds."


@volume.command(
    epilog="""\b
Examples:
  hybrisfs volume delete photos
  hybrisfs volume delete photos --confirm photos --json"""
)
@volume_argument()
@click.option("--confirm", metavar="NAME", help="The name once more, for scripts: nobody is asked for it.")
@click.option(
    "--force", is_flag=True, help="Delete what is on this machine also when a cloud could not be emptied."
)
@json_option
def delete(name: str, confirm: str | None, force: bool, as_json: bool) -> int:
    """Delete the volume NAME: everything that it has on all clouds, and then what is on this machine.

    There is no way back. Other machines of the volume keep what is on them, and lose the rest. Nothing is
    deleted on the clouds that is not the volume's.

    The exit code is 1 when something may be left on a cloud: it could not be reached, did not let this
    machine delete, or keeps deleted objects. Unless such a cloud was emptied, this machine keeps what it
    needs to try again: the same command goes on.
    """
    if confirm is None and not sys.stdin.isatty():
        raise click.UsageError("without a terminal, give the name of the volume once more: --confirm NAME")
    with Client.connect() as client:
        facts = _facts(client, name)
        click.echo("\n".join(_about_deletion(facts)), err=True)
        typed = confirm or click.prompt("Type the name of the volume to delete it", err=True)
        with progress_bar("objects") as bar:
            deleted = client.call(
                VolumeDeleteRequest(name, typed, force),
                lambda moved: bar("deleted", moved.done, moved.total),
            )
    show(deleted, as_json, _describe_deleted)
    return 1 if any(one.trouble or one.kept for one in deleted.clouds) else 0


def _about_deletion(facts: AnyVolume) -> Iterator[str]:
    name = shown(facts.name)
    if not isinstance(facts, VolumeStatus):
        yield f"{name}: {shown(facts.last_error.splitlines()[0])}."
        return
    what = f"{count(facts.files, 'file')} ({size(facts.bytes)})"
    yield f"{name}: {what}, with all earlier versions, on {count(len(facts.clouds), 'cloud')}:"
    yield from (f"  {shown(one.url)}" for one in facts.clouds)
    others = [shown(one.name) for one in facts.devices if not one.this]
    if others:
        yield (
            f"{count(len(others), 'other machine')} use{'s' if len(others) == 1 else ''} it: "
            f"{', '.join(others)}. What only the clouds hold is lost there, too."
        )


def _describe_deleted(facts: DeletedVolume) -> Iterator[str]:
    for one in facts.clouds:
        done = f"{count(one.objects, 'object')} ({size(one.bytes)}) deleted"
        if one.trouble:
            yield f"{shown(one.name)}: {done}; not all: {shown(one.trouble)}"
        else:
            place = "the folder, too" if one.place_gone else f"{shown(one.url)} itself stays"
            yield f"{shown(one.name)}: {done}, {place}" + (f"; {shown(one.kept)}" if one.kept else "")
    name = quoted(facts.name)
    if facts.forgotten:
        yield f"Nothing of {shown(facts.name)} is on this machine any more."
    else:
        yield f"This machine keeps its keys, to try again: hybrisfs volume delete {name}."
        yield f"To give that up: hybrisfs volume delete {name} --force."


def _tolerance(f: int, k: int) -> str:
    fail = f"any {f} may fail" if f else "none may fail"
    return f"{fail}, {k} {'is' if k == 1 else 'are'} enough to read"
