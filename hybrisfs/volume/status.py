"""What a volume tells of itself: the facts behind `hybrisfs status`, `hybrisfs device list` and `hybrisfs
pending`."""

from __future__ import annotations

import os
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from hybrisfs.api.clouds import CloudStatus
from hybrisfs.api.devices import Accused, Device, Proposal
from hybrisfs.api.status import Cache, MergedFile, Owing, PendingFile, PendingFiles, Values, VolumeStatus
from hybrisfs.clouds.agreed_clouds import reason_of
from hybrisfs.dispersal.cloud import when_emptied
from hybrisfs.errors import HybrisError
from hybrisfs.peers.settings import Through, format_address
from hybrisfs.read.evict import Shortage
from hybrisfs.shown import quoted, shown
from hybrisfs.state.database import Reader
from hybrisfs.state.packs import what_is_lost
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.shown_nodes import path_along, way_to_root
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import WaitingNode, waiting_nodes

if TYPE_CHECKING:
    from hybrisfs.kv.opening import ValueFacts
    from hybrisfs.volume.opened import Opened

__all__ = ["devices_of", "notices_of", "pending_files", "volume_status"]

_LONG: Final = 86_400  # seconds; until then a cloud that is away is trouble enough
_READER: Final = (
    "this machine only reads the volume: nothing can be changed here. On a full member, "
    "hybrisfs device role NAME full lets it write"
)
_CONTRIBUTOR: Final = (
    "this machine may only change what is in {folders}: elsewhere programs get an error. On a "
    "full member, hybrisfs device role NAME full lets it change all"
)
_NO_FOLDER: Final = "folders that are gone"
_NEWS: Final = 7 * 86_400  # seconds; a fork is joined by itself, and told of for so long
_PATIENCE: Final = 7 * 86_400  # seconds that a device may be away before the status says what waits for it


def volume_status(volume: Opened) -> VolumeStatus:
    """How the volume is, as it is known now."""
    volume.settings.look()
    devices = devices_of(volume)
    values = volume.key_values.facts()
    removed = volume.following.was_removed
    accused = volume.accused()
    jobs, clouds = volume.clouds.jobs(), _clouds_of(volume)
    warnings = [*_about_accused(accused), *_warnings(volume, devices, values), *_about_all(volume, clouds)]
    transfers = volume.transfers.facts()
    checkpoint = volume.checkpoints.facts()
    versions = volume.versions.facts()
    undeletable = volume.collector.undeletable()
    copies, archive = volume.copies.all(), volume.archive.facts()
    fs, mountpoint = volume.fs, volume.mountpoint
    with fs.state.transaction() as tx:
        return VolumeStatus(
            name=volume.name,
            mountpoint=str(mountpoint) if mountpoint else None,
            f=volume.config.f,
            k=volume.config.k,
            files=fs.total_files,
            bytes=fs.content.total_bytes,
            pending_files=fs.ignored.pending_nodes(tx) + len({*tx.chunks.deferred.values()} - {0}),
            pending_bytes=volume.uploads.pending_bytes(tx),
            machines_only=volume.uploads.machines_only(tx),
            ignored=volume.ignoring.facts(tx),
            removed=removed,
            reader=fs.read_only,
            folders=next((one.folders for one in devices if one.this), None),
            conflicts=volume.conflict_table.count(tx)
            + len(volume.key_values.conflicts())
            + len(volume.key_values.moved()),
            clouds=clouds,
            devices=devices,
            accused=accused,
            stale_reads=volume.config.stale_reads,
            notifications=volume.config.notifications,
            jobs=jobs,
            pinned=volume.content.summary(),
            copies=copies,
            checkpoint=checkpoint,
            versions=versions,
            values=Values(
                values.unreadable,
                [Owing(_cloud_name(volume, number), since) for number, since in values.owing.items()],
            ),
            cache=Cache(fs.journal.bytes, fs.journal.budget),
            transfers=transfers,
            mirrors=volume.mirrors.all(),
            undeletable=sum(undeletable.values()),
            warnings=warnings,
            notices=[
                *([_READER] if fs.read_only else []),
                *_about_limits(devices),
                *notices_of(devices, volume.environment.time()),
                *_about_deletions(volume, undeletable),
            ],
            merged=[MergedFile(*one) for one in volume.unasked.merged],
            archive=archive,
            last_error=str(fs.journal.failure) if fs.journal.failure else volume.last_error.text,
        )


