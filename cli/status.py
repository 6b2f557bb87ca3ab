"""hybrisfs status"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from cli.mirror import describe as describe_mirror
from cli.output import (
    columns,
    count,
    describe_machines_only,
    describe_retention,
    json_option,
    pending_work,
    print_json,
    quoted,
    shown,
    size,
)
from cli.transfers import describe_hold
from cli.volume_name import complete_volumes
from hybrisfs.client import Client, judge, machines_only

_EVERY: Final = 1.0  # seconds between two looks
_ASK_CLOUDS: Final = 5  # every how many looks the clouds are asked, too
_COLOURS: Final = {"ok": "green", "slow": "yellow", "full": "yellow"}


@click.command(
    epilog="\b\nExamples:\n  hybrisfs status\n  hybrisfs status photos --watch\n  hybrisfs status --json"
)
@click.argument("name", required=False, shell_complete=complete_volumes)
@json_option
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
def status(name: str | None, as_json: bool, watch: bool) -> int:
    """Show whether everything is safe, what is pending, and how each cloud is.

    The exit code is 1 when a volume cannot be used at all, or is not mounted though it should be; a cloud
    that fails is no reason for that.
    """
    with Client.connect() as client:
        if watch:
            _watch(client, name, as_json)
        facts = client.call("status", {"name": name})
    if as_json:
        print_json(facts)
    else:
        click.echo("\n".join(describe(facts)))
    alarming = (volume.get("unusable") or volume.get("missing_mount") for volume in facts["volumes"])
    return 1 if any(alarming) else 0


def describe(facts: dict[str, Any]) -> list[str]:
    """The status of all volumes, as lines for a terminal."""
    lines: list[str] = []
    for volume in facts["volumes"]:
        lines += [*([""] if lines else []), *_describe_volume(volume)]
    return lines or ["There is no volume yet: hybrisfs quickstart makes one."]


def _describe_volume(volume: dict[str, Any]) -> list[str]:
    name = click.style(shown(volume["name"]), bold=True)
    if volume.get("unusable"):
        reason, *advice = _message(volume["last_error"] or "see the log")
        return [f"{name}  {click.style('cannot be used', fg='red')}: {reason}", *advice]
    where = f"mounted at {shown(volume['mountpoint'])}" if volume["mountpoint"] else "not mounted"
    lines = _describe_missing(name, volume) if volume.get("missing_mount") else [f"{name}  {where}"]
    lines.append(f"  {_sentence(volume)}")
    lines += columns([_describe_cloud(cloud) for cloud in volume["clouds"]], indent="    ")
    lines.append(f"  {count(volume['files'], 'file')}, {size(volume['bytes'])}; {_describe_cache(volume)}")
    versions = volume.get("versions")
    if versions is not None and versions["bytes"]:
        lines.append(f"  earlier versions: {size(versions['bytes'])} (hybrisfs versions)")
    hold = _hold(volume)
    if hold is not None:
        lines.append(click.style(f"  {hold}", fg="yellow"))
    if volume.get("conflicts"):
        lines.append(f"  {count(volume['conflicts'], 'conflict')} to settle")
    lines += _describe_devices(volume["devices"])
    lines += [f"  {line}" for one in volume.get("mirrors", ()) for line in describe_mirror(one)]
    lines += [f"  {shown(text)}" for text in volume.get("jobs", ())]
    lines += [click.style(f"  {shown(text)}", fg="yellow") for text in volume.get("warnings", ())]
    lines += [f"  {shown(text)}" for text in volume.get("notices", ())]
    if volume.get("last_error"):
        first, *advice = _message(volume["last_error"])
        lines += [f"  last error: {first}", *(f"  {line}" for line in advice)]
    return lines


def _describe_missing(name: str, volume: Mapping[str, Any]) -> list[str]:
    missing = volume["missing_mount"]
    place = shown(missing["directory"])
    alarm = click.style(f"is not mounted at {place}, as it should be", fg="red")
    reason, *advice = _message(missing["reason"])
    command = f"hybrisfs mount {quoted(volume['name'])} {quoted(missing['directory'])}"
    remedy = f"  {command} mounts it; hybrisfs umount {quoted(volume['name'])} forgets that it should be."
    return [f"{name}  {alarm}: {reason}", *advice, remedy]


def _message(text: str) -> list[str]:
    """An error's message: what and why, and on a line of its own, indented, what to do."""
    first, *others = text.splitlines()
    return [shown(first), *(f"  {shown(line)}" for line in others)]


