"""The nodes of the view: tables `node`, `xattr` and `orphan`.

`hybrisfs.tree.inodes` keeps nodes in memory and writes their rows in batches, so a row may be older than its
inode. It counts extended attributes, too: what adds or removes rows of `xattr` has to put the count right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from hybrisfs.state.bulk import insert_many
from hybrisfs.state.database import Reader

__all__ = ["NODE_COLUMNS", "NodeRow", "NodeTable"]

NODE_COLUMNS: Final = (
    "ino, id, mode, uid, gid, rdev, nlink, size, stored, atime, mtime, ctime, target, xattrs, "
    "attr_stamp, content_stamp"
)
NodeRow: TypeAlias = tuple[
    int, bytes, int, int, int, int, int, int, int, int, int, int, bytes | None, int, int, int
]
_CHANGEABLE: Final = [name for name in NODE_COLUMNS.split(", ") if name not in ("ino", "id")]
_INSERT: Final = f"INSERT INTO node ({NODE_COLUMNS}) VALUES {{}}"
_UPSERT: Final = (
    f"{_INSERT} "
    f"ON CONFLICT (ino) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _CHANGEABLE)}"
)
_FIND: Final = f"SELECT {NODE_COLUMNS} FROM node WHERE ino = ?"


class NodeTable:
    """The nodes of one volume, under its lock; or as a snapshot shows them, without it."""

    def __init__(self, db: Reader) -> None:
        self._db = db

    def find(self, ino: int) -> NodeRow | None:
        """The row of an inode."""
        row: NodeRow | None = self._db.execute(_FIND, (ino,)).fetchone()
        return row

    def is_named(self, node: bytes) -> bool:
        """Whether there is a node with this id that has a name."""
        query = "SELECT 1 FROM node WHERE id = ? AND nlink > 0"
        return self._db.execute(query, (node,)).fetchone() is not None

    def highest(self) -> int:
        """The highest number that an inode has, or one that is gone and has names to withdraw (`pending`)."""
        (number,) = self._db.execute(
            "SELECT max(ifnull((SELECT max(ino) FROM node), 0), ifnull((SELECT max(ino) FROM pending), 0))"
        ).fetchone()
        return int(number)

    def insert(self, rows: Sequence[NodeRow]) -> None:
        """Add nodes."""
        insert_many(self._db, _INSERT, rows)

    def put(self, rows: Sequence[NodeRow]) -> None:
        """Add nodes, or change all of them but their ids."""
        insert_many(self._db, _UPSERT, rows)

    def identify(self, ino: int, node: bytes) -> None:
        """Give a node another id."""
        self._db.execute("UPDATE node SET id = ? WHERE ino = ?", (node, ino))

    def remove(self, ino: int) -> None:
        """Remove a node, which has no extended attributes any more."""
        self._db.execute("DELETE FROM node WHERE ino = ?", (ino,))

    # -- open without a name ---------------------------------------------------------------------

    def nameless(self) -> list[int]:
        """The inodes without a name that programs had open when they were noted."""
        return [ino for (ino,) in self._db.execute("SELECT ino FROM orphan").fetchall()]

    def note_nameless(self, ino: int) -> None:
        """A program has an inode without a name open: should the daemon die, the next start removes it."""
        self._db.execute("INSERT OR REPLACE INTO orphan VALUES (?)", (ino,))

    def forget_nameless(self, ino: int) -> None:
        """The inode has a name, or goes."""
        self._db.execute("DELETE FROM orphan WHERE ino = ?", (ino,))

    # -- extended attributes ---------------------------------------------------------------------

    def xattrs(self, ino: int) -> list[tuple[bytes, bytes]]:
        """Names and values of the extended attributes of an inode, by name."""
        query = "SELECT name, value FROM xattr WHERE ino = ? ORDER BY name"
        return self._db.execute(query, (ino,)).fetchall()

    def xattr_names(self, ino: int) -> list[bytes]:
        """Their names, in order."""
        rows = self._db.execute("SELECT name FROM xattr WHERE ino = ? ORDER BY name", (ino,))
        return [name for (name,) in rows]

    def xattr(self, ino: int, name: bytes) -> bytes | None:
        """The value of one."""
        query = "SELECT value FROM xattr WHERE ino = ? AND name = ?"
        row = self._db.execute(query, (ino, name)).fetchone()
        return row[0] if row else None

    def size_of_xattrs(self, ino: int, but: bytes) -> int:
        """How many bytes the names and values of all but one have."""
        (size,) = self._db.execute(
            "SELECT total(length(name) + length(value)) FROM xattr WHERE ino = ? AND name <> ?", (ino, but)
        ).fetchone()
        return int(size)

    def add_xattr(self, ino: int, name: bytes, value: bytes) -> None:
        """Give an inode one that it does not have."""
        self._db.execute("INSERT INTO xattr VALUES (?, ?, ?)", (ino, name, value))

    def add_xattrs(self, rows: Iterable[tuple[int, bytes, bytes]]) -> None:
        """Give inodes some that they do not have: inode, name and value of each."""
        self._db.executemany("INSERT INTO xattr VALUES (?, ?, ?)", rows)

    def remove_xattr(self, ino: int, name: bytes) -> bool:
        """Remove one; whether there was one of that name."""
        query = "DELETE FROM xattr WHERE ino = ? AND name = ?"
        return self._db.execute(query, (ino, name)).rowcount > 0

    def clear_xattrs(self, ino: int) -> None:
        """Remove all of an inode."""
        self._db.execute("DELETE FROM xattr WHERE ino = ?", (ino,))