def _clouds_of(volume: Opened) -> list[CloudStatus]:
    now, monotonic = volume.environment.time(), volume.environment.monotonic()
    return [
        CloudStatus(
            name=one.name,
            url=one.url,
            state=one.state,
            reason=reason_of(volume.config, volume.engine.upkeep, one),
            since=round(now - (monotonic - one.since)),
            retention=volume.clouds.retention(one.url),
        )
        for one in volume.engine.health()
    ]


def devices_of(volume: Opened) -> list[Device]:
    """See `Following.devices`; with the present links, and since when garbage collection waits for each
    device."""
    awaited = volume.collector.awaited()
    links = {one.device_id.hex(): one for one in volume.links.status()}
    devices = volume.following.devices()
    for device in devices:
        link = links.get(device.id)
        if link is not None:
            device.linked, device.round_trip = True, link.round_trip
            if isinstance(link.place, Through):
                device.relay = format_address(link.place.relay.address)
        device.unanswered_since = awaited.get(bytes.fromhex(device.id), UNSET)
    return devices


def notices_of(devices: Iterable[Device], now: float) -> list[str]:
    """Facts that a person should know at the time *now*, but need not act on, in sentences."""
    told = [
        f"{shown(one.name)} has forked its history on {_day(one.forked_at)}: it was restored from a "
        "backup, or copied. Both are kept; make sure that no copy of it is in use"
        for one in devices
        if one.forked_at is not UNSET and now - one.forked_at < _NEWS
    ]
    return told + [
        _held_up(one, one.unanswered_since)
        for one in devices
        if one.unanswered_since is not UNSET and now - one.unanswered_since >= _PATIENCE
    ]


def _held_up(device: Device, since: float) -> str:
    name, seen = device.name, device.seen
    heard = "has not been seen here yet" if seen is None else f"was last seen on {_day(seen)}"
    beginning = device.id[:8]
    which = beginning if name.endswith(f"({beginning})") else quoted(name)  # others are called the same
    return (
        f"what no file needs any more is not deleted from the clouds since {_day(since)}: {shown(name)} has "
        f"not agreed to that, and {heard}. If it is not used any more, hybrisfs device remove {which} "
        "ends the wait"
    )


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def _about_accused(accused: Iterable[Accused]) -> list[str]:
    """Whom others suspend, this device first."""
    found = []
    for one in sorted(accused, key=lambda one: (not one.this, one.id)):
        if not one.suspended:
            continue
        accusers = " and ".join(shown(vote.by) for vote in one.votes if vote.counts)
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.until)) if one.until else None
        found.append(
            f"{'this machine' if one.this else shown(one.name)} is suspended, as {accusers} says: "
            f"hybrisfs device keep {one.id[:8]} {'on another machine ' if one.this else ''}vetoes that"
            + (f" until {until}" if until else "")
        )
    return found


def _warnings(volume: Opened, devices: list[Device], values: ValueFacts) -> list[str]:
    """What a person should know about other devices, damage and the log on the clouds, in sentences."""
    waiting = [
        f"{shown(one.device)} "
        f"{'overwrites' if one.overwrites else 'deletes'} {one.names} of {one.of} "
        f"{'files' if one.overwrites else 'files and folders'}: "
        "that waits for you, see hybrisfs deletions list"
        for one in volume.sharing.deletions.all()
        if one.examined
    ]
    silent = [one.name for one in devices if one.suspect]
    if silent and volume.following.freshness.blocks:
        waiting.append(
            f"files cannot be opened for reading until {' and '.join(silent)} is seen again; "
            f"hybrisfs volume set {volume.name} --stale-reads warn lets them be opened"
        )
    waiting += _about_roles(volume, devices)
    waiting += _about_losses(volume)
    waiting += volume.unreadable.warnings()
    with volume.fs.state.transaction() as tx:
        damaged = len(tx.chunks.lost)
    if damaged:
        waiting.append(
            f"{damaged} pieces of files are damaged on this disk and on no cloud: "
            f"hybrisfs fsck {volume.name} names the files"
        )
    if volume.key_values.trouble:
        waiting.append(f"the key-value store cannot be used: {volume.key_values.trouble}")
    waiting += _about_values(volume, values)
    waiting += _about_room(volume)
    waiting += volume.copies.warnings()
    waiting += volume.mirrors.broken
    waiting += volume.settings.doubts
    alarms = [one for one in (volume.peering.alarm, volume.checkpoints.checkpointer.machine.alarm) if one]
    return [*waiting, *volume.following.doubts(), *alarms]


