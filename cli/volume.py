"""hybrisfs volume create, list, set, redundancy, rebuild"""

from __future__ import annotations

from typing import Any, Final

import click

from cli.output import columns, count, json_option, print_json, quoted, shown
from cli.progress import progress_bar
from cli.volume_name import complete_volumes
from hybrisfs.client import Client

_NOT_YET: Final = 3


@click.group()
def volume() -> None:
    """Create and list volumes, and change how they behave."""


@volume.command(
    epilog="""\b
Example:
  hybrisfs volume create photos --cloud file:///mnt/usb/photos \\
    --cloud file:///mnt/nas/photos --cloud file:///srv/photos -f 1 -k 1"""
)
@click.argument("name")
@click.option(
    "--cloud", "clouds", metavar="URL", multiple=True, required=True, help="A cloud; give it once for each."
)
@click.option(
    "-f", "f", type=click.IntRange(min=0), help="How many clouds may fail or lie. Default: 1, if there are 3."
)
@click.option(
    "-k", "k", type=click.IntRange(min=1), help="How many clouds are needed to read: 1 keeps whole copies."
)
@click.option(
    "--evict-liars",
    is_flag=True,
    help="Suspend a machine at once against which there is a proof that no backup explains.",
)
@json_option
def create(
    name: str, clouds: tuple[str, ...], f: int | None, k: int | None, evict_liars: bool, as_json: bool
) -> None:
    """Create the volume NAME over the clouds with the given URLs.

    Everything is kept on f+k clouds, any f of which may vanish or lie; with k above 1 each keeps a k-th of
    the data. That takes 2f+k clouds or more.
    """
    with Client.connect() as client:
        arguments = {"name": name, "clouds": list(clouds), "f": f, "k": k}
        facts = client.call("volume create", arguments | ({"evict_liars": True} if evict_liars else {}))
    if as_json:
        print_json(facts)
        return
    made = facts["volume"]
    click.echo(
        f"Created the volume {shown(made['name'])} over {count(len(made['clouds']), 'cloud')}: everything is "
        f"kept on {made['f'] + made['k']} of them, {_tolerance(made)}."
    )
    click.echo(f"Next: hybrisfs mount {quoted(made['name'])} DIR")


@volume.command("list", epilog="\b\nExample:\n  hybrisfs volume list --json")
@json_option
def list_(as_json: bool) -> None:
    """List the volumes of this device."""
    with Client.connect() as client:
        facts = client.call("volume list")
    if as_json:
        print_json(facts)
        return
    if not facts["volumes"]:
        click.echo("There is no volume yet: hybrisfs quickstart makes one.")
        return
    rows = [["NAME", "CLOUDS", "MAY FAIL", "MOUNTED AT"]]
    for each in facts["volumes"]:
        where = shown(each["mountpoint"]) if each["mountpoint"] else "-"
        rows.append([shown(each["name"]), str(len(each["clouds"])), str(each["f"]), where])
    click.echo("\n".join(columns(rows, indent="")))


@volume.command("set", epilog="\b\nExample:\n  hybrisfs volume set photos --stale-reads block")
@click.argument("name", shell_complete=complete_volumes)
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
    "--veto-hours",
    type=click.IntRange(1, 24 * 3660),
    help="How long the removal of a machine can be vetoed before this machine seconds it. Default: 72.",
)
@click.option(
    "--evict-liars",
    type=click.Choice(["on", "off"]),
    help="Whether this machine suspends those against which there is a proof that no backup explains.",
)
@json_option
def set_(
    name: str,
    stale_reads: str | None,
    keep_versions: str | None,
    notifications: str | None,
    veto_hours: int | None,
    evict_liars: str | None,
    as_json: bool,
) -> None:
    """Change how the volume NAME behaves on this machine.

    With --stale-reads block, a program that opens a file for reading waits up to 30 seconds while changes of
    another machine may be missing here, and then fails with "Connection timed out". Machines that are shut
    down in good order hold nobody up. With warn, the default, hybrisfs status tells of it.

    By default every version is kept for a day, that of each midnight for a week, of each Monday for a month,
    of each first of a month for a year. Spans are counted in h, d, w, m and y; beyond the room in bytes the
    oldest versions go sooner. Other machines of the volume keep what they are told to.
    """
    wanted = {
        "stale_reads": stale_reads,
        "keep_versions": keep_versions,
        "notifications": None if notifications is None else notifications == "on",
        **({"veto_hours": veto_hours} if veto_hours is not None else {}),
        **({"evict_liars": evict_liars == "on"} if evict_liars is not None else {}),
    }
    if all(one is None for one in wanted.values()):
        raise click.UsageError("nothing to be set: use an option, see --help.")
    with Client.connect() as client:
        facts = client.call("volume set", {"name": name, **wanted})
    if as_json:
        print_json(facts)
        return
    if stale_reads is not None:
        click.echo(f"{shown(name)}: stale reads are {'blocked' if stale_reads == 'block' else 'warned of'}.")
    if keep_versions is not None:
        click.echo(f"{shown(name)}: versions kept are {facts['keep_versions']}.")
    if notifications is not None:
        click.echo(f"{shown(name)}: notifications are {notifications}.")
    if veto_hours is not None:
        click.echo(f"{shown(name)}: removals can be vetoed for {veto_hours} hours.")
    if evict_liars is not None:
        click.echo(f"{shown(name)}: machines are {'' if evict_liars == 'on' else 'not '}suspended by proofs.")


