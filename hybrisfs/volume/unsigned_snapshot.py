"""What a snapshot of the database says of registers that have changed since the last signed update.

The same as `hybrisfs.merge.unsigned`, without a file system.
"""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterable

from hybrisfs.filesystem.registers import Attr, Place, attr_key, content_key, place_key

__all__ = ["UnsignedSnapshot", "attributes"]


def attributes(db: sqlite3.Connection, node: bytes) -> Attr | None:
    """The attributes that the view shows of the node with this id; None when it has no node of its own."""
    row = db.execute(
        "SELECT ino, mode, uid, gid, rdev, mtime, target FROM node WHERE id = ?", (node,)
    ).fetchone()
    if row is None:
        return None
    ino, mode, uid, gid, rdev, mtime, target = row
    xattrs = db.execute("SELECT name, value FROM xattr WHERE ino = ? ORDER BY name", (ino,)).fetchall()
    return Attr(mode, uid, gid, rdev, mtime, bytes(target or b""), tuple(xattrs))


class UnsignedSnapshot:
    """The `resolver.Unsigned` of the database *db*. `keys`: of all registers that are not signed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.keys = {key for (key,) in db.execute("SELECT key FROM pending WHERE clock IS NULL")}
        self.has_places = any(key[:1] == b"p" for key in self.keys)

    def any_place(self, node: bytes) -> bool:
        """Whether a place of the node is unsigned."""
        if not self.has_places:
            return False
        rows = self._db.execute(
            "SELECT 1 FROM pending WHERE key BETWEEN ? AND ? AND clock IS NULL",
            (b"p" + node, b"p" + node + b"\xff" * 16),
        )
        return rows.fetchone() is not None

    def places(self, node: bytes, slots: Iterable[int]) -> dict[int, Place | None]:
        if not self.any_place(node):
            return {}
        rows = self._db.execute(
            "SELECT ino, mode, id FROM node WHERE id = ? UNION ALL "
            "SELECT n.ino, n.mode, n.id FROM joined j JOIN node n ON n.ino = j.ino WHERE j.id = ?",
            (node, node),
        )
        ino, mode, shown_as = rows.fetchone() or (0, 0, b"")
        standing = {}
        if shown_as == node or stat.S_ISDIR(mode):
            standing = {
                slot: Place(parent, name)
                for slot, parent, name in self._db.execute(
                    "SELECT p.slot, d.id, ifnull(p.wanted, p.name) FROM place p "
                    "JOIN node d ON d.ino = p.parent WHERE p.ino = ?",
                    (ino,),
                )
            }
        known = {0, *slots, *standing}
        return {slot: standing.get(slot) for slot in known if place_key(node, slot) in self.keys}

    def attr(self, node: bytes) -> Attr | None:
        return attributes(self._db, node) if attr_key(node) in self.keys else None

    def content(self, node: bytes) -> bool:
        return content_key(node) in self.keys

    def children(self, directory: bytes) -> bool:
        if not self.has_places:
            return False
        rows = self._db.execute(
            "SELECT p.slot, c.id FROM node d JOIN place p ON p.parent = d.ino JOIN node c ON c.ino = p.ino "
            "WHERE d.id = ? UNION ALL SELECT p.slot, c.id FROM joined j JOIN place p ON p.parent = j.ino "
            "JOIN node c ON c.ino = p.ino WHERE j.id = ?",
            (directory, directory),
        )
        return any(place_key(node, slot) in self.keys for slot, node in rows)
