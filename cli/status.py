"""hybrisfs status, sync, events: is everything safe, and what has happened?"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from cli.arguments import complete_places, place_unless_volume, span
from cli.copies import describe as describe_copies
from cli.mirror import describe as describe_mirror
from cli.output import (
    columns,
    count,
    describe_archive,
    describe_ignored,
    describe_machines_only,
    describe_retention,
    json_option,
    pending_work,
    print_json,
    progress_bar,
    quoted,
    show,
    shown,
    size,
)
from cli.transfers import describe_hold
from cli.usage import command, volume_argument
from hybrisfs.api.clouds import CloudStatus
from hybrisfs.api.devices import Device
from hybrisfs.api.ignoring import Ignored
from hybrisfs.api.request import message_of
from hybrisfs.api.status import (
    AnyVolume,
    Cache,
    EventsRequest,
    MissingMount,
    Pending,
    PendingRequest,
    Status,
    StatusRequest,
    Synced,
    SyncRequest,
    UnusableVolume,
    VolumeEvent,
    VolumeStatus,
)
from hybrisfs.api.traffic import TrafficRequest
from hybrisfs.client import Client, judge, machines_only

_EVERY: Final = 1.0  # seconds between two looks
_ASK_CLOUDS: Final = 5  # every how many looks the clouds are asked, too
_COLOURS: Final = {"ok": "green", "slow": "yellow", "full": "yellow"}


@command(
    epilog="""\b
