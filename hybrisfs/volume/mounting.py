"""Where a volume is mounted: at one folder, or nowhere."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath

from hybrisfs.errors import HybrisError
from hybrisfs.mount.mountpoint import MountPoint
from hybrisfs.tree.unseen import Change

__all__ = ["Mounting"]


class Mounting:
    """The mount of the volume called *name*. Thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._mount: MountPoint | None = None

    @property
    def directory(self) -> Path | None:
        """None also after an unmount from outside."""
        mount = self._mount
        return mount.directory if mount is not None and mount.alive else None

    def mount(self, begin: Callable[[], MountPoint]) -> None:
        """Mount it by *begin*; returns when programs can use it. Raises HybrisError."""
        with self._lock:
            if self.directory is not None:
                raise HybrisError(f"volume {self._name} is mounted at {self.directory} already")
            self._mount = begin()

    def unmount(self, *, lazy: bool) -> None:
        """Raises HybrisError when it is not mounted or, unless *lazy*, while files are open."""
        with self._lock:
            if self._mount is None:
                raise HybrisError(f"volume {self._name} is not mounted")
            self._mount.unmount(lazy=lazy)
            self._mount = None

    def close(self) -> None:
        """Unmount if it is mounted, even if a program still uses it."""
        with self._lock:
            if self._mount is not None:
                self._mount.unmount(lazy=True)
                self._mount = None

    def notify(self, changes: Sequence[Change]) -> None:
        """Report to programs what has changed in other ways than through the mount."""
        mount = self._mount
        if mount is not None and changes:
            mount.notify(changes)

    @contextlib.contextmanager
    def upcoming(self, foresee: Callable[[], Sequence[Change]]) -> Iterator[None]:
        """During the block the view changes in other ways than through the mount, presumably as *foresee*
        says: programs see all of the changes or none. The caller holds no lock that a handler takes."""
        mount = self._mount
        if mount is None or not mount.alive:
            yield
            return
        with mount.upcoming(foresee()):
            yield

    def shown(self, path: PurePath) -> PurePath:
        """A path in the volume as programs see it."""
        return (self.directory or PurePath()) / path
