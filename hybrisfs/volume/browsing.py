"""Looking at the files of a volume without a mount: what is in a folder, and what is in a file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import PurePath
from typing import Final

from hybrisfs.api.content import Entry
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.read.fetch import Fetcher
from hybrisfs.shown import shown
from hybrisfs.state.shown_nodes import names_in_folder
from hybrisfs.state.state import Transaction
from hybrisfs.tree.content import Missing
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode
from hybrisfs.tree.residency import Residency

__all__ = ["Browsing"]

_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class Browsing:
    """Paths are relative to the volume's root. Methods may be called from any thread, without the volume's
    lock; they raise HybrisError or OSError."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher, residency: Residency) -> None:
        self._fs = fs
        self._fetcher = fetcher
        self._residency = residency

    def folder(self, path: PurePath, after: str, limit: int) -> tuple[list[Entry], bool]:
        """The first *limit* names in a folder that sort behind *after*, by their bytes, and whether others
        follow."""
        with self._fs.state.transaction() as tx:
            inode = self._locate(tx, path)
            if not inode.is_directory:
                raise UsageError(f"{shown(str(path))} is no folder")
            self._fs.flush(tx)
            names = names_in_folder(tx, inode.ino, os.fsencode(after), limit + 1)
            entries = [self._described(tx, *one) for one in names[:limit]]
        return entries, len(names) > limit

    def _described(self, tx: Transaction, name: bytes, ino: int, wanted: bytes | None) -> Entry:
        inode = self._fs.inodes.get(tx, ino)
        return Entry(
            name=os.fsdecode(name),
            kind=_KINDS.get(stat.S_IFMT(inode.mode), "other"),
            size=inode.size,
            modified=inode.mtime / 1e9,
            state=self._residency.state(tx, inode).value if inode.is_file else None,
            pinned=self._fs.pins.standing(tx, inode).value,
            conflict=None if wanted is None else os.fsdecode(wanted),
            labels=self._fs.labels.of(tx, inode),
        )

    def read(self, path: PurePath, offset: int, length: int) -> tuple[int, bytes]:
        """The size of a file, and a part of it, fetched from the clouds if need be."""
        with self._fs.state.transaction() as tx:
            ino = self._file(tx, path).ino
        while True:
            with self._fs.state.transaction() as tx:
                inode = self._file(tx, path)
                if inode.ino != ino:
                    raise HybrisError(f"{shown(str(path))} was replaced while it was read", "", "Try again.")
                lacking = self._fs.received.lacking(tx, inode)
                data = self._fs.read(tx, inode, offset, length) if lacking is None else lacking
                size = inode.size
            if not isinstance(data, Missing):
                return size, data
            self._fetcher.fetch(data.chunks)

    def _file(self, tx: Transaction, path: PurePath) -> Inode:
        inode = self._locate(tx, path)
        if not inode.is_file:
            raise UsageError(f"{shown(str(path))} is no regular file")
        return inode

    def _locate(self, tx: Transaction, path: PurePath) -> Inode:
        inode = self._fs.locate(tx, map(os.fsencode, path.parts))
        if inode is None:
            raise HybrisError(f"{shown(str(path))}: {os.strerror(errno.ENOENT)}")
        return inode