Examples:
  hybrisfs status
  hybrisfs status photos --watch
  hybrisfs status ~/HybrisFS/letter.odt
  hybrisfs status --json"""
)
@volume_argument("place", metavar="NAME|PATH", required=False, complete=complete_places)
@json_option
@click.option("--watch", is_flag=True, help="Show it again every second, until Ctrl-C.")
def status(place: str | None, as_json: bool, watch: bool) -> int:
    """Show whether everything is safe, what is pending, and how each cloud is.

    NAME is a volume; without it, all are shown. With the PATH of a file or folder in a mounted volume, says
    in one line whether the clouds have it. With --watch, also shows what is on its way to clouds and from
    them at each moment.

    The exit code is 1 when a volume cannot be used at all, or is not mounted though it should be; a cloud
    that fails is no reason for that.
    """
    with Client.connect() as client:
        found = place_unless_volume(client, place) if place is not None else None
        if found is not None and found.path:
            if watch:
                raise click.UsageError("--watch goes with a volume, not with a path")
            waiting = client.call(PendingRequest(*found, limit=1))
            show(waiting, as_json, lambda facts: [_describe_path(str(place), facts)])
            return 0
        name = place if found is None else found.volume
        if watch:
            _watch(client, name, as_json)
        facts = client.call(StatusRequest(name=name))
    show(facts, as_json, describe)
    alarming = (
        isinstance(volume, UnusableVolume) or volume.missing_mount is not None for volume in facts.volumes
    )
    return 1 if any(alarming) else 0


def _describe_path(path: str, facts: Pending) -> str:
    """Whether the clouds have what is at a path."""
    if facts.total:
        return (
            f"{shown(path)} waits for the clouds: {pending_work(facts.total, facts.bytes)}. "
            f"hybrisfs pending {quoted(path)} says why, and how long that may take."
        )
    try:
        state = os.getxattr(path, "user.hybrisfs.state").decode()
    except OSError:  # a folder or a link has none
        state = ""
    if state == "ignored":
        return f"{shown(path)} is on this machine only, by an ignore rule: hybrisfs ignore list shows these."
    if state in ("local", "uploading"):
        return f"{shown(path)} is on your machines only: hybrisfs status {quoted(facts.name)} says why."
    if Path(path).is_dir():
        return f"Nothing in {shown(path)} waits for the clouds."
    return f"{shown(path)} is safe: the clouds have all of it."


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
    if volume.archive is not None:
        lines.append(f"  {describe_archive(volume.archive)}")
    hold = describe_hold(volume.transfers)
    if hold is not None:
        lines.append(click.style(f"  {hold}", fg="yellow"))
    if volume.conflicts:
        lines.append(f"  {count(volume.conflicts, 'conflict')} to settle")
    ignored = describe_ignored(volume.ignored)
    if ignored:
        lines.append(f"  ignore rules keep {ignored} on this machine only (hybrisfs ignore list)")
    lines += _describe_devices(volume.devices)
    lines += [f"  {line}" for line in describe_copies(volume.copies)]
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
        f"  {count(len(devices), 'machine')}" + (f", linked with {' and '.join(linked)}" if linked else "")
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
            "This machine was removed from the volume: what changes here reaches no other machine.", fg="red"
        )
    clouds, needed, working, pending = volume.clouds, verdict.needed, verdict.working, verdict.pending
    unreadable, unwritable = verdict.unreadable, verdict.unwritable
    waiting = pending_work(volume.pending_files, volume.pending_bytes)
    wait = f"{waiting} {'waits' if volume.pending_files == 1 else 'wait'} on this machine"
    though = f", though {_names(unwritable)}" if unwritable else ""
    hold, elsewhere = describe_hold(volume.transfers), machines_only(volume.machines_only)
    if elsewhere is not None and not (volume.pending_files or volume.pending_bytes):
        sentence = describe_machines_only(elsewhere)
        if working < needed:
            sentence += f" {needed} clouds are needed, {working} of {len(clouds)} work."
        elsewhere = None
    elif pending and hold is not None:
        sentence = f"{wait}{though}."
    elif pending and working < needed:
        sentence = f"{wait}: {needed} clouds are needed, {working} of {len(clouds)} work."
    elif pending:
        sentence = f"{waiting} on the way to the clouds{though}."
    elif volume.missing_mount is not None:
        sentence = f"What was stored in it is on {needed} of {len(clouds)} clouds{though}."
    elif unreadable:
        sentence = f"{_everything(volume.ignored)} is on the clouds{though}."
    else:
        sentence = f"{_everything(volume.ignored)} is safe on {needed} of {len(clouds)} clouds{though}."
    if elsewhere is not None:
        sentence += f" {describe_machines_only(elsewhere)}"
    if verdict.level == "danger":
        return click.style(
            f"{sentence} What is not cached here may be unreadable until they are back.", fg="red"
        )
    if unreadable and machines_only(volume.machines_only) is None:
        sentence += " All of it can be read."
    return click.style(sentence, fg="yellow" if pending or unwritable else "green")


def _everything(ignored: Ignored) -> str:
    return "Everything but what ignore rules keep here" if ignored.files else "Everything"


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


_SHOWN_FROM: Final = 64_000  # bytes


def _watch(client: Client, name: str | None, as_json: bool) -> None:
    """Show the status over and over, until a KeyboardInterrupt."""
    if as_json or not sys.stdout.isatty():
        for facts in _facts(client, name):
            lines = [] if as_json else [*describe(facts), *_moving(client, facts), ""]
            click.echo(json.dumps(message_of(facts)) if as_json else "\n".join(lines))
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False, screen=False) as live:
        for facts in _facts(client, name):
            lines = [*describe(facts), *_moving(client, facts)]
            live.update(Text.from_ansi("\n".join(lines)), refresh=True)


def _moving(client: Client, facts: Status) -> Iterator[str]:
    """What is on its way to clouds and from them at this moment; what is small is over before it is read."""
    for volume in facts.volumes:
        if isinstance(volume, UnusableVolume):
            continue
        for cloud in client.call(TrafficRequest(volume.name)).clouds:
            for one in cloud.transfers:
                if one.size >= _SHOWN_FROM:
                    way = "to" if one.operation == "put" else "from"
                    speed = f", {size(round(one.moved / one.seconds))}/s" if one.seconds > 1 else ""
                    yield f"  {size(one.moved)} of {size(one.size)} {way} {shown(cloud.name)}{speed}"


def _facts(client: Client, name: str | None) -> Iterator[Status]:
    for number in itertools.count():
        yield client.call(StatusRequest(name=name, without_look=number % _ASK_CLOUDS != 0))
        time.sleep(_EVERY)


# -- hybrisfs sync --------------------------------------------------------------------------------------


_TIMED_OUT: Final = 3


@command(epilog="\b\nExample:\n  hybrisfs sync --wait --timeout 600 && poweroff")
@volume_argument(required=False)
@click.option("--wait", is_flag=True, help="Wait until all that was written before is safe on the clouds.")
@click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0),
    help="With --wait: give up after S seconds, exit code 3.",
)
@json_option
def sync(name: str | None, wait: bool, timeout: float | None, as_json: bool) -> int:
    """Bring all that is pending in the volume NAME to the clouds.

    Without --wait, starts that now and says what is pending. NAME can be left out when there is one volume.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    with Client.connect() as client, progress_bar("bytes") as show:
        facts = client.call(
            SyncRequest(name=name, wait=wait, timeout=timeout),
            lambda step: show("uploading", step.done, step.total),
        )
    if as_json:
        print_json(facts)
    else:
        _explain(facts, wait, timeout)
    return _TIMED_OUT if wait and not facts.done else 0


