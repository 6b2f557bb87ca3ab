"""The nodes of the view and their names: the tables `node`, `xattr`, `orphan` and `place`.

`hybrisfs.tree.inodes` keeps nodes in memory and writes their rows in batches, so a row may be older than its
inode. It counts extended attributes, too: what adds or removes rows of `xattr` has to put the count right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from hybrisfs.state.bulk import insert_many, select_many
from hybrisfs.state.database import Reader, RowWriter
from hybrisfs.state.schema import ROOT_INO

__all__ = ["NODE_COLUMNS", "Child", "Holder", "NodeRow", "NodeTable", "PlaceRow", "PlaceTable", "ShownPlace"]

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


# -- which inode the view shows in which directory, and under which name: the table `place` -------------
# Of the nodes that want one name in a directory one gets it. Each other is shown beside it under a conflict
# name, and `wanted` keeps the name that its register says.
#
# A name keeps its number when it comes to mean another node, so that no listing misses it or has it twice.


PlaceRow: TypeAlias = tuple[int, int, int, int]
"""The node with a name: its inode, the slot of the place, the stamp, and the number of the name."""
_FIND_PLACE: Final = "SELECT ino, slot, stamp, number FROM place WHERE parent = ? AND name = ?"
_INSERT_NEW_PLACE: Final = (
    "INSERT INTO place (parent, name, ino, slot, stamp, wanted) VALUES (?, ?, ?, ?, ?, ?)"
)
_INSERT_PLACE: Final = (
    "INSERT INTO place (number, parent, name, ino, slot, stamp, wanted) "
    "SELECT iif(EXISTS (SELECT 1 FROM place WHERE number = ?1), NULL, ?1), ?, ?, ?, ?, ?, ?"
)
_LIST: Final = (
    f"SELECT p.number, p.name, p.ino, {', '.join(f'n.{name}' for name in NODE_COLUMNS.split(', '))} "
    "FROM place p LEFT JOIN node n ON n.ino = p.ino WHERE p.parent = ? AND p.number > ? "
    "ORDER BY p.number LIMIT ?"
)


class ShownPlace(NamedTuple):
    """Where an inode is shown, and under which name its register wants it when another has that name."""

    parent: int
    name: bytes
    wanted: bytes | None

    @property
    def plain(self) -> bytes:
        """The name for whose sake it is shown."""
        return self.name if self.wanted is None else self.wanted


class Holder(NamedTuple):
    """The inode that has a name, by one of its slots."""

    ino: int
    slot: int
    shown: ShownPlace


class Child(NamedTuple):
    """A node in a directory. *plain*: the name for whose sake it is shown."""

    plain: bytes
    slot: int
    node: bytes


class PlaceTable:
    """The names of one volume, under its lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database
        # What was found last, where, and at which number of changes: the kernel looks a name up just before
        # it has something put there. (Changes that are taken back are not counted; savepoints hold rows of
        # the log only.)
        self._found: PlaceRow | None = None
        self._found_at: tuple[int, int, bytes] | None = None

    # -- of an inode -----------------------------------------------------------------------------

    def of(self, ino: int, slots: Iterable[int] | None = None) -> dict[int, ShownPlace]:
        """Where an inode is shown, by slot, the lowest first; or by these slots only."""
        if slots is not None:
            return {slot: shown for slot in slots if (shown := self.at(ino, slot)) is not None}
        rows = self._db.execute(
            "SELECT slot, parent, name, wanted FROM place WHERE ino = ? ORDER BY slot", (ino,)
        )
        return {slot: ShownPlace(*row) for slot, *row in rows}

    def at(self, ino: int, slot: int) -> ShownPlace | None:
        """Where an inode is shown by this slot."""
        row = self._db.execute(
            "SELECT parent, name, wanted FROM place WHERE ino = ? AND slot = ?", (ino, slot)
        ).fetchone()
        return ShownPlace(*row) if row else None

    def first(self, ino: int) -> ShownPlace | None:
        """Where an inode is shown by the lowest of its slots."""
        row = self._db.execute(
            "SELECT parent, name, wanted FROM place WHERE ino = ? ORDER BY slot LIMIT 1", (ino,)
        ).fetchone()
        return ShownPlace(*row) if row else None

    def slots(self, ino: int) -> list[int]:
        """The slots by which an inode is shown."""
        return [slot for (slot,) in self._db.execute("SELECT slot FROM place WHERE ino = ?", (ino,))]

    def is_shown(self, ino: int) -> bool:
        """Whether an inode has a name."""
        row = self._db.execute("SELECT 1 FROM place WHERE ino = ? LIMIT 1", (ino,))
        return row.fetchone() is not None

    def parent_of(self, ino: int) -> int:
        """A directory that holds the inode; the root holds itself, and all that has no name."""
        if ino == ROOT_INO:
            return ino
        row = self._db.execute("SELECT parent FROM place WHERE ino = ?", (ino,)).fetchone()
        return row[0] if row else ROOT_INO

    def parents_of(self, ino: int) -> list[int]:
        """All directories that hold the inode; nothing holds the root."""
        if ino == ROOT_INO:
            return []
        rows = self._db.execute("SELECT DISTINCT parent FROM place WHERE ino = ?", (ino,)).fetchall()
        return [parent for (parent,) in rows]

    def above(self, directory: int) -> Iterator[int]:
        """The directories above one, the nearest first and the root last."""
        while directory != ROOT_INO:
            directory = self.parent_of(directory)
            yield directory

    # -- of a name -------------------------------------------------------------------------------

    def find(self, parent: int, name: bytes) -> PlaceRow | None:
        """The node with the name in a directory."""
        where = self._db.total_changes(), parent, name
        if where != self._found_at:
            self._found = self._db.execute(_FIND_PLACE, (parent, name)).fetchone()
            self._found_at = where
        return self._found

    def holder(self, parent: int, name: bytes) -> Holder | None:
        """The node that is shown under a name."""
        row = self._db.execute(
            "SELECT ino, slot, wanted FROM place WHERE parent = ? AND name = ?", (parent, name)
        ).fetchone()
        return Holder(row[0], row[1], ShownPlace(parent, name, row[2])) if row else None

    def is_any_called(self, name: bytes) -> bool:
        """Whether something in any directory is shown under a name; looks at all names."""
        query = "SELECT 1 FROM place WHERE name = ? LIMIT 1"
        return self._db.execute(query, (name,)).fetchone() is not None

    def is_taken(self, parent: int, name: bytes) -> bool:
        """Whether something is shown under a name."""
        return self.find(parent, name) is not None

    def taken(self, names: Sequence[tuple[int, bytes]]) -> set[tuple[int, bytes]]:
        """Those of many names, each given with its directory, under which something is shown."""
        query = (
            "WITH asked (at, called) AS (VALUES {}) SELECT at, called FROM asked "
            "WHERE EXISTS (SELECT 1 FROM place WHERE parent = at AND name = called)"
        )
        return {(at, called) for at, called in select_many(self._db, query, names)}

    def wanting(self, parent: int, name: bytes, most: int) -> dict[tuple[int, int], ShownPlace]:
        """The nodes shown under a name, or beside it for its sake, by inode and slot; at most *most*."""
        rows = self._db.execute(
            "SELECT ino, slot, name, wanted FROM place WHERE parent = ? AND name = ? AND wanted IS NULL "
            "UNION ALL SELECT * FROM "
            "(SELECT ino, slot, name, wanted FROM place WHERE parent = ? AND wanted = ? "
            "ORDER BY name LIMIT ?) LIMIT ?",
            (parent, name, parent, name, most, most),
        )
        return {(ino, slot): ShownPlace(parent, shown, wanted) for ino, slot, shown, wanted in rows}

    def are_beside(self, parent: int, name: bytes, count: int) -> bool:
        """Whether at least so many, one or more, are shown under conflict names for the sake of a name."""
        row = self._db.execute(
            "SELECT 1 FROM place WHERE parent = ? AND wanted = ? LIMIT 1 OFFSET ?", (parent, name, count - 1)
        )
        return row.fetchone() is not None

    def contested(self) -> list[tuple[int, bytes]]:
        """The names, each with its directory, that something wants which is shown under a conflict name."""
        query = "SELECT DISTINCT parent, wanted FROM place WHERE wanted IS NOT NULL"
        return self._db.execute(query).fetchall()

    # -- of a directory --------------------------------------------------------------------------

    def listing(self, parent: int, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Up to *limit* names in a directory, those with numbers above *after*, in their order: number, name,
        inode, and the `NodeRow`, which has NULLs when the node has not been flushed yet."""
        return self._db.execute(_LIST, (parent, after, limit)).fetchall()

    def is_empty(self, directory: int) -> bool:
        """Whether a directory holds no name."""
        query = "SELECT 1 FROM place WHERE parent = ? LIMIT 1"
        return self._db.execute(query, (directory,)).fetchone() is None

    def within(self, parent: int) -> list[tuple[int, int]]:
        """Inode and slot of all that is in a directory, in the order of listings."""
        query = "SELECT ino, slot FROM place WHERE parent = ? ORDER BY number"
        return self._db.execute(query, (parent,)).fetchall()

    def children(self, parent: int) -> Iterator[Child]:
        """The nodes in a directory, read as the caller goes on; inodes must have been flushed."""
        rows = self._db.execute(
            "SELECT ifnull(p.wanted, p.name), p.slot, n.id FROM place p JOIN node n ON n.ino = p.ino "
            "WHERE p.parent = ?",
            (parent,),
        )
        return map(Child._make, rows)

    # -- changing --------------------------------------------------------------------------------

    def insert(
        self,
        parent: int,
        name: bytes,
        ino: int,
        slot: int,
        stamp: int,
        number: int | None = None,
        wanted: bytes | None = None,
    ) -> None:
        """Give an inode a name that nothing has. *number*: the one that the name had before; if another name
        has taken it, the name gets a new one. *wanted*: see `hybrisfs.state.schema`."""
        values = parent, name, ino, slot, stamp, wanted
        if number is None:
            row = self._db.execute(_INSERT_NEW_PLACE, values)
        else:
            row = self._db.execute(_INSERT_PLACE, (number, *values))
        self._db.note_place((row.lastrowid, *values))

    def restore(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Insert rows that were recorded."""
        self._db.executemany(_INSERT_PLACE, rows)

    def remove(self, number: int) -> None:
        """Remove the name with this number, which is there."""
        self._db.execute("DELETE FROM place WHERE number = ?", (number,))

    def set_stamp(self, stamp: int, places: Iterable[tuple[int, int]]) -> None:
        """The update with this stamp wrote these places, each given by its inode and slot."""
        self._db.executemany(
            "UPDATE place SET stamp = ? WHERE ino = ? AND slot = ?",
            [(stamp, ino, slot) for ino, slot in places],
        )

    def insert_new(self, rows: Iterable[tuple[int, bytes, int]]) -> None:
        """Show new nodes of which an update tells; given by directory, name and inode."""
        insert_many(
            self._db,
            "INSERT INTO place (parent, name, ino, slot, stamp) VALUES {}",
            [(parent, name, ino, 0, 1) for parent, name, ino in rows],
        )

    def withdraw(self, ino: int, slot: int) -> tuple[ShownPlace, int] | None:
        """Show an inode by this slot no more: where it was, and the number of the name."""
        row = self._db.execute(
            "DELETE FROM place WHERE ino = ? AND slot = ? RETURNING parent, name, wanted, number", (ino, slot)
        ).fetchone()
        return (ShownPlace(*row[:3]), row[3]) if row else None

    def move_to(self, ino: int, fresh: int) -> None:
        """Give all names of an inode to another one."""
        self._db.execute("UPDATE place SET ino = ? WHERE ino = ?", (fresh, ino))

    def told(self, ino: int, slot: int, stamp: int) -> None:
        """Note that an update with this stamp names the place of an inode, if none has before."""
        query = "UPDATE place SET stamp = ? WHERE ino = ? AND slot = ? AND stamp = 0"
        self._db.execute(query, (stamp, ino, slot))

    def put_beside(self, parent: int, name: bytes, free: bytes) -> None:
        """Show the node with a name under this free one instead, for the sake of the one that it wants."""
        self._db.execute(
            "UPDATE place SET name = ?, wanted = ifnull(wanted, name) WHERE parent = ? AND name = ?",
            (free, parent, name),
        )

    def keep_name(self, ino: int) -> None:
        """From now on an inode wants the name under which it is shown; no update says so yet."""
        self._db.execute("UPDATE place SET wanted = NULL, stamp = 0 WHERE ino = ?", (ino,))
