"""What a snapshot of the database says of registers that have changed since the last signed update.

The same as `hybrisfs.merge.unsigned`, without a file system.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterable

from hybrisfs.filesystem.registers import Attr, Place, attr_key, content_key, place_key
from hybrisfs.kinds import PLACE

__all__ = ["UnsignedSnapshot", "attributes"]


def attributes(db: sqlite3.Connection, ino: int) -> Attr:
    """The attributes that the view shows of a node."""
    mode, uid, gid, rdev, mtime, target, count = db.execute(
        "SELECT mode, uid, gid, rdev, mtime, target, xattrs FROM node WHERE ino = ?", (ino,)
    ).fetchone()
    xattrs: list[tuple[bytes, bytes]] = []
    if count:
        xattrs = db.execute("SELECT name, value FROM xattr WHERE ino = ? ORDER BY name", (ino,)).fetchall()
    return Attr(mode, uid, gid, rdev, mtime, bytes(target or b""), tuple(xattrs))


class UnsignedSnapshot:
    """The `resolver.Unsigned` of the database *db*. `keys`: the registers that are not signed, by the inode
    that has changed each."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.keys: dict[bytes, int] = dict(db.execute("SELECT key, ino FROM pending WHERE clock IS NULL"))
        self.has_places = any(key[0] == PLACE for key in self.keys)

    def any_place(self, node: bytes) -> bool:
        """Whether a place of the node is unsigned."""
        if not self.has_places:
            return False
        rows = self._db.execute(
            "SELECT 1 FROM pending WHERE key BETWEEN ? AND ? AND clock IS NULL",
            (PLACE.key(node), PLACE.key(node, b"\xff" * 16)),
        )
        return rows.fetchone() is not None

    def places(self, node: bytes, slots: Iterable[int], *, others: bool = True) -> dict[int, Place | None]:
        if not self.any_place(node):
            return {}
        known = {0, *slots}
        inode = self._inode(node)
        if inode is not None:
            known.update(slot for (slot,) in self._db.execute("SELECT slot FROM place WHERE ino = ?", inode))
        return {
            slot: self._place(node, self.keys[key], slot)
            for slot in known
            if (key := place_key(node, slot)) in self.keys
        }

    def _place(self, node: bytes, ino: int, slot: int) -> Place | None:
        row = self._db.execute(
            "SELECT d.id, ifnull(p.wanted, p.name), p.wanted IS NOT NULL, n.id, n.mode FROM place p "
            "JOIN node d ON d.ino = p.parent JOIN node n ON n.ino = p.ino WHERE p.ino = ? AND p.slot = ?",
            (ino, slot),
        ).fetchone()
        if row is None or (row[3] != node and not stat.S_ISDIR(row[4])):
            return None
        return Place(row[0], row[1], yields=bool(row[2]))

    def attr(self, node: bytes) -> Attr | None:
        inode = self._inode(node) if attr_key(node) in self.keys else None
        return None if inode is None else attributes(self._db, *inode)

    def content(self, node: bytes) -> bool:
        return content_key(node) in self.keys

    def children(self, directory: bytes) -> bool:
        if not self.has_places:
            return False
        rows = self._db.execute(
            "SELECT p.slot, c.id FROM node d JOIN place p ON p.parent = d.ino JOIN node c ON c.ino = p.ino "
            "WHERE d.id = ? AND d.ino NOT IN (SELECT ino FROM orphan)",
            (directory,),
        )
        return any(place_key(node, slot) in self.keys for slot, node in rows)

    def _inode(self, node: bytes) -> tuple[int] | None:
        """The inode that shows the node, its own or one that it is joined with."""
        row: tuple[int] | None = self._db.execute(
            "SELECT ino FROM node WHERE id = ? AND ino NOT IN (SELECT ino FROM orphan) "
            "UNION ALL SELECT ino FROM joined WHERE id = ?",
            (node, node),
        ).fetchone()
        return row