@volume.command(epilog="\b\nExample:\n  hybrisfs volume redundancy photos -f 2 -k 1 --wait")
@click.argument("name", required=False, shell_complete=complete_volumes)
@click.option("-f", "f", type=click.IntRange(min=0), help="How many clouds may fail or lie.")
@click.option("-k", "k", type=click.IntRange(min=1), help="How many clouds are needed to read.")
@click.option("--wait", is_flag=True, help="Return when all is written anew.")
@click.option("--timeout", type=click.FloatRange(min=0), help="Wait no longer than so many seconds.")
@json_option
def redundancy(
    name: str | None, f: int | None, k: int | None, wait: bool, timeout: float | None, as_json: bool
) -> int:
    """Change how many clouds of the volume NAME may fail, and how many are needed to read.

    What is not given stays as it is. It counts for what is written from now on; what is stored is read and
    written anew in the background. The exit code is 3 when that is not done in time.
    """
    if f is None and k is None:
        raise click.UsageError("give -f, -k or both")
    with Client.connect() as client:
        facts = client.call("volume redundancy", {"name": name, "f": f, "k": k})
    facts |= {"done": False, "trouble": ""}
    if wait:
        with Client.connect() as client, progress_bar("packs") as show:
            facts |= client.call(
                "volume redundancy wait",
                {"name": name, "timeout": timeout},
                lambda step: show("written anew", step["done"], step["total"]),
            )
    if as_json:
        print_json(facts)
    else:
        click.echo(
            f"{shown(facts['name'])} keeps everything on {count(facts['f'] + facts['k'], 'cloud')} now: "
            f"{_tolerance(facts)}."
        )
        if not facts["done"]:
            why = (
                f": {shown(facts['trouble'])}"
                if facts["trouble"]
                else ", hybrisfs status shows how far it is"
            )
            click.echo(f"What is stored already is written anew in the background{why}.")
    return _NOT_YET if wait and not facts["done"] else 0


@volume.command(epilog="\b\nExample:\n  hybrisfs volume rebuild photos")
@click.argument("name", shell_complete=complete_volumes)
@json_option
def rebuild(name: str, as_json: bool) -> int:
    """Make the database of the volume NAME on this machine anew, when it is damaged.

    The damaged files are set aside. What the clouds have comes back from there in the background; files that
    no cloud had are put into a folder of their own, as far as they can be read. The exit code is 1 when some
    could not.
    """
    with Client.connect() as client, progress_bar("files") as show:
        facts = client.call(
            "volume rebuild", {"name": name}, lambda step: show("recovered", step["done"], step["total"])
        )
    if as_json:
        print_json(facts)
    else:
        click.echo(f"Set aside: {shown(facts['set_aside'])}. Remove it when all is well.")
        for path in facts["recovered"]:
            click.echo(f"recovered: {shown(path)}")
        for path in facts["lost"]:
            click.echo(f"lost: {shown(path)}")
        click.echo("What the clouds have comes back in the background: hybrisfs status tells how far it is.")
    return 1 if facts["lost"] else 0


def _tolerance(facts: dict[str, Any]) -> str:
    fail = f"any {facts['f']} may fail" if facts["f"] else "none may fail"
    return f"{fail}, {facts['k']} {'is' if facts['k'] == 1 else 'are'} enough to read"
