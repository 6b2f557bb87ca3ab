"""The commands of the daemon: what each does to the volumes, and what it answers."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from backends.errors import StoreError
from hybrisfs import VERSION
from hybrisfs.daemon import arguments as read
from hybrisfs.daemon.browsing import BrowsingCommands
from hybrisfs.daemon.clouds import CloudCommands
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.figures import FigureCommands
from hybrisfs.daemon.interfaces import VolumeKind, describe
from hybrisfs.daemon.key_value import KeyValueCommands
from hybrisfs.daemon.life import Life
from hybrisfs.daemon.maintenance import MaintenanceCommands
from hybrisfs.daemon.mirrors import MirrorCommands
from hybrisfs.daemon.observing import Observing
from hybrisfs.daemon.on_demand import ContentCommands
from hybrisfs.daemon.places import PlaceCommands
from hybrisfs.daemon.recorder import Recorder
from hybrisfs.daemon.recovery import RecoveryCommands
from hybrisfs.daemon.sharing import SharingCommands
from hybrisfs.daemon.slots import Slot, Slots
from hybrisfs.daemon.transfers import TransferCommands
from hybrisfs.daemon.versions import VersionCommands
from hybrisfs.daemon.wanted import WantedMount, WantedMounts
from hybrisfs.dispersal.errors import DispersalError
from hybrisfs.errors import DamagedError, HybrisError, UnknownVolumeError, UsageError
from hybrisfs.fuse import clear_stale
from hybrisfs.home import Home
from hybrisfs.volume.config import MOST_HOURS, STALE_READS
from hybrisfs.wire import Message

__all__ = ["Daemon"]

log = logging.getLogger(__name__)

_LOOK_EVERY: Final = 0.5  # seconds between two looks whether a volume is still mounted
_REMOUNTED_WITHIN: Final = 20.0  # seconds that clients wait at the start for the volumes to be back
_QUICKSTART_VOLUME: Final = "home"
_QUICKSTART_CLOUDS: Final = ("cloud-1", "cloud-2", "cloud-3")


class Daemon:
    """All volumes of one user. `handle` may be called from many threads at once."""

    def __init__(self, home: Home, kind: VolumeKind) -> None:
        self._home = home
        self._kind = kind
        self._wanted = WantedMounts(home.state)
        self._slots = Slots(home, kind, self._wanted)
        self._recorder = Recorder(home, self._slots)
        self._creating = threading.Lock()
        self._stopping = threading.Event()
        self._started = time.monotonic()
        self._observing = Observing(home, self._slots, partial(self._status_of, look=False))
        self._commands: dict[str, Callable[[Message, Progress], Message]] = {
            "quickstart": self._quickstart,
            "volume create": self._volume_create,
            "volume list": self._volume_list,
            "volume set": self._volume_set,
            "mount": self._mount,
            "wait unmounted": self._wait_unmounted,
            "umount": self._umount,
            "status": self._status,
            "sync": self._sync,
            "cache drop": self._cache_drop,
            "fsck": self._fsck,
            **BrowsingCommands(self._slots).commands,
            **FigureCommands(self._slots, self._recorder, self._known).commands,
            **self._observing.commands,
            **ContentCommands(self._slots).commands,
            **KeyValueCommands(self._slots).commands,
            **CloudCommands(self._slots).commands,
            **PlaceCommands(home, kind).commands,
            **MirrorCommands(home, self._slots).commands,
            **MaintenanceCommands(self._slots).commands,
            **TransferCommands(self._slots).commands,
            **VersionCommands(self._slots).commands,
            **SharingCommands(home, kind, self._slots, self._creating).commands,
            **RecoveryCommands(home, kind, self._slots, self._creating).commands,
        }

    def start(self, last: Life | None = None) -> None:
        """Open all volumes and remount those that were mounted when the *last* daemon ended, or died.

        Returns when that is done, or goes on in the background when it takes long. A volume that
        fails is logged and does not keep the others.
        """
        if last is not None:
            self._observing.note_death(last, time.time())
        self._recorder.start()
        wanted = self._wanted.all()
        openers = [
            threading.Thread(
                target=self._revive, args=(slot, wanted.get(slot.name)), name=f"open {slot.name}", daemon=True
            )
            for slot in self._slots.all()
        ]
        for opener in openers:
            opener.start()
        deadline = time.monotonic() + _REMOUNTED_WITHIN
        for opener in openers:
            opener.join(max(0.0, deadline - time.monotonic()))
        self._observing.start()

    def stop(self) -> None:
        """Unmount and close all volumes."""
        self._stopping.set()
        self._recorder.stop()
        self._observing.stop()
        self._slots.close()

    def mountpoints(self) -> list[Path]:
        """Where volumes are mounted now."""
        return [place for slot in self._slots.opened() if (place := slot.mountpoint()) is not None]

    def handle(self, command: str, arguments: Message, progress: Progress) -> Message:
        """Carry out a command. Raises `HybrisError`; anything else is a bug."""
        action = self._commands.get(command)
        if action is None:
            raise UsageError(f"the daemon, version {VERSION}, does not know the command {command[:80]!r}")
        try:
            return action(arguments, progress)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise HybrisError(_sentence(error)) from error
            log.error("%s failed: %s", command, error)
            raise DamagedError(
                "a database is damaged",
                str(error),
                "hybrisfs fsck tells which; hybrisfs volume rebuild mends it.",
            ) from error
        except (OSError, StoreError, DispersalError) as error:
            log.warning("%s failed: %s", command, error)
            raise HybrisError(_sentence(error)) from error

    def _revive(self, slot: Slot, mount: WantedMount | None) -> None:
        try:
            slot.open()
            if mount is not None:
                slot.mount(mount, make=False)
        except (HybrisError, OSError, StoreError) as error:
            log.error("cannot %s %s: %s", "remount" if mount else "open", slot.name, error)
        except Exception:
            log.exception("cannot open %s", slot.name)

    def _quickstart(self, arguments: Message, _: Progress) -> Message:
        chosen = read.optional_folder(arguments, "directory")
        clouds = [(self._home.data / "clouds" / name).as_uri() for name in _QUICKSTART_CLOUDS]
        with self._creating:
            created = all(config.name != _QUICKSTART_VOLUME for config in self._slots.configs())
            if created:
                self._kind.create(self._home, _QUICKSTART_VOLUME, clouds, None, None)
        slot = self._slots.get(_QUICKSTART_VOLUME)
        directory = chosen or slot.mountpoint() or self._home.default_mountpoint
        mounted = slot.mount(WantedMount(directory.resolve()), make=True)
        config = next(config for config in self._slots.configs() if config.name == _QUICKSTART_VOLUME)
        return {
            "volume": describe(config),
            "created": created,
            "mounted": mounted,
            "mountpoint": _shown(slot.mountpoint()),
        }

    def _volume_create(self, arguments: Message, _: Progress) -> Message:
        name, clouds = read.text(arguments, "name"), read.texts(arguments, "clouds")
        f, k = read.number(arguments, "f"), read.number(arguments, "k")
        with self._creating:
            config = self._kind.create(self._home, name, clouds, f, k)
        volume = self._slots.get(config.name).open()
        if read.optional_flag(arguments, "evict_liars"):
            volume.settings.set_trials(None, evict_liars=True)
        log.info("created the volume %s over %d clouds", config.name, len(config.clouds))
        return {"volume": describe(config)}

    def _volume_list(self, _: Message, __: Progress) -> Message:
        configs = sorted(self._slots.configs(), key=lambda config: config.name)
        mounts = {slot.name: _shown(slot.mountpoint()) for slot in self._slots.all()}
        return {"volumes": [{**describe(config), "mountpoint": mounts[config.name]} for config in configs]}

    def _volume_set(self, arguments: Message, _: Progress) -> Message:
        volume = self._slots.get(read.text(arguments, "name")).open()
        how, rule = (read.optional_text(arguments, key) for key in ("stale_reads", "keep_versions"))
        shown = read.optional_flag(arguments, "notifications")
        hours, evicts = read.number(arguments, "veto_hours"), read.optional_flag(arguments, "evict_liars")
        answer: Message = {"name": volume.name}
        if all(one is None for one in (how, rule, shown, hours, evicts)):
            raise UsageError(
                "there is nothing to be set",
                "",
                "Name stale_reads, keep_versions, notifications, veto_hours or evict_liars.",
            )
        if hours is not None and not 0 < hours <= MOST_HOURS:
            raise UsageError(f"veto_hours is a number from 1 to {MOST_HOURS}")
        if how is not None:
            if how not in STALE_READS:
                raise UsageError(f"stale_reads is one of {' and '.join(STALE_READS)}")
            volume.settings.set_stale_reads(how)
            answer["stale_reads"] = how
        if rule is not None:
            answer["keep_versions"] = volume.settings.set_keep_versions(rule)
        if shown is not None:
            volume.settings.set_notifications(shown)
            answer["notifications"] = shown
        if hours is not None or evicts is not None:
            volume.settings.set_trials(hours, evict_liars=evicts)
            answer |= {"veto_hours": hours} if hours is not None else {}
            answer |= {"evict_liars": evicts} if evicts is not None else {}
        return answer

    def _mount(self, arguments: Message, _: Progress) -> Message:
        slot = self._slots.get(read.text(arguments, "name"))
        directory = read.folder(arguments, "directory").resolve()
        wanted = WantedMount(directory, read.flag(arguments, "allow_other"))
        mounted = slot.mount(wanted, make=True)
        return {"name": slot.name, "mountpoint": _shown(directory), "mounted": mounted}

    def _wait_unmounted(self, arguments: Message, progress: Progress) -> Message:
        slot = self._slots.get(read.text(arguments, "name"))
        while slot.mountpoint() is not None and not self._stopping.wait(_LOOK_EVERY):
            progress({"mountpoint": _shown(slot.mountpoint())})  # raises when the client is gone
        return {"name": slot.name}

    def _umount(self, arguments: Message, _: Progress) -> Message:
        target, directory = read.text(arguments, "target"), read.folder(arguments, "directory").resolve()
        lazy = read.flag(arguments, "lazy")
        slot = self._slots.mounted_at(directory)
        if slot is None:
            try:
                slot = self._slots.get(target)
            except UnknownVolumeError:
                if clear_stale(directory):
                    return {"name": None, "mountpoint": _shown(directory), "stale": True}
                if "/" in target or directory.is_dir():
                    raise HybrisError(
                        f"no volume is mounted at {directory}", "", self._slots.mounts()
                    ) from None
                raise
        place, found = slot.unmount(lazy=lazy)
        missing = {"missing": True} if found == "missing" else {}
        return {"name": slot.name, "mountpoint": _shown(place), "stale": found == "dead", **missing}

    def _status(self, arguments: Message, _: Progress) -> Message:
        name = read.optional_text(arguments, "name")
        look = not read.flag(arguments, "without_look")
        slots = self._slots.all() if name is None else [self._slots.get(name)]
        return {
            "daemon": {
                "version": VERSION,
                "pid": os.getpid(),
                "uptime": round(time.monotonic() - self._started, 1),
            },
            "volumes": [self._status_of(slot, look=look) for slot in slots],
        }

    def _known(self) -> Message:
        """What `status` answers, without a look at the clouds."""
        return self._status({"without_look": True}, lambda _: None)

    def _status_of(self, slot: Slot, *, look: bool = True) -> dict[str, Any]:
        try:
            slot.notice_unmount()
            facts = slot.open().status(look=look)
            self._observing.date(facts)
            facts["warnings"] = [*facts.get("warnings", ()), *slot.warnings()]
            return {**facts, "missing_mount": slot.missing_mount()}
        except (HybrisError, OSError, StoreError) as error:
            return {
                "name": slot.name,
                "mountpoint": None,
                "files": None,
                "bytes": None,
                "pending_files": None,
                "pending_bytes": None,
                "machines_only": None,
                "removed": False,
                "reader": False,
                "folders": None,
                "conflicts": None,
                "clouds": [],
                "devices": [],
                "accused": [],
                "transfers": None,
                "checkpoint": None,
                "mirrors": [],
                "warnings": [],
                "notices": [],
                "last_error": _sentence(error),
                "missing_mount": slot.missing_mount(),
                "unusable": True,
            }

    def _sync(self, arguments: Message, progress: Progress) -> Message:
        slot = self._slots.get(read.optional_text(arguments, "name"))
        volume = slot.open()
        timeout = read.seconds(arguments, "timeout") if read.flag(arguments, "wait") else 0.0
        done = volume.sync(timeout, lambda done, total: progress({"done": done, "total": total}))
        status = volume.status()
        return {
            "name": slot.name,
            "done": done,
            "pending_files": status.get("pending_files"),
            "pending_bytes": status.get("pending_bytes"),
            "machines_only": status.get("machines_only"),
            "clouds": status.get("clouds", []),
        }

    def _cache_drop(self, arguments: Message, _: Progress) -> Message:
        slot = self._slots.get(read.optional_text(arguments, "name"))
        return {"name": slot.name, **slot.open().drop_cache()}

    def _fsck(self, arguments: Message, progress: Progress) -> Message:
        slot = self._slots.get(read.optional_text(arguments, "name"))
        report = slot.open().fsck(
            clouds=read.flag(arguments, "clouds"),
            progress=lambda stage, done, total: progress({"stage": stage, "done": done, "total": total}),
        )
        return {"name": slot.name, **report.as_dict()}


def _shown(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _sentence(error: Exception) -> str:
    """The message of an error; Python's own begin with a number that means nothing to a person."""
    if isinstance(error, OSError) and type(error) in _PLAIN_OS_ERRORS and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


_PLAIN_OS_ERRORS: Final = {OSError, *OSError.__subclasses__()}
