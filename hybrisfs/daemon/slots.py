"""The volumes of the daemon, each open from its first use to the daemon's end.

A volume stays open when it is unmounted, so that what is pending still reaches the clouds.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from hybrisfs.api.status import MissingMount
from hybrisfs.api.volumes import Rebuilt, Volume
from hybrisfs.daemon import wanted_mounts
from hybrisfs.daemon.wanted_mounts import WantedMount, WantedMounts
from hybrisfs.errors import HybrisError, UnknownVolumeError, UsageError
from hybrisfs.fuse import clear_stale
from hybrisfs.home import Home
from hybrisfs.topic import Topic

if TYPE_CHECKING:
    from hybrisfs.daemon.local import LocalVolumes
    from hybrisfs.volume.volume import Volume as OpenVolume

__all__ = ["Slot", "Slots", "Unmounted"]

log = logging.getLogger(__name__)

_MAKE_ONE: Final = "hybrisfs quickstart makes one."


class Unmounted(NamedTuple):
    """Where a volume was mounted, or should have been, and what was there: the mount, one that a dead daemon
    had left, or nothing."""

    directory: Path
    found: Literal["mounted", "dead", "missing"]


class Slot:
    """One volume, open or not. Opening, mounting, unmounting and closing exclude each other."""

    def __init__(self, home: Home, kind: LocalVolumes, wanted: WantedMounts, name: str) -> None:
        self.name = name
        self._home = home
        self._kind = kind
        self._wanted = wanted
        self._lock = threading.RLock()
        self._volume: OpenVolume | None = None
        self._mounted_by_us: Path | None = None
        self._beside = wanted_mounts.Beside()
        self._not_mounted_because = ""

    def open(self) -> OpenVolume:
        """Return the volume, opening it if need be. Raises `HybrisError` or `OSError`."""
        with self._lock:
            if self._volume is None:
                self._volume = self._kind.open(self._home, self.name)
            return self._volume

    def mount(self, mount: WantedMount, *, make: bool) -> bool:
        """Mount, and remember it; return False when it is mounted there already.

        A folder that is not there is made when `make` says so; one that is not empty is refused, unless the
        volume is to be mounted there anyhow. Raises `UsageError` when the volume is mounted elsewhere,
        `HybrisError` or `OSError` when it cannot be mounted.
        """
        with self._lock:
            try:
                mounted = self._mount(mount, make=make)
            except (HybrisError, OSError) as error:
                plain = error.strerror if isinstance(error, OSError) else None
                self._not_mounted_because = plain or str(error)
                raise
            self._not_mounted_because = ""
            return mounted

    def _mount(self, mount: WantedMount, *, make: bool) -> bool:
        volume = self.open()
        if volume.mountpoint is not None:
            if volume.mountpoint == mount.directory:
                return False
            raise UsageError(
                f"the volume {self.name} is mounted at {volume.mountpoint}",
                "",
                f"Run hybrisfs umount {self.name} first.",
            )
        if clear_stale(mount.directory):
            log.info("%s: removed the mount that a dead daemon left behind", mount.directory)
        if make:
            _make_folder(mount.directory)
        before = self._wanted.all().get(self.name)
        again = before is not None and before.directory == mount.directory
        with wanted_mounts.locked_below(mount.directory, again=again) as self._beside:
            volume.mount(mount.directory, allow_other=mount.allow_other, again=again)
        self._mounted_by_us = mount.directory
        if before is not None and not again:
            try:
                wanted_mounts.unlock(before.directory)
            except OSError as error:
                log.warning("%s, where %s was mounted, stays locked: %s", before.directory, self.name, error)
        self._wanted.add(self.name, mount)
        log.info("mounted %s at %s", self.name, mount.directory)
        return True

    def missing_mount(self) -> MissingMount | None:
        """Where the volume should be mounted, and why it is not; None when it is, or when nobody wants it.
        Does not open it."""
        wanted = self._wanted.all().get(self.name)
        if wanted is None or self.mountpoint() is not None:
            return None
        reason = self._not_mounted_because or "it is not mounted yet"
        return MissingMount(str(wanted.directory), reason)

    def warnings(self) -> list[str]:
        """What a person should know of the folder where it is mounted."""
        place = self._mounted_by_us
        return self._beside.warnings(self.name, place) if place is not None else []

    def unmount(self, *, lazy: bool) -> Unmounted:
        """Unmount, and forget that it is wanted. Raises `HybrisError` or `OSError`."""
        with self._lock:
            volume = self.open()
            directory = volume.mountpoint
            if directory is None:
                return self._forget_missing()
            volume.unmount(lazy=lazy)
            self._mounted_by_us = None
            self._wanted.remove(self.name)
            wanted_mounts.unlock(directory)
            log.info("unmounted %s from %s", self.name, directory)
            return Unmounted(directory, "mounted")

    def _forget_missing(self) -> Unmounted:
        self.notice_unmount()
        recorded = self._wanted.all().get(self.name)
        if recorded is None:
            raise HybrisError(f"the volume {self.name} is not mounted")
        dead = clear_stale(recorded.directory)
        self._wanted.remove(self.name)
        wanted_mounts.unlock(recorded.directory)
        return Unmounted(recorded.directory, "dead" if dead else "missing")

    def notice_unmount(self) -> None:
        """Forget a mount of ours that umount or fusermount3 took away."""
        with self._lock:
            if self._volume is None or self._mounted_by_us is None or self._volume.mountpoint is not None:
                return
            log.info("%s was unmounted from %s by somebody else", self.name, self._mounted_by_us)
            self._wanted.remove(self.name)
            wanted_mounts.unlock(self._mounted_by_us)
            self._mounted_by_us = None

    def rebuild(self, step: Callable[[str, int, int], None]) -> Rebuilt:
        """Close the volume, have its database rebuilt, open it, and mount it where it was mounted.

        Raises `HybrisError` or `OSError`.
        """
        with self._lock:
            self.close()
            try:
                report = self._kind.rebuild(self._home, self.name, step)
            except (HybrisError, OSError):
                with contextlib.suppress(HybrisError, OSError):
                    self.come_back()
                raise
            self.come_back()
            return report

    def release(self, *, lazy: bool) -> None:
        """Unmount if it is mounted, and forget that it is wanted. Raises `HybrisError` or `OSError`."""
        with self._lock:
            if self.mountpoint() is not None or self._wanted.all().get(self.name) is not None:
                self.unmount(lazy=lazy)

    def close_for_good(self) -> None:
        """Unmount and close the volume, which is about to be deleted: it is not opened any more. Raises
        `HybrisError`, also while programs use it, or `OSError`."""
        with self._lock:
            if self._volume is not None:
                self.release(lazy=False)
            self._kind.keep_closed(self._home, self.name)
            self.close()

    def forget(self) -> None:
        """Close the volume and delete what this device has of it. Raises `HybrisError` or `OSError`."""
        with self._lock:
            self.close()
            wanted = self._wanted.all().get(self.name)
            self._wanted.remove(self.name)
            if wanted is not None:
                clear_stale(wanted.directory)
                wanted_mounts.unlock(wanted.directory)
            self._kind.forget(self._home, self.name)

    def rename(self, new: str) -> None:
        """Unmount and close the volume, and call it otherwise. Raises `HybrisError`, also while programs use
        it, or `OSError`; it goes on under its old name then."""
        with self._lock:
            if self._volume is not None and self._volume.mountpoint is not None:
                self._volume.unmount()
            self.close()
            try:
                self._kind.rename(self._home, self.name, new, self._wanted.rename)
            except (HybrisError, OSError):
                with contextlib.suppress(HybrisError, OSError):
                    self.come_back()
                raise

    def come_back(self) -> None:
        """Open the volume, and mount it where it is wanted. Raises `HybrisError` or `OSError`."""
        wanted = self._wanted.all().get(self.name)
        if wanted is None:
            self.open()
        else:
            self.mount(wanted, make=False)

    @property
    def volume(self) -> OpenVolume | None:
        """The volume if it is open. Does not open it."""
        return self._volume

    def mountpoint(self) -> Path | None:
        """Where the volume is mounted now. Does not open it."""
        volume = self._volume
        return volume.mountpoint if volume else None

    def close(self) -> None:
        """Unmount, but remember that it is wanted, and close. Failures are logged: the rest must go on."""
        with self._lock:
            volume, self._volume = self._volume, None
            if volume is None:
                return
            try:
                if volume.mountpoint is not None:
                    self._unmount_even_if_busy(volume)
            except (HybrisError, OSError) as error:
                log.error("cannot unmount %s: %s", self.name, error)
            try:
                volume.close()
            except Exception:
                log.exception("cannot close %s cleanly", self.name)

    def _unmount_even_if_busy(self, volume: OpenVolume) -> None:
        try:
            volume.unmount()
        except (HybrisError, OSError) as error:
            log.warning("%s is in use, it is unmounted as soon as it is not: %s", self.name, error)
            volume.unmount(lazy=True)


class Slots:
    """All volumes by name."""

    def __init__(self, home: Home, kind: LocalVolumes, wanted: WantedMounts) -> None:
        self._home = home
        self._kind = kind
        self._wanted = wanted
        self._lock = threading.Lock()
        self._slots: dict[str, Slot] = {}
        self.dropped = Topic[[str]]()
        """There is no volume of that name any more."""

    def configs(self) -> Sequence[Volume]:
        """The volumes of this device. Raises `HybrisError`."""
        return self._kind.list(self._home)

    def all(self) -> list[Slot]:
        """A slot for each volume, in order of their names."""
        return [self._slot(name) for name in sorted(config.name for config in self.configs())]

    def get(self, name: str | None) -> Slot:
        """The volume `name`; the only one when `name` is None.

        Raises `UnknownVolumeError`, and `UsageError` when there is a choice to be made.
        """
        known = sorted(config.name for config in self.configs())
        if name is not None and name not in known:
            advice = f"There are: {', '.join(known)}." if known else _MAKE_ONE
            raise UnknownVolumeError(f"there is no volume {name!r}", "", advice)
        if name is None and not known:
            raise UnknownVolumeError("there is no volume yet", "", _MAKE_ONE)
        if name is None and len(known) > 1:
            raise UsageError("which volume?", "", f"Name one, as NAME or with --volume: {', '.join(known)}.")
        return self._slot(name if name is not None else known[0])

    def mounted_at(self, directory: Path) -> Slot | None:
        """The volume that is mounted at `directory`, or should be."""
        for slot in self.opened():
            missing = slot.missing_mount()
            if slot.mountpoint() == directory or (missing and missing.directory == str(directory)):
                return slot
        return None

    def containing(self, path: Path) -> tuple[Slot, PurePath]:
        """The mounted volume in which a path is, and where in that. Raises HybrisError."""
        inside = [
            (slot, directory)
            for slot in self.all()
            if (directory := slot.mountpoint()) is not None and path.is_relative_to(directory)
        ]
        if not inside:
            raise HybrisError(f"{path} is in no mounted volume", "", self.mounts())
        slot, directory = max(inside, key=lambda one: len(one[1].parts))
        return slot, path.relative_to(directory)

    def opened(self) -> list[Slot]:
        """Those that a client has asked for; touches no disk."""
        with self._lock:
            return list(self._slots.values())

    def mounts(self) -> str:
        """A sentence on what is mounted where."""
        places = [f"{slot.name} at {slot.mountpoint()}" for slot in self.all() if slot.mountpoint()]
        return f"Mounted are: {', '.join(places)}." if places else "Nothing is mounted."

    def drop(self, name: str) -> None:
        """The volume is gone."""
        with self._lock:
            self._slots.pop(name, None)
        self.dropped(name)

    def rename(self, slot: Slot, new: str) -> Path | None:
        """See `Slot.rename`; where it is mounted under its new name. Raises likewise."""
        slot.rename(new)
        self.drop(slot.name)
        renamed = self._slot(new)
        renamed.come_back()
        return renamed.mountpoint()

    def close(self) -> None:
        """Close all volumes, side by side."""
        closers = [threading.Thread(target=slot.close, name=f"close {slot.name}") for slot in self.opened()]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()

    def _slot(self, name: str) -> Slot:
        with self._lock:
            if name not in self._slots:
                self._slots[name] = Slot(self._home, self._kind, self._wanted, name)
            return self._slots[name]


def _make_folder(directory: Path) -> None:
    with contextlib.suppress(FileExistsError):
        directory.mkdir(parents=True)