def _about_all(volume: Opened, clouds: Sequence[CloudStatus]) -> list[str]:
    """A warning when no cloud is this volume's any more. Who emptied them nobody can prove: a cloud could say
    anything."""
    if not clouds or not all(when_emptied(one.name) in one.reason for one in clouds):
        return []
    return [
        "no cloud has this volume now: it was deleted on another machine, or all of them are away. If it was "
        f"deleted, copy what you need elsewhere, and run hybrisfs volume leave {volume.name} --force"
    ]


def _about_roles(volume: Opened, devices: list[Device]) -> list[str]:
    """Warnings about changes that do not count, and about proposed roles."""
    found = [_proposal(device, one) for device in devices for one in device.proposed or ()]
    found += [
        f"{shown(one.name)} {'is a reader' if one.reader else 'is limited to folders'}, "
        "but has signed other changes: no machine accepts them"
        for one in devices
        if one.overstepped
    ]
    with volume.fs.state.transaction() as tx:
        unsaved = volume.unsaved(tx)
        lacking = volume.fs.read_only and volume.uploads.pending_bytes(tx)
    advice = "copy what you need to another folder, or have it made a full member again"
    if unsaved:
        found.append(
            f"{unsaved:,} files and folders were changed here before this machine heard that it may not, and "
            f"are on no other machine: {advice}"
        )
    elif lacking:
        found.append(
            f"{lacking:,} bytes were written here before this machine was to read only, and are on no cloud: "
            f"other machines get them over a link alone; {advice}"
        )
    return found


def _proposal(device: Device, one: Proposal) -> str:
    """A role that a member proposes for a device, and how to agree to it."""
    who = "this machine" if device.this else shown(device.name)
    folders = one.folders or []
    what = f"change only what is in {_these(folders)}" if folders else "only read"
    words = " ".join([one.role, *(f"--folder {quoted(folder)}" for folder in folders)])
    command = f"hybrisfs device role {device.id[:8]} {words}"
    return f"{shown(one.by)} wants {who} to {what}: {command} on another machine agrees"


def _about_limits(devices: list[Device]) -> list[str]:
    """To what this device is limited."""
    folders = next((one.folders for one in devices if one.this), None)
    return [_CONTRIBUTOR.format(folders=_these(folders))] if folders is not None else []


def _these(folders: Sequence[str]) -> str:
    return ", ".join(map(shown, folders)) or _NO_FOLDER


def _about_deletions(volume: Opened, undeletable: Mapping[int, int]) -> list[str]:
    """What this device may not delete on clouds."""
    return [
        f"{count:,} object{'s wait' if count > 1 else ' waits'} for a machine that may delete "
        f"on {_cloud_name(volume, number)}"
        for number, count in sorted(undeletable.items())
    ]


def _about_room(volume: Opened) -> list[str]:
    """Why programs cannot write. The sentence about one trouble never varies, because a new sentence would be
    reported as news."""
    shortage = volume.room.shortage()
    if shortage is Shortage.DISK:
        folder = shown(str(volume.fs.journal.directory.parent))
        return [f"the disk of {folder} is full: nothing can be written until it has room again"]
    if shortage is Shortage.CACHE:
        more = f"hybrisfs volume set {quoted(volume.name)} --cache SIZE gives it more of the disk"
        with volume.fs.state.transaction() as tx:
            _, ignored = volume.fs.ignored.measure(tx)
        if ignored > volume.fs.journal.budget // 2:
            return [f"the cache is full, mostly of files that ignore rules keep on this machine: {more}"]
        return [
            "the cache is full of changes that no cloud has yet: nothing can be written until the clouds "
            f"take them. {more}"
        ]
    return []


