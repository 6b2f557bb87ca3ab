"""Attributes of nodes: mode, owner, times, extended attributes."""

from __future__ import annotations

import errno
import stat
from typing import Final

from hybrisfs.filesystem.changes import Changes
from hybrisfs.filesystem.inodes import Inode, InodeTable, Intent
from hybrisfs.filesystem.names import failure
from hybrisfs.filesystem.registers import (
    MAX_NAME,
    MAX_XATTR_VALUE,
    MAX_XATTRS,
    MAX_XATTRS_SIZE,
    Attr,
    attr_key,
)
from hybrisfs.store.database import Database

__all__ = ["XATTR_CREATE", "XATTR_REPLACE", "Attributes"]

XATTR_CREATE: Final = 1
XATTR_REPLACE: Final = 2
_NAMESPACES: Final = (b"user.", b"trusted.", b"security.")
_FIRST_TIME: Final = -(1 << 63)  # what the database and an update can hold, in nanoseconds: the year 1677
_LAST_TIME: Final = (1 << 63) - 1  # the year 2262


class Attributes:
    """Reads and changes attributes, under the volume's lock."""

    def __init__(self, database: Database, inodes: InodeTable, changes: Changes) -> None:
        self._db = database
        self._inodes = inodes
        self._changes = changes

    def change(
        self,
        inode: Inode,
        *,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        atime: int | None = None,
        mtime: int | None = None,
    ) -> None:
        """Set what is not None; times are nanoseconds since the epoch.

        A time that cannot be kept becomes the nearest that can, as Linux has its own filesystems do.
        """
        self._inodes.intend(inode, Intent.CHANGE)
        if mode is not None:
            inode.mode = stat.S_IFMT(inode.mode) | stat.S_IMODE(mode)
        if uid is not None:
            inode.uid = uid
        if gid is not None:
            inode.gid = gid
        if atime is not None:
            inode.atime = _nearest_time(atime)
        if mtime is not None:
            inode.mtime = _nearest_time(mtime)
        self._changed(inode)

    def _changed(self, inode: Inode) -> None:
        inode.ctime = self._inodes.now()
        self._inodes.touch(inode)
        if not inode.orphan:
            self._changes.mark(attr_key(inode.id), inode.ino)

    def record(self, inode: Inode) -> Attr:
        """The value of the node's attr register."""
        xattrs: tuple[tuple[bytes, bytes], ...] = ()
        if inode.xattrs:
            rows = self._db.execute("SELECT name, value FROM xattr WHERE ino = ? ORDER BY name", (inode.ino,))
            xattrs = tuple(rows.fetchall())
        return Attr(inode.mode, inode.uid, inode.gid, inode.rdev, inode.mtime, inode.target or b"", xattrs)

    # -- extended attributes ---------------------------------------------------------------------

    def get_xattr(self, inode: Inode, name: bytes) -> bytes:
        if not name.startswith(_NAMESPACES):
            raise failure(errno.EOPNOTSUPP)
        row = None
        if inode.xattrs:
            row = self._db.execute(
                "SELECT value FROM xattr WHERE ino = ? AND name = ?", (inode.ino, name)
            ).fetchone()
        if row is None:
            raise failure(errno.ENODATA)
        value: bytes = row[0]
        return value

    def list_xattrs(self, inode: Inode) -> list[bytes]:
        if not inode.xattrs:
            return []
        rows = self._db.execute("SELECT name FROM xattr WHERE ino = ? ORDER BY name", (inode.ino,))
        return [row[0] for row in rows]

    def set_xattr(self, inode: Inode, name: bytes, value: bytes, flags: int) -> None:
        if not name.startswith(_NAMESPACES):
            raise failure(errno.EOPNOTSUPP)
        if len(name) > MAX_NAME:
            raise failure(errno.ERANGE)
        if len(value) > MAX_XATTR_VALUE:
            raise failure(errno.E2BIG)
        exists = name in self.list_xattrs(inode)
        if exists and flags & XATTR_CREATE:
            raise failure(errno.EEXIST)
        if not exists and flags & XATTR_REPLACE:
            raise failure(errno.ENODATA)
        if not exists and inode.xattrs >= MAX_XATTRS:
            raise failure(errno.ENOSPC)
        others = self._db.execute(
            "SELECT total(length(name) + length(value)) FROM xattr WHERE ino = ? AND name <> ?",
            (inode.ino, name),
        ).fetchone()[0]
        if others + len(name) + len(value) > MAX_XATTRS_SIZE:
            raise failure(errno.ENOSPC)
        self._inodes.intend(inode, Intent.CHANGE)
        self._db.execute("INSERT OR REPLACE INTO xattr VALUES (?, ?, ?)", (inode.ino, name, value))
        inode.xattrs += 0 if exists else 1
        self._changed(inode)

    def remove_xattr(self, inode: Inode, name: bytes) -> None:
        self.get_xattr(inode, name)
        self._inodes.intend(inode, Intent.CHANGE)
        self._db.execute("DELETE FROM xattr WHERE ino = ? AND name = ?", (inode.ino, name))
        inode.xattrs -= 1
        self._changed(inode)

    def discard(self, inode: Inode) -> None:
        if inode.xattrs:
            self._db.execute("DELETE FROM xattr WHERE ino = ?", (inode.ino,))


def _nearest_time(time: int) -> int:
    return min(max(time, _FIRST_TIME), _LAST_TIME)
