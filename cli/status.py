"""hybrisfs status"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

import click

from cli.mirror import describe as describe_mirror
from cli.output import (
    columns,
    count,
    describe_machines_only,
    describe_retention,
    json_option,
    pending_work,
    quoted,
    show,
    shown,
    size,
)
from cli.transfers import describe_hold
from cli.volume_name import complete_volumes
from hybrisfs.api.clouds import CloudStatus
from hybrisfs.api.devices import Device
from hybrisfs.api.request import message_of
from hybrisfs.api.status import (
    AnyVolume,
    Cache,
    MissingMount,
    Status,
    StatusRequest,
    UnusableVolume,
    VolumeStatus,
)
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
        facts = client.call(StatusRequest(name=name))
    show(facts, as_json, describe)
    alarming = (
        isinstance(volume, UnusableVolume) or volume.missing_mount is not None for volume in facts.volumes
    )
    return 1 if any(alarming) else 0


def describe(facts: Status) -> list[str]:
    """The status of all volumes, as lines for a terminal."""
    lines: list[str] = []
    for volume in facts.volumes:
        lines += [*([""] if lines else []), *_describe_volume(volume)]
    return lines or ["There is no volume yet: hybrisfs quickstart makes one."]


def _describe_volume(volume: AnyVolume) -> list[str]:
    name = click.style(shown(volume.name), bold=True)
    if isinstance(volume, UnusableVolume):
        reason, *advice = _message(volume.last_error or "see the log")
        return [f"{name}  {click.style('cannot be used', fg='red')}: {reason}", *advice]
    where = f"mounted at {shown(volume.mountpoint)}" if volume.mountpoint else "not mounted"
    missing = volume.missing_mount
    lines = [f"{name}  {where}"] if missing is None else _describe_missing(name, volume.name, missing)
    lines.append(f"  {_sentence(volume)}")
    lines += columns([_describe_cloud(cloud) for cloud in volume.clouds], indent="    ")
    lines.append(f"  {count(volume.files, 'file')}, {size(volume.bytes)}; {_describe_cache(volume.cache)}")
    if volume.versions.bytes:
        lines.append(f"  earlier versions: {size(volume.versions.bytes)} (hybrisfs versions)")
    hold = describe_hold(volume.transfers)
    if hold is not None:
        lines.append(click.style(f"  {hold}", fg="yellow"))
    if volume.conflicts:
        lines.append(f"  {count(volume.conflicts, 'conflict')} to settle")
    lines += _describe_devices(volume.devices)
    lines += [f"  {line}" for one in volume.mirrors for line in describe_mirror(one)]
    lines += [f"  {shown(text)}" for text in volume.jobs]
    lines += [click.style(f"  {shown(text)}", fg="yellow") for text in volume.warnings]
    lines += [f"  {shown(text)}" for text in volume.notices]
    if volume.last_error:
        first, *advice = _message(volume.last_error)
        lines += [f"  last error: {first}", *(f"  {line}" for line in advice)]
    return lines


def _describe_missing(name: str, volume: str, missing: MissingMount) -> list[str]:
    """*name* is that of the *volume* as it is shown."""
    place = shown(missing.directory)
    alarm = click.style(f"is not mounted at {place}, as it should be", fg="red")
    reason, *advice = _message(missing.reason)
    command = f"hybrisfs mount {quoted(volume)} {quoted(missing.directory)}"
    remedy = f"  {command} mounts it; hybrisfs umount {quoted(volume)} forgets that it should be."
    return [f"{name}  {alarm}: {reason}", *advice, remedy]


def _message(text: str) -> list[str]:
    """An error's message: what and why, and on a line of its own, indented, what to do."""
    first, *others = text.splitlines()
    return [shown(first), *(f"  {shown(line)}" for line in others)]


def _describe_devices(devices: list[Device]) -> list[str]:
    """One line for all devices; one more for each whose changes may be missing."""
    others = [one for one in devices if not one.this]
    if not others:
        return []
    linked = [shown(one.name) for one in others if one.linked]
    lines = [
        f"  {count(len(devices), 'device')}" + (f", linked with {' and '.join(linked)}" if linked else "")
    ]
    for one in others:
        if one.suspect:
            since = _moment(one.seen)
            lines.append(
                click.style(f"  may be missing changes of {shown(one.name)} since {since}", fg="yellow")
            )
    return lines


def _moment(seconds: float | None) -> str:
    return "ever" if seconds is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _sentence(volume: VolumeStatus) -> str:
    """Is everything safe? If not, why not, and what follows."""
    verdict = judge(volume)
    if verdict.level == "removed":
        return click.style(
            "This device was removed from the volume: what changes here reaches no other device.", fg="red"
        )
    clouds, needed, working, pending = volume.clouds, verdict.needed, verdict.working, verdict.pending
    unreadable, unwritable = verdict.unreadable, verdict.unwritable
    waiting = pending_work(volume.pending_files, volume.pending_bytes)
    though = f", though {_names(unwritable)}" if unwritable else ""
    hold, elsewhere = describe_hold(volume.transfers), machines_only(volume.machines_only)
    if elsewhere is not None and not (volume.pending_files or volume.pending_bytes):
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
    elif volume.missing_mount is not None:
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
    if unreadable and machines_only(volume.machines_only) is None:
        sentence += " All of it can be read."
    return click.style(sentence, fg="yellow" if pending or unwritable else "green")


def _names(clouds: Sequence[CloudStatus]) -> str:
    """ "usb is down and nas is full" """
    return " and ".join(f"{shown(cloud.name)} is {cloud.state}" for cloud in clouds)


def _describe_cloud(cloud: CloudStatus) -> list[str]:
    state = click.style(cloud.state, fg=_COLOURS.get(cloud.state, "red"))
    kept = cloud.retention
    keeps = ""
    if kept is not None and kept.keeps:
        though = ", but this machine could destroy them" if kept.destructible else ""
        keeps = f"  (keeps deleted objects: {describe_retention(kept)}{though})"
    return [
        shown(cloud.name),
        state,
        shown(cloud.reason or cloud.url) + keeps,
    ]


def _describe_cache(cache: Cache) -> str:
    return f"cache {size(cache.bytes)} of {size(cache.budget)}"


def _watch(client: Client, name: str | None, as_json: bool) -> None:
    """Show the status over and over, until a KeyboardInterrupt."""
    if as_json or not sys.stdout.isatty():
        for facts in _facts(client, name):
            click.echo(json.dumps(message_of(facts)) if as_json else "\n".join([*describe(facts), ""]))
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=False) as live:
        for facts in _facts(client, name):
            live.update(Text.from_ansi("\n".join(describe(facts))), refresh=True)


def _facts(client: Client, name: str | None) -> Iterator[Status]:
    for number in itertools.count():
        yield client.call(StatusRequest(name=name, without_look=number % _ASK_CLOUDS != 0))
        time.sleep(_EVERY)