def _explain(facts: Synced, wait: bool, timeout: float | None) -> None:
    name = shown(facts.name)
    if facts.done:
        click.echo(f"{name}: {_everything(facts.ignored).lower()} is safe on the clouds.")
        return
    elsewhere = machines_only(facts.machines_only)
    mine = elsewhere is None or facts.pending_files or facts.pending_bytes
    pending = pending_work(facts.pending_files, facts.pending_bytes)
    if not wait:
        if mine:
            click.echo(f"{name}: {pending} on the way to the clouds; hybrisfs sync --wait waits for them.")
        if elsewhere is not None:
            click.echo(f"{name}: {describe_machines_only(elsewhere)}")
        return
    if mine:
        click.echo(f"{name}: {pending} still pending after {timeout:g} s; the upload goes on.", err=True)
    if elsewhere is not None:
        click.echo(f"{name}: after {timeout:g} s {describe_machines_only(elsewhere)}", err=True)
    for cloud in facts.clouds:
        if cloud.state != "ok":
            reason = f": {shown(cloud.reason)}" if cloud.reason else ""
            click.echo(f"  {shown(cloud.name)} is {cloud.state}{reason}", err=True)


# -- hybrisfs events ------------------------------------------------------------------------------------


_WAIT: Final = 30.0  # seconds
_LIMIT: Final = 50
_MOST: Final = 1000
_EVENT_COLOURS: Final = {"trouble": "yellow", "over": "green"}


@command(
    epilog="\b\nExamples:\n  hybrisfs events\n  hybrisfs events --since 2d\n  hybrisfs events --follow --json"
)
@volume_argument(required=False)
@click.option("--since", metavar="TIME", help="Only what has happened since: 2h, 3d, or 2026-11-20T18:00.")
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=_LIMIT, show_default=True, help="The last ones."
)
@click.option("--follow", is_flag=True, help="Go on with what happens from now on, until Ctrl-C.")
@json_option
def events(name: str | None, since: str | None, limit: int, follow: bool, as_json: bool) -> None:
    """Show what has happened: clouds that failed and came back, conflicts, machines, errors.

    With --json, each event is one line: "volume", "number", "time" (seconds since 1970), "kind" (trouble,
    over, news), "topic" and "text". Trouble of a topic lasts until it is over. NAME can be left out.
    """
    earliest = _parsed_moment(since) if since is not None else 0.0
    limit = _MOST if since is not None else limit
    with Client.connect() as client:
        found = client.call(EventsRequest(name, limit=limit))
        past = [one for one in found.events if one.time >= earliest]
        _show(past, as_json)
        if not past and not as_json:
            click.echo("No events yet. Ctrl-C ends this." if follow else "No events.")
        while follow:
            found = client.call(EventsRequest(name, after=found.after, wait=_WAIT))
            _show(found.events, as_json)


def _show(found: list[VolumeEvent], as_json: bool) -> None:
    for event in found:
        click.echo(json.dumps(message_of(event)) if as_json else _line(event))


def _line(event: VolumeEvent) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
    kind = click.style(f"{event.kind:7}", fg=_EVENT_COLOURS.get(event.kind))
    return f"{when}  {kind}  {shown(event.volume)}: {shown(event.text)}"


def _parsed_moment(text: str) -> float:
    ago = span(text)
    if ago is not None:
        return time.time() - ago
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{text!r} is neither a span like 2h or 3d nor a date") from None
