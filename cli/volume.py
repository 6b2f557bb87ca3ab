"""hybrisfs volume create, list, set, redundancy, rebuild"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

import click

from cli.arguments import SizeType, complete_volumes, make_option
from cli.output import (
    columns,
    count,
    json_option,
    print_json,
    progress_bar,
    quoted,
    show,
    shown,
    size,
    warned,
)
from hybrisfs.api.clouds import Redundancy, RedundancyRequest, RedundancyWaitRequest, Waited
from hybrisfs.api.request import message_of
from hybrisfs.api.volumes import (
    CreatedVolume,
    RebuiltVolume,
    VolumeCreateRequest,
    VolumeListRequest,
    VolumeRebuildRequest,
    Volumes,
    VolumeSetRequest,
    VolumeSettings,
)
from hybrisfs.client import Client

_NOT_YET: Final = 3
_LISTS: Final = ("no_fetch_programs", "link_addresses")
_SWITCHES: Final = ("notifications", "evict_liars", "discover")


@click.group()
def volume() -> None:
    """Create and list volumes, and change how they behave."""


@volume.command(
    epilog="""\b
Example:
  hybrisfs volume create photos --cloud usb=file:///mnt/usb/photos \\
    --cloud nas=file:///mnt/nas/photos --cloud file:///srv/photos -f 1 -k 1"""
)
@click.argument("name")
@click.option(
    "--cloud",
    "clouds",
    metavar="[NAME=]URL",
    multiple=True,
    required=True,
    help="A cloud, and what it is to be called; give it once for each.",
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
    help="Suspend a machine at once against which there is a proof that no backup explains.",
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
    """List the volumes of this device."""
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
@click.argument("name", shell_complete=complete_volumes)
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
    help="Whether this machine suspends those against which there is a proof that no backup explains.",
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
@json_option
def set_(name: str, as_json: bool, **wanted: Any) -> None:
    """Show how the volume NAME behaves on this machine, or change that with the options.

    With --stale-reads block, a program that opens a file for reading waits up to 30 seconds while changes of
    another machine may be missing here, and then fails with "Connection timed out". Machines that are shut
    down in good order hold nobody up. With warn, the default, hybrisfs status tells of it.

    By default every version is kept for a day, that of each midnight for a week, of each Monday for a month,
    of each first of a month for a year. Spans are counted in h, d, w, m and y; beyond the room in bytes the
    oldest versions go sooner. Other machines of the volume go by their own rule.

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
        [f"--{'cache' if field == 'cache_bytes' else field.replace('_', '-')}", _shown_setting(field, value)]
        for field, value in message_of(facts).items()
        if field in (chosen or facts.__struct_fields__) and field not in ("name", "warnings")
    ]
    return [f"{shown(facts.name)}:", *columns(rows), *warned(facts.warnings)]


def _shown_setting(field: str, value: Any) -> str:
    if field == "cache_bytes":
        return size(value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return (", ".join(map(shown, value)) or "none") if isinstance(value, list) else str(value)


@volume.command(epilog="\b\nExample:\n  hybrisfs volume redundancy photos -f 2 -k 1 --wait")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option("-f", "f", type=click.IntRange(min=0), help="How many clouds may fail or lie.")
@click.option(
    "-k",
    "k",
    type=click.IntRange(min=1),
    help="How many clouds are needed to read: 1 keeps whole copies, as always below 1 MiB.",
)
@click.option("--wait", is_flag=True, help="Return when all is rewritten.")
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
    return _NOT_YET if wait and not waited.done else 0


def _explain_redundancy(facts: Redundancy, waited: Waited) -> None:
    kept = f"{count(facts.f + facts.k, 'cloud')} now: {_tolerance(facts.f, facts.k)}"
    click.echo(f"{shown(facts.name)} keeps everything on {kept}.")
    if not waited.done:
        why = f": {shown(waited.trouble)}" if waited.trouble else ", hybrisfs status shows how far it is"
        click.echo(f"What is stored already is rewritten in the background{why}.")


@volume.command(epilog="\b\nExample:\n  hybrisfs volume rebuild photos")
@click.argument("name", shell_complete=complete_volumes)
@json_option
def rebuild(name: str, as_json: bool) -> int:
    """Rebuild the database of the volume NAME on this machine, when it is damaged.

    The damaged files are set aside. What the clouds have comes back from there in the background; files that
    no cloud had are put into a folder of their own, as far as they can be read. The exit code is 1 when some
    could not.
    """
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


def _tolerance(f: int, k: int) -> str:
    fail = f"any {f} may fail" if f else "none may fail"
    return f"{fail}, {k} {'is' if k == 1 else 'are'} enough to read"