def _about_losses(volume: Opened) -> list[str]:
    """Warnings about what the clouds have lost. The sentence about one trouble never varies, because a new
    sentence would be reported as news."""
    with volume.fs.state.transaction() as tx:
        lost = what_is_lost(tx)
    if not lost.chunks:
        return []
    what = "the clouds have lost content of files, which is on no cloud now"
    command = f"hybrisfs repair {volume.name}"
    if lost.absent:
        advice = f"Some of it is not on this machine: run {command} on those that may hold it"
    else:
        advice = f"It is kept here until it is there again: {command} sees to that at once"
    return [f"{what}. {advice}"]


def _about_values(volume: Opened, values: ValueFacts) -> list[str]:
    """Warnings about the key-value store. The sentence about one trouble never varies, because a new sentence
    would be reported as news."""
    found = []
    if values.unreadable:
        found.append(
            "values of the key-value store cannot be read now, as too few clouds return what was put there: "
            f"hybrisfs scrub {volume.name} names them"
        )
    for number, since in values.owing.items():
        if volume.environment.time() - since > _LONG:
            name = _cloud_name(volume, number)
            day = _day(since)
            remedy = f"when it is back, or with hybrisfs cloud remove {name}"
            if volume.engine.upkeep.refused_deletion(number) is not None:
                remedy = "when this machine has credentials that may delete"
            found.append(
                f"values that were deleted or replaced since {day} are still on {name}: they go {remedy}"
            )
    return found


def _cloud_name(volume: Opened, number: int) -> str:
    return next((one.name for one in volume.config.clouds if one.number == number), f"cloud {number}")


# -- which files the clouds lack something of -----------------------------------------------------------


_SECOND: Final = 10**9


def pending_files(volume: Opened, path: PurePath, limit: int) -> PendingFiles:
    """Up to *limit* of the files and folders at or below *path* that the clouds lack something of, and how
    many and much it is in all. Those that have waited longest come first. Raises HybrisError, OSError."""
    fs = volume.fs

    def top(tx: Transaction) -> tuple[int, set[int]]:
        inode = fs.locate(tx, [os.fsencode(name) for name in path.parts])
        if inode is None:
            raise HybrisError(f"there is no {shown(str(path))} in {shown(volume.name)}")
        return inode.ino, fs.ignored.nodes

    found, total, size = list[tuple[WaitingNode, str | None]](), 0, 0
    with fs.committed(top) as ((ino, aside), database):
        for node, where in _below(database, ino, aside):
            total, size = total + 1, size + node.size
            if len(found) < limit:
                found.append((node, where))
    with fs.state.transaction():
        opened = {node.ino for node, _ in found if _is_held_back(volume, node.ino)}
    files = [
        PendingFile(
            where,
            node.size,
            None if node.changed is None else node.changed / _SECOND,
            is_open=node.ino in opened,
        )
        for node, where in found
    ]
    return PendingFiles(volume.name, str(path), files, total, size)


def _below(database: Reader, top: int, aside: Container[int]) -> Iterator[tuple[WaitingNode, str | None]]:
    """The waiting nodes at or below a folder, but for those that stay here, with their paths from the root
    on; None for one that has no name any more, which is below the root only."""
    for node in (one for one in waiting_nodes(database) if one.ino not in aside):
        way = list(way_to_root(database, node.ino))
        ends = way[-1].folder if way else node.ino
        if ends != ROOT_INO:
            if top == ROOT_INO:
                yield node, None
        elif top in (node.ino, ROOT_INO) or any(step.folder == top for step in way):
            yield node, os.fsdecode(path_along(way))


def _is_held_back(volume: Opened, ino: int) -> bool:
    """Whether a program has it open for writing, and its content waits for that to end."""
    inode = volume.fs.inodes.cached(ino)
    return inode is not None and inode.writers > 0 and inode.dirty_since > 0