def _describe_devices(devices: list[dict[str, Any]]) -> list[str]:
    """One line for all devices; one more for each whose changes may be missing."""
    others = [one for one in devices if not one.get("this")]
    if not others:
        return []
    linked = [shown(one["name"]) for one in others if one.get("linked")]
    lines = [
        f"  {count(len(devices), 'device')}" + (f", linked with {' and '.join(linked)}" if linked else "")
    ]
    for one in others:
        if one.get("suspect"):
            since = _moment(one.get("last_seen"))
            lines.append(
                click.style(f"  may be missing changes of {shown(one['name'])} since {since}", fg="yellow")
            )
    return lines


def _moment(seconds: float | None) -> str:
    return "ever" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _sentence(volume: dict[str, Any]) -> str:
    """Is everything safe? If not, why not, and what follows."""
    verdict = judge(volume)
    if verdict.level == "removed":
        return click.style(
            "This device was removed from the volume: what changes here reaches no other device.", fg="red"
        )
    clouds, needed, working, pending = volume["clouds"], verdict.needed, verdict.working, verdict.pending
    unreadable, unwritable = verdict.unreadable, verdict.unwritable
    waiting = pending_work(volume)
    though = f", though {_names(unwritable)}" if unwritable else ""
    hold, elsewhere = _hold(volume), machines_only(volume)
    if elsewhere is not None and not (volume["pending_files"] or volume["pending_bytes"]):
        sentence = describe_machines_only(elsewhere)
        if working < needed:
            sentence += f" {needed} clouds are needed, {working} of {len(clouds)} work."
        elsewhere = None
    elif pending and hold is not None:
        sentence = f"{waiting} wait on this device{though}."
    elif pending and working < needed:
        sentence = (
            f"{waiting} wait on this device: {needed} clouds are needed, {working} of {len(clouds)} work."
        )
    elif pending:
        sentence = f"{waiting} on the way to the clouds{though}."
    elif volume.get("missing_mount"):
        sentence = f"What was stored in it is on {needed} of {len(clouds)} clouds{though}."
    elif unreadable:
        sentence = f"Everything is on the clouds{though}."
    else:
        sentence = f"Everything is safe on {needed} of {len(clouds)} clouds{though}."
    if elsewhere is not None:
        sentence += f" {describe_machines_only(elsewhere)}"
    if verdict.level == "danger":
        return click.style(
            f"{sentence} What is not cached here may be unreadable until they are back.", fg="red"
        )
    if unreadable and machines_only(volume) is None:
        sentence += " All of it can be read."
    return click.style(sentence, fg="yellow" if pending or unwritable else "green")


def _hold(volume: dict[str, Any]) -> str | None:
    return describe_hold(volume["transfers"]) if volume.get("transfers") else None


def _names(clouds: Sequence[Mapping[str, Any]]) -> str:
    """ "usb is down and nas is full" """
    return " and ".join(f"{shown(cloud['name'])} is {cloud['state']}" for cloud in clouds)


def _describe_cloud(cloud: dict[str, Any]) -> list[str]:
    state = click.style(cloud["state"], fg=_COLOURS.get(cloud["state"], "red"))
    kept = cloud.get("retention")
    keeps = ""
    if kept and kept["keeps"]:
        though = ", but this machine could destroy them" if kept["destructible"] else ""
        keeps = f"  (keeps deleted objects: {describe_retention(kept)}{though})"
    return [
        shown(cloud["name"]),
        state,
        (shown(cloud["reason"]) if cloud.get("reason") else shown(cloud["url"])) + keeps,
    ]


def _describe_cache(volume: dict[str, Any]) -> str:
    return f"cache {size(volume['cache']['bytes'])} of {size(volume['cache']['budget'])}"


def _watch(client: Client, name: str | None, as_json: bool) -> None:
    """Show the status over and over, until a KeyboardInterrupt."""
    if as_json or not sys.stdout.isatty():
        for facts in _facts(client, name):
            click.echo(json.dumps(facts) if as_json else "\n".join([*describe(facts), ""]))
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=False) as live:
        for facts in _facts(client, name):
            live.update(Text.from_ansi("\n".join(describe(facts))), refresh=True)


def _facts(client: Client, name: str | None) -> Iterator[dict[str, Any]]:
    for number in itertools.count():
        yield client.call("status", {"name": name, "without_look": number % _ASK_CLOUDS != 0})
        time.sleep(_EVERY)
