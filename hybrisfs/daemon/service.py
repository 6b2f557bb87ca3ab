"""The commands of the daemon: what each does to the volumes, and what it answers."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from backends.errors import StoreError
from hybrisfs import VERSION
from hybrisfs.api.request import Handler, Moved, Named, extended
from hybrisfs.api.status import (
    AnyVolume,
    DaemonStatus,
    Status,
    StatusRequest,
    Synced,
    SyncRequest,
    UnusableVolume,
)
from hybrisfs.api.volumes import (
    CreatedVolume,
    ListedVolume,
    Mounted,
    MountRequest,
    QuickstartRequest,
    Started,
    StillMounted,
    UmountRequest,
    Unmounted,
    VolumeCreateRequest,
    VolumeListRequest,
    Volumes,
    VolumeSetRequest,
    VolumeSettings,
    WaitUnmountedRequest,
)
from hybrisfs.daemon.clouds import CloudCommands, FigureCommands, PlaceCommands, Recorder, TransferCommands
from hybrisfs.daemon.control import Progress
from hybrisfs.daemon.devices import SharingCommands
from hybrisfs.daemon.files import (
    BrowsingCommands,
    ContentCommands,
    CopiesCommands,
    DecisionCommands,
    IgnoreCommands,
    LabelCommands,
    ParcelCommands,
    VersionCommands,
)
from hybrisfs.daemon.key_value import KeyValueCommands
from hybrisfs.daemon.leaving import LeavingCommands
from hybrisfs.daemon.maintenance import MaintenanceCommands, RecoveryCommands
from hybrisfs.daemon.mirrors import MirrorCommands
from hybrisfs.daemon.observing import Observing
from hybrisfs.daemon.slots import Slot, Slots
from hybrisfs.daemon.supervisor import Life
from hybrisfs.daemon.wanted_mounts import WantedMount, WantedMounts
from hybrisfs.dispersal.errors import CloudsUnavailable, DispersalError
from hybrisfs.environment import Environment
from hybrisfs.errors import DamagedError, HybrisError, UnavailableError, UnknownVolumeError, UsageError
from hybrisfs.fuse import clear_stale
from hybrisfs.home import Home
from hybrisfs.settings.config import DEFAULT_NO_FETCH_PROGRAMS
from hybrisfs.state.journal import JournalFullError
from hybrisfs.wire import Message

if TYPE_CHECKING:
    from hybrisfs.daemon.local import LocalVolumes

__all__ = ["Daemon"]

log = logging.getLogger(__name__)

_LOOK_EVERY: Final = 0.5  # seconds between two looks whether a volume is still mounted
_REMOUNTED_WITHIN: Final = 20.0  # seconds that clients wait at the start for the volumes to be back
_IN_FILE: Final = {
    "link_port": "links.port",
    "link_addresses": "links.addresses",
    "discover": "links.discover",
}
"""The entries of `volume.json` that the settings of other names are."""
_QUICKSTART_VOLUME: Final = "home"
_QUICKSTART_CLOUDS: Final = ("cloud-1", "cloud-2", "cloud-3")


class Daemon:
    """All volumes of one user. `handle` may be called from many threads at once."""

    def __init__(self, home: Home, kind: LocalVolumes, environment: Environment) -> None:
        self._home = home
        self._kind = kind
        self._environment = environment
        self._wanted = WantedMounts(home.state, environment)
        self._slots = Slots(home, kind, self._wanted)
        self._recorder = Recorder(home, self._slots, environment)
        self._creating = threading.Lock()
        self._stopping = threading.Event()
        self._started = environment.monotonic()
        self._observing = Observing(home, self._slots, partial(self._status_of, look=False), environment)
        self._commands: dict[str, Handler] = {
            **BrowsingCommands(self._slots).commands,
            **FigureCommands(home, self._slots, self._recorder, self._known).commands,
            **self._observing.commands,
            **ContentCommands(self._slots).commands,
            **CopiesCommands(self._slots).commands,
            **LabelCommands(self._slots).commands,
            **IgnoreCommands(self._slots).commands,
            **ParcelCommands(self._slots).commands,
            **KeyValueCommands(self._slots).commands,
            **CloudCommands(self._slots).commands,
            **PlaceCommands(home, kind, self._slots).commands,
            **MirrorCommands(home, self._slots).commands,
            **MaintenanceCommands(self._slots).commands,
            **DecisionCommands(self._slots).commands,
            **TransferCommands(self._slots).commands,
            **VersionCommands(self._slots).commands,
            **SharingCommands(home, kind, self._slots, self._creating).commands,
            **RecoveryCommands(home, kind, self._slots, self._creating).commands,
            **LeavingCommands(home, kind, self._slots, self._creating).commands,
            **dict(
                [
                    QuickstartRequest.answered_by(self._quickstart),
                    VolumeCreateRequest.answered_by(self._volume_create),
                    VolumeListRequest.answered_by(self._volume_list),
                    VolumeSetRequest.answered_by(self._volume_set),
                    MountRequest.answered_by(self._mount),
                    WaitUnmountedRequest.answered_by(self._wait_unmounted),
                    UmountRequest.answered_by(self._umount),
                    StatusRequest.answered_by(self._status),
                    SyncRequest.answered_by(self._sync),
                ]
            ),
        }

    def start(self, last: Life | None = None) -> None:
        """Open all volumes and remount those that were mounted when the *last* daemon ended, or died.

        Returns when that is done, or goes on in the background when it takes long. A volume that
        fails is logged and does not keep the others.
        """
        self._kind.finish(self._home, self._wanted.rename)
        if last is not None:
            self._observing.note_death(last, self._environment.time())
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
        deadline = self._environment.monotonic() + _REMOUNTED_WITHIN
        for opener in openers:
            opener.join(max(0.0, deadline - self._environment.monotonic()))
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

    @property
    def commands(self) -> Collection[str]:
        """What it can be asked for."""
        return self._commands.keys()

    def handle(self, command: str, arguments: Message, progress: Progress) -> Message:
        """Carry out a command. Raises `HybrisError`; anything else is a bug."""
        action = self._commands.get(command)
        if action is None:
            raise UsageError(f"the daemon, version {VERSION}, does not know the command {command[:80]!r}")
        try:
            return action(arguments, progress)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise self._told(error) from error
            log.error("%s failed: %s", command, error)
            raise DamagedError(
                "a database is damaged",
                str(error),
                "hybrisfs fsck tells which; hybrisfs volume rebuild mends it.",
            ) from error
        except (OSError, StoreError, DispersalError) as error:
            log.warning("%s failed: %s", command, error)
            if isinstance(error, CloudsUnavailable):
                raise UnavailableError(_sentence(error)) from error
            raise self._told(error) from error

    def _told(self, error: Exception) -> HybrisError:
        """The error as a person reads it."""
        code = getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_FULL or (isinstance(error, JournalFullError) and not error.budget):
            what = f"the disk of {self._home.state} is full"
            return HybrisError(what, "", "Make room on it. What was written is kept, and work then goes on.")
        return HybrisError(_sentence(error))

    def _revive(self, slot: Slot, mount: WantedMount | None) -> None:
        try:
            slot.open()
            if mount is not None:
                slot.mount(mount, make=False)
        except (HybrisError, OSError, StoreError) as error:
            log.error("cannot %s %s: %s", "remount" if mount else "open", slot.name, error)
        except Exception:
            log.exception("cannot open %s", slot.name)

    def _quickstart(self, asked: QuickstartRequest) -> Started:
        clouds = [(self._home.data / "clouds" / name).as_uri() for name in _QUICKSTART_CLOUDS]
        with self._creating:
            created = all(config.name != _QUICKSTART_VOLUME for config in self._slots.configs())
            if created:
                self._kind.create(self._home, _QUICKSTART_VOLUME, clouds, None, None, make=True)
        slot = self._slots.get(_QUICKSTART_VOLUME)
        chosen = None if asked.directory is None else Path(asked.directory)
        directory = chosen or slot.mountpoint() or self._home.default_mountpoint
        mounted = slot.mount(WantedMount(directory.resolve()), make=True)
        config = next(config for config in self._slots.configs() if config.name == _QUICKSTART_VOLUME)
        return Started(config, created, mounted, _shown(slot.mountpoint()))

    def _volume_create(self, asked: VolumeCreateRequest) -> CreatedVolume:
        with self._creating:
            config = self._kind.create(
                self._home, asked.name, asked.clouds, asked.f, asked.k, make=bool(asked.make)
            )
        volume = self._slots.get(config.name).open()
        if asked.evict_liars:
            volume.settings.edit({"evict_liars": True})
        log.info("created the volume %s over %d clouds", config.name, len(config.clouds))
        return CreatedVolume(config, volume.clouds.warnings())

    def _volume_list(self, _: VolumeListRequest) -> Volumes:
        configs = sorted(self._slots.configs(), key=lambda config: config.name)
        mounts = {slot.name: _shown(slot.mountpoint()) for slot in self._slots.all()}
        return Volumes([extended(ListedVolume, one, mountpoint=mounts[one.name]) for one in configs])

    def _volume_set(self, asked: VolumeSetRequest) -> VolumeSettings:
        volume = self._slots.get(asked.name).open()
        settings, agreed = volume.settings, volume.agreed
        wanted = {_IN_FILE.get(one, one): value for one, value in asked.arguments.items() if one != "name"}
        if (seconds := wanted.pop("announce_seconds", None)) is not None:
            agreed.announce_every(seconds)
        if (merge := wanted.pop("merge_texts", None)) is not None:
            agreed.set_merge_texts(merge)
        after, code = wanted.pop("archive_after", None), wanted.pop("archive_code", None)
        if after is not None or code is not None:
            agreed.archive(after, code)
        if wanted.get("no_fetch_programs") == ["default"]:
            wanted["no_fetch_programs"] = DEFAULT_NO_FETCH_PROGRAMS
        if wanted:
            settings.edit(wanted)
        facts = settings.entries()
        facts.announce_seconds, facts.merge_texts = agreed.announce_seconds, agreed.merge_texts
        facts.archive_after, facts.archive_code = agreed.archive_after, agreed.archive_code
        return facts

    def _mount(self, asked: MountRequest) -> Mounted:
        slot = self._slots.get(asked.name)
        directory = Path(asked.directory).resolve()
        mounted = slot.mount(WantedMount(directory, asked.allow_other), make=True)
        return Mounted(slot.name, str(directory), mounted)

    def _wait_unmounted(self, asked: WaitUnmountedRequest, tell: Callable[[StillMounted], None]) -> Named:
        slot = self._slots.get(asked.name)
        while slot.mountpoint() is not None and not self._stopping.wait(_LOOK_EVERY):
            tell(StillMounted(_shown(slot.mountpoint())))  # raises when the client is gone
        return Named(slot.name)

    def _umount(self, asked: UmountRequest) -> Unmounted:
        directory = Path(asked.directory).resolve()
        slot = self._slots.mounted_at(directory)
        if slot is None:
            try:
                slot = self._slots.get(asked.target)
            except UnknownVolumeError:
                if clear_stale(directory):
                    return Unmounted(None, str(directory), stale=True)
                if "/" in asked.target or directory.is_dir():
                    raise HybrisError(
                        f"no volume is mounted at {directory}", "", self._slots.mounts()
                    ) from None
                raise
        place, found = slot.unmount(lazy=asked.lazy)
        missing = True if found == "missing" else UNSET
        return Unmounted(slot.name, str(place), stale=found == "dead", missing=missing)

    def _status(self, request: StatusRequest) -> Status:
        slots = self._slots.all() if request.name is None else [self._slots.get(request.name)]
        uptime = round(self._environment.monotonic() - self._started, 1)
        return Status(
            DaemonStatus(VERSION, os.getpid(), uptime),
            [self._status_of(slot, look=not request.without_look) for slot in slots],
        )

    def _known(self) -> Status:
        """What `status` answers, without a look at the clouds."""
        return self._status(StatusRequest(without_look=True))

    def _status_of(self, slot: Slot, *, look: bool = True) -> AnyVolume:
        try:
            slot.notice_unmount()
            facts = slot.open().status(look=look)
            self._observing.date(facts)
            facts.warnings = [*facts.warnings, *slot.warnings()]
            facts.missing_mount = slot.missing_mount()
            return facts
        except (HybrisError, OSError, StoreError) as error:
            return UnusableVolume(
                name=slot.name, last_error=_sentence(error), missing_mount=slot.missing_mount()
            )

    def _sync(self, request: SyncRequest, progress: Callable[[Moved], None]) -> Synced:
        slot = self._slots.get(request.name)
        volume = slot.open()
        timeout = request.timeout if request.wait else 0.0
        done = volume.sync(timeout, lambda done, total: progress(Moved(done, total)))
        status = volume.status(look=False)  # what was put has told how the clouds are
        return Synced(
            slot.name,
            done,
            status.pending_files,
            status.pending_bytes,
            status.machines_only,
            status.ignored,
            status.clouds,
        )


def _shown(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _sentence(error: Exception) -> str:
    """The message of an error; Python's own begin with a number that means nothing to a person."""
    if isinstance(error, OSError) and type(error) in _PLAIN_OS_ERRORS and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


_PLAIN_OS_ERRORS: Final = {OSError, *OSError.__subclasses__()}
