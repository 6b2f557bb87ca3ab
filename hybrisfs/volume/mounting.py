"""Where a volume is mounted: at one folder, or nowhere."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from hybrisfs.errors import HybrisError
from hybrisfs.merge.rows import Change
from hybrisfs.mount.mountpoint import MountPoint
from hybrisfs.mount.programs import NoFetchPrograms
from hybrisfs.versions.browser import PastBrowser

if TYPE_CHECKING:
    from hybrisfs.volume.volume import Volume

__all__ = ["Mounting", "begin_mount"]


class Mounting:
    """The mount of the volume called *name*. Thread-safe.

    `begin(directory, allow_other, again)` mounts it.
    """

    def __init__(self, name: str, begin: Callable[[Path, bool, bool], MountPoint]) -> None:
        self._name = name
        self._begin = begin
        self._lock = threading.Lock()
        self._mount: MountPoint | None = None

    @property
    def directory(self) -> Path | None:
        """None as well when somebody else unmounted it."""
        mount = self._mount
        return mount.directory if mount is not None and mount.alive else None

    def mount(self, directory: Path, *, allow_other: bool, again: bool) -> None:
        """Returns when programs can use it. Raises HybrisError; also when the folder holds something, or
        is closed to its owner, unless *again*."""
        with self._lock:
            if self.directory is not None:
                raise HybrisError(f"volume {self._name} is mounted at {self.directory} already")
            self._mount = self._begin(directory, allow_other, again)

    def unmount(self, *, lazy: bool) -> None:
        """Raises HybrisError when it is not mounted or, unless *lazy*, while files are open."""
        with self._lock:
            if self._mount is None:
                raise HybrisError(f"volume {self._name} is not mounted")
            self._mount.unmount(lazy=lazy)
            self._mount = None

    def close(self) -> None:
        """Unmount if it is mounted, whoever still uses it."""
        with self._lock:
            if self._mount is not None:
                self._mount.unmount(lazy=True)
                self._mount = None

    def notify(self, changes: Sequence[Change]) -> None:
        """Let programs know of what has changed otherwise than through the mount."""
        mount = self._mount
        if mount is not None and changes:
            mount.notify(changes)

    @contextlib.contextmanager
    def upcoming(self, foresee: Callable[[], Sequence[Change]]) -> Iterator[None]:
        """While the block lasts the view changes otherwise than through the mount, presumably as *foresee*
        tells: programs see all of it or nothing. The caller holds no lock that a handler takes."""
        mount = self._mount
        if mount is None or not mount.alive:
            yield
            return
        with mount.upcoming(foresee()):
            yield

    def shown(self, path: PurePath) -> PurePath:
        """A path in the volume as programs see it."""
        return (self.directory or PurePath()) / path


def begin_mount(volume: Volume, directory: Path, allow_other: bool, again: bool) -> MountPoint:
    """Mount *volume* at *directory*. Raises HybrisError."""
    return MountPoint(
        volume.name,
        directory,
        volume.fs,
        volume.committer,
        volume.fetcher,
        volume.room,
        volume.residency,
        NoFetchPrograms(volume.config.no_fetch_programs),
        volume.sharing.freshness,
        volume.sharing.sparing,
        PastBrowser(volume.fs, volume.fetcher, volume.versions.rungs, lambda: volume.versions.ladder),
        allow_other=allow_other,
        again=again,
    )
