"""Files that were found in the remains of a damaged volume, put into a folder of the new one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import PurePosixPath

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import Inode
from hybrisfs.store.schema import ROOT_INO

__all__ = ["RecoveredFiles"]

_FOLDER_MODE = stat.S_IFDIR | 0o700


class RecoveredFiles:
    """Writes into *folder*, below the root of *fs*; it is made with the first file. Nobody else uses *fs*."""

    def __init__(self, fs: FileSystem, folder: PurePosixPath) -> None:
        self._fs = fs
        self._folder = folder
        self._owner = os.getuid(), os.getgid()

    def add(
        self, path: PurePosixPath, mode: int, size: int, pieces: Iterable[tuple[int, bytes]]
    ) -> PurePosixPath:
        """A file of *size* bytes at *path* below the folder, or beside it when the name is taken; where it
        is. What no piece (offset, bytes) covers is zeros. Raises OSError."""
        with self._fs.lock:
            parent = self._fs.get(ROOT_INO)
            for name in (self._folder / path).parts[:-1]:
                parent = self._directory(parent, os.fsencode(name))
            name = path.name
            while self._fs.lookup(parent.ino, os.fsencode(name)) is not None:
                name = f"{name}~"
            inode, handle = self._fs.create(parent.ino, os.fsencode(name), mode, *self._owner, os.O_WRONLY)
            self._fs.truncate(inode, size)
            for offset, data in pieces:
                self._fs.write(inode, offset, data[: max(0, size - offset)])
            self._fs.release(handle)
        return self._folder / path.parent / name

    def _directory(self, parent: Inode, name: bytes) -> Inode:
        found = self._fs.lookup(parent.ino, name)
        while found is not None and not found.is_directory:
            name += b"~"
            found = self._fs.lookup(parent.ino, name)
        return found or self._fs.make(parent.ino, name, _FOLDER_MODE, *self._owner)
