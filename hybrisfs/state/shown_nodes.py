"""What the view shows of nodes and names, for callers that know a node by its id or must say where it is.

Filesystem calls of programs go another way: `hybrisfs.tree` keeps inodes in memory, and writes their rows in
batches. So code that asks here in the open transaction has these written before (`FileSystem.flush`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable, Iterator
from stat import S_ISDIR
from typing import Final, Generic, NamedTuple, TypeVar

from hybrisfs.kinds import ATTRIBUTES, NODE, Kind, sql_node
from hybrisfs.state.bulk import select_many
from hybrisfs.state.database import Reader, RowWriter
from hybrisfs.state.schema import ROOT_INO

__all__ = [
    "ConflictName",
    "Direct",
    "ListedName",
    "Name",
    "Step",
    "ShownValue",
    "conflicts",
    "conflicts_beside",
    "contested_names",
    "count_below",
    "count_conflicts",
    "count_names",
    "has_any",
    "has_copies",
    "ino_of",
    "ino_shown_for",
    "inos_showing",
    "is_bare",
    "is_in_conflict",
    "known_nodes",
    "lone_directory",
    "moved_nodes",
    "name_of_node",
    "name_of_slot",
    "names_in_folder",
    "names_of",
    "newest_name",
    "nodes_below",
    "nodes_shown_as",
    "number_of_name",
    "path_along",
    "path_of",
    "paths_showing",
    "shown_path",
    "unmerged_ino",
    "way_to_root",
    "way_up",
]

_ALL: Final = -1


class Name(NamedTuple):
    """A name in a *folder*, which is given by the id of its node: the one that the register says, which may
    be shown otherwise."""

    folder: bytes
    name: bytes


class ListedName(NamedTuple):
    """A name in a folder, and the inode that has it. *wanted*: the name in the register, where another node
    has that one."""

    name: bytes
    ino: int
    wanted: bytes | None


class ConflictName(NamedTuple):
    """An inode that is shown as *name* in a folder, since another one has the name that it *wanted*."""

    parent: int
    name: bytes
    wanted: bytes
    ino: int


def ino_of(db: Reader, node: bytes) -> int | None:
    """The inode of a node; None of one that is not shown, or only merged with another."""
    row = db.execute("SELECT ino FROM node WHERE id = ?", (node,)).fetchone()
    return None if row is None else int(row[0])


def ino_shown_for(db: Reader, node: bytes) -> int | None:
    """The inode of a node, or of the one with which it is merged."""
    query = "SELECT ino FROM joined WHERE id = ?1 UNION ALL SELECT ino FROM node WHERE id = ?1"
    row = db.execute(query, (node,)).fetchone()
    return None if row is None else int(row[0])


def inos_showing(db: Reader, node: bytes) -> list[int]:
    """The inodes that show something of a node: its own, those of its copies, and that with which it is
    merged."""
    rows = db.execute(
        "SELECT ino FROM node WHERE id = ?1 UNION ALL SELECT ino FROM copy WHERE id = ?1 "
        "UNION ALL SELECT ino FROM joined WHERE id = ?1",
        (node,),
    )
    return [ino for (ino,) in rows.fetchall()]


def nodes_shown_as(db: Reader, ino: int) -> list[bytes]:
    """The nodes that are merged with an inode, that of the inode first; none when it is gone."""
    query = "SELECT id FROM node WHERE ino = ?1 UNION ALL SELECT id FROM joined WHERE ino = ?1"
    return [node for (node,) in db.execute(query, (ino,))]


def unmerged_ino(db: Reader, node: bytes) -> int | None:
    """The inode of a node that is not merged with another."""
    row = db.execute(
        "SELECT ino FROM node WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM joined WHERE id = ?1)", (node,)
    ).fetchone()
    return None if row is None else int(row[0])


def lone_directory(db: Reader, node: bytes) -> int | None:
    """The inode of a directory that has a name, and is merged with no other."""
    row = db.execute(
        "SELECT ino, mode FROM node WHERE id = ?1 AND nlink > 0 "
        "AND NOT EXISTS (SELECT 1 FROM joined j WHERE j.ino = node.ino OR j.id = ?1)",
        (node,),
    ).fetchone()
    return int(row[0]) if row is not None and S_ISDIR(row[1]) else None


def known_nodes(db: Reader, nodes: Iterable[bytes]) -> set[bytes]:
    """Those of *nodes* that are shown, or for whose sake others stand elsewhere than they say."""
    query = (
        "WITH asked (id) AS (VALUES {}) SELECT id FROM asked WHERE id IN (SELECT id FROM node) "
        "OR id IN (SELECT id FROM joined) OR id IN (SELECT cause FROM moved_for)"
    )
    return {node for (node,) in select_many(db, query, [(node,) for node in nodes])}


def is_bare(db: Reader) -> bool:
    """Whether nothing is shown but the root."""
    return db.execute("SELECT 1 FROM node WHERE ino <> ? LIMIT 1", (ROOT_INO,)).fetchone() is None


def nodes_below(db: Reader, ino: int) -> list[bytes]:
    """The nodes below a directory, with those that are merged with them."""
    rows = db.execute(
        "WITH RECURSIVE below (ino) AS (SELECT ino FROM place WHERE parent = ? "
        "UNION SELECT p.ino FROM below b CROSS JOIN place p ON p.parent = b.ino) "
        "SELECT id FROM node WHERE ino IN below UNION SELECT id FROM joined WHERE ino IN below",
        (ino,),
    )
    return [node for (node,) in rows.fetchall()]


def count_below(db: Reader, ino: int) -> int:
    """How many inodes there are at and below a directory."""
    (count,) = db.execute(
        "WITH RECURSIVE below (ino) AS (VALUES (?) UNION SELECT p.ino FROM place p "
        "JOIN below b ON p.parent = b.ino) SELECT count(*) FROM below",
        (ino,),
    ).fetchone()
    return int(count)


def count_names(db: Reader) -> int:
    """How many names the view has."""
    return int(db.execute("SELECT count(*) FROM place").fetchone()[0])


def newest_name(db: Reader) -> int:
    """The number of the newest name of the view, 0 when there is none."""
    return db.execute("SELECT max(number) FROM place").fetchone()[0] or 0


def number_of_name(db: Reader, ino: int, slot: int | None) -> int | None:
    """The number of the name that an inode has in a slot; of any of its names when *slot* is None."""
    if slot is None:
        row = db.execute("SELECT number FROM place WHERE ino = ? LIMIT 1", (ino,)).fetchone()
    else:
        row = db.execute("SELECT number FROM place WHERE ino = ? AND slot = ?", (ino, slot)).fetchone()
    return None if row is None else int(row[0])


def name_of_slot(db: Reader, ino: int, slot: int) -> Name | None:
    """The name that an inode has in a slot."""
    row = db.execute(
        "SELECT d.id, ifnull(p.wanted, p.name) FROM place p JOIN node d ON d.ino = p.parent "
        "WHERE p.ino = ? AND p.slot = ?",
        (ino, slot),
    ).fetchone()
    return None if row is None else Name(*row)


def name_of_node(db: Reader, node: bytes) -> Name | None:
    """A name that a node has; None of one that is only merged with another."""
    row = db.execute(
        "SELECT d.id, ifnull(p.wanted, p.name) FROM node n JOIN place p ON p.ino = n.ino "
        "JOIN node d ON d.ino = p.parent WHERE n.id = ?",
        (node,),
    ).fetchone()
    return None if row is None else Name(*row)


def has_copies(db: Reader) -> bool:
    """Whether any version of a file is shown beside another one, as a file of its own."""
    return db.execute("SELECT 1 FROM copy LIMIT 1").fetchone() is not None


def moved_nodes(db: Reader) -> set[bytes]:
    """The nodes that stand elsewhere than their registers say, as they cannot stand there."""
    return {node for (node,) in db.execute("SELECT id FROM moved")}


T = TypeVar("T")


class Step(NamedTuple, Generic[T]):
    """A node, the folder that it is in, and its name there."""

    node: T
    folder: T
    name: bytes


def way_up(node: T, ends: Container[T], place_of: Callable[[T], tuple[T, bytes] | None]) -> Iterator[Step[T]]:
    """The one walk from a node up to the root, or to another one of *ends*. It stops where *place_of* knows
    no folder and name. In the view there are no circles; elsewhere the caller limits the steps. The walk down
    a path is `FileSystem.locate`."""
    while node not in ends and (place := place_of(node)) is not None:
        yield Step(node, *place)
        node = place[0]


def path_along(way: Iterable[Step[T]]) -> bytes:
    """The path whose names a walk from its end has met."""
    return b"/".join([one.name for one in way][::-1])


def way_to_root(db: Reader, ino: int, ends: Container[int] = ()) -> Iterator[Step[int]]:
    """The way up from an inode in the view, by the oldest of its names; it also stops at one of *ends*."""

    def place_of(ino: int) -> tuple[int, bytes] | None:
        if ino == ROOT_INO:
            return None
        query = "SELECT parent, name FROM place WHERE ino = ? ORDER BY number LIMIT 1"
        place: tuple[int, bytes] | None = db.execute(query, (ino,)).fetchone()
        return place

    return way_up(ino, ends, place_of)


def path_of(db: Reader, ino: int) -> bytes | None:
    """The path of an inode from the root on, by the oldest of its names; None when it has no name."""
    way = list(way_to_root(db, ino))
    top = way[-1].folder if way else ino
    return path_along(way) if top == ROOT_INO else None


def shown_path(db: Reader, ino: int) -> str:
    """The same as text; empty when it has no name."""
    return os.fsdecode(path_of(db, ino) or b"")


def paths_showing(db: Reader, chunk: int, most: int) -> list[str]:
    """The paths of some files that show a chunk: of up to so many of its inodes, by all their names."""
    found: list[str] = []
    files = db.execute(
        "SELECT DISTINCT ino FROM file_chunk WHERE chunk = ? LIMIT ?", (chunk, most)
    ).fetchall()
    for folder, name in (one for (ino,) in files for one in names_of(db, ino, _ALL)):
        above = path_of(db, folder)
        if above is not None:
            found.append(os.fsdecode(above + b"/" + name if above else name))
    return found


def names_of(db: Reader, ino: int, most: int) -> list[tuple[int, bytes]]:
    """Folder (its inode) and name of up to so many of the names of an inode."""
    query = "SELECT parent, name FROM place WHERE ino = ? ORDER BY slot DESC LIMIT ?"
    return db.execute(query, (ino, most)).fetchall()


def names_in_folder(db: Reader, folder: int, after: bytes, most: int) -> list[ListedName]:
    """Up to so many of the names in a folder that come after this one, in their order."""
    rows = db.execute(
        "SELECT name, ino, wanted FROM place WHERE parent = ? AND name > ? ORDER BY name LIMIT ?",
        (folder, after, most),
    )
    return [ListedName(*row) for row in rows.fetchall()]


def count_conflicts(db: Reader) -> int:
    """How many names are shown under others, as another node has theirs."""
    return int(db.execute("SELECT count(*) FROM place WHERE wanted IS NOT NULL").fetchone()[0])


def conflicts(db: Reader) -> list[ConflictName]:
    """All of these, by folder and name."""
    rows = db.execute(
        "SELECT parent, name, wanted, ino FROM place WHERE wanted IS NOT NULL ORDER BY parent, name"
    )
    return [ConflictName(*row) for row in rows.fetchall()]


def contested_names(db: Reader, after: tuple[int, bytes], most: int) -> list[tuple[int, bytes]]:
    """Folders and names that others beside them want, so many that come *after* one, by both."""
    rows = db.execute(
        "SELECT DISTINCT parent, wanted FROM place WHERE wanted IS NOT NULL AND (parent, wanted) > (?, ?) "
        "ORDER BY parent, wanted LIMIT ?",
        (*after, most),
    )
    return rows.fetchall()


def conflicts_beside(db: Reader, folder: int, name: bytes) -> list[ConflictName]:
    """Those that stand beside the same name in a folder as this one, or beside this one."""
    rows = db.execute(
        "SELECT parent, name, wanted, ino FROM place WHERE parent = ? AND wanted IS NOT NULL "
        "AND wanted IN (SELECT ifnull(wanted, name) FROM place WHERE parent = ? AND name = ?)",
        (folder, folder, name),
    )
    return [ConflictName(*row) for row in rows.fetchall()]


def is_in_conflict(db: Reader, ino: int, node: bytes) -> bool:
    """Whether an inode is shown under a conflict name, or copies of its node are shown beside it."""
    row = db.execute(
        "SELECT 1 FROM place WHERE ino = ? AND wanted IS NOT NULL UNION ALL SELECT 1 FROM copy WHERE id = ?",
        (ino, node),
    ).fetchone()
    return row is not None


# -- facets of nodes that are shown as their registers say (`Trait.DIRECT`) -----------------------------
# What a program here has changed, and no update holds yet, stands in the table `unsigned` and hides what the
# register says. `pending` has its key, too, so that the next cut takes it. When it is signed, the register
# says the same, and the row goes. So what other devices write is shown as soon as it is in the registers.
#
# Of the concurrent values of such a register the greatest counts, by its bytes.


_VALUES = (
    "SELECT key, value FROM unsigned WHERE key >= ?1 AND key < ?2 UNION ALL "
    "SELECT key, max(value) AS value FROM register r WHERE key >= ?1 AND key < ?2 "
    "AND NOT EXISTS (SELECT 1 FROM unsigned u WHERE u.key = r.key) GROUP BY key"
)
_SHOWN = (
    f"SELECT v.key, v.value, ifnull(j.ino, n.ino) AS at FROM ({_VALUES}) v "
    f"LEFT JOIN node n ON n.id = {sql_node('v.key')} AND n.nlink > 0 "
    f"LEFT JOIN joined j ON j.id = {sql_node('v.key')} WHERE at IS NOT NULL"
)
_IS_WANTED = (
    "SELECT 1 FROM node WHERE id = ?1 AND nlink > 0 UNION ALL SELECT 1 FROM joined WHERE id = ?1 "
    f"UNION ALL SELECT 1 FROM register WHERE key = {ATTRIBUTES.sql_key('?1')} LIMIT 1"
)


class ShownValue(NamedTuple):
    """What a register says here, and the inode that shows the node."""

    key: bytes
    value: bytes
    ino: int


def has_any(db: Reader, kind: Kind) -> bool:
    """Whether an update has ever written a register of this kind."""
    query = f"SELECT 1 FROM register WHERE {kind.sql_rows()} LIMIT 1"
    return db.execute(query).fetchone() is not None


class Direct:
    """Those of one volume, under its lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database

    def between(self, first: bytes, last: bytes) -> dict[bytes, bytes]:
        """What the registers from *first* on and before *last* say here, by their keys."""
        return dict(self._db.execute(_VALUES, (first, last)).fetchall())

    def shown(self, first: bytes, last: bytes) -> list[ShownValue]:
        """The same of all nodes that are shown; inodes must have been flushed."""
        return [ShownValue(*row) for row in self._db.execute(_SHOWN, (first, last))]

    def is_wanted(self, key: bytes) -> bool:
        """Whether the node of the register is shown, or others know it and may bring it back; inodes must
        have been flushed."""
        return self._db.execute(_IS_WANTED, (key[NODE],)).fetchone() is not None

    def unsigned(self, key: bytes) -> bytes | None:
        """The value of a register that no update holds yet."""
        row = self._db.execute("SELECT value FROM unsigned WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def put(self, key: bytes, value: bytes) -> None:
        """A program has changed it."""
        self._db.execute("INSERT OR REPLACE INTO unsigned VALUES (?, ?)", (key, value))

    def forget(self, keys: Iterable[bytes]) -> None:
        """These are shown as their registers say again."""
        self._db.executemany("DELETE FROM unsigned WHERE key = ?", [(key,) for key in keys])
