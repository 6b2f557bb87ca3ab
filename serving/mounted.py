"""Where the served folder is: in the mount of its volume, which may go away and come back."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from hybrisfs.api.volumes import VolumeListRequest
from hybrisfs.client import Client, HybrisError, UnavailableError, UnknownVolumeError, UsageError, quoted
from serving.beneath import open_beneath, opened

__all__ = ["MountedFolder"]


class _Mount(NamedTuple):
    """A mount, and the number by which its files are known: the folder below it has another one."""

    path: str
    device: int


class MountedFolder:
    """A folder of a volume, looked up for each request: so it is not in use between two. Thread-safe."""

    def __init__(self, volume: str, folder: str) -> None:
        """*folder* is a path in the volume, "" for all of it. Raises UsageError when it leads out."""
        self._volume = volume
        self.names = tuple(name for name in folder.split("/") if name not in ("", "."))
        if ".." in self.names:
            raise UsageError(f"{quoted(folder)} is not a path in the volume", "it has .. in it")
        self._mount: _Mount | None = None

    @contextmanager
    def open(self) -> Iterator[int]:
        """The folder, open for names below it.

        Raises UnavailableError when the volume is not mounted, other HybrisErrors when the daemon cannot say
        so, OSError.
        """
        with opened(self._root()) as root, opened(self._below(root)) as folder:
            yield folder

    def _below(self, root: int) -> int:
        return open_beneath(root, self.names, os.O_PATH | os.O_DIRECTORY)

    def _root(self) -> int:
        known = self._mount
        if known is not None:
            found = _open(known)
            if found is not None:
                return found
        self._mount = known = self._look()
        found = _open(known)
        if found is None:
            raise UnavailableError(f"{self._volume} is not mounted", "its mount has just gone away")
        return found

    def _look(self) -> _Mount:
        with Client.connect(start=False) as client:
            volumes = {one.name: one for one in client.call(VolumeListRequest()).volumes}
        if self._volume not in volumes:
            raise UnknownVolumeError(f"there is no volume {quoted(self._volume)}")
        path = volumes[self._volume].mountpoint
        if path is None:
            raise UnavailableError(
                f"{self._volume} is not mounted",
                "only a mounted volume can be served",
                f"hybrisfs mount {self._volume} DIR mounts it.",
            )
        try:
            if not os.path.ismount(path):
                raise UnavailableError(f"{self._volume} is not mounted", f"nothing is mounted at {path}")
            return _Mount(path, os.lstat(path).st_dev)
        except OSError as error:
            raise HybrisError(f"cannot use the mount at {path}", error.strerror or str(error)) from error


def _open(mount: _Mount) -> int | None:
    """The root of a mount; None when another one is there, or none."""
    try:
        root = os.open(mount.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        is_there = os.fstat(root).st_dev == mount.device
    except OSError:
        is_there = False
    if is_there:
        return root
    os.close(root)
    return None
