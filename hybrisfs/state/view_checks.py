"""What `hybrisfs fsck` asks of the view, in a snapshot, to compare it with the registers.

Rows of all nodes or names are plain tuples, read as the caller goes on: its docstring says what is in one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

__all__ = [
    "MergedNode",
    "NameRow",
    "NodeRow",
    "bodies_by_stamp",
    "copies",
    "count_nodes",
    "folders_alike",
    "has_merged_name",
    "merged_with",
    "moved_to",
    "names_by_node",
    "names_of_node",
    "names_shown_for",
    "nodes_by_id",
    "nodes_in_conflicts",
    "rivals_marked",
    "rivals_named",
    "unsigned_keys",
]

NodeRow: TypeAlias = tuple[bytes, int, int, int, int, int, int, int, int, int, int, bytes]
"""Id, inode, size, number of extended attributes, stamps of attributes and content; mode, uid, gid, rdev,
mtime, target."""
NameRow: TypeAlias = tuple[bytes, int, bytes | None, bytes, bytes | None, int]
"""Id of the node, slot, id of the folder (None when there is no such one), name, the name in the register
where another node has that one, and stamp."""

_NAMES: Final = (
    "SELECT n.id, p.slot, d.id, p.name, p.wanted, p.stamp FROM node n JOIN place p ON p.ino = n.ino "
    "LEFT JOIN node d ON d.ino = p.parent "
)
_OF_NODE: Final = "SELECT ino FROM node WHERE id = ?1 UNION ALL SELECT ino FROM copy WHERE id = ?1"
_RIVALS: Final = (
    "SELECT ifnull(c.id, n.id) FROM place p JOIN node n ON n.ino = p.ino LEFT JOIN copy c ON c.ino = p.ino "
    "WHERE p.parent = (SELECT ino FROM node WHERE id = ?) AND "
)


class MergedNode(NamedTuple):
    """The *other* node with which one is seen as one; None when it does not exist."""

    other: bytes | None


# -- all of a kind ---------------------------------------------------------------------------------------


def count_nodes(db: sqlite3.Connection) -> int:
    """How many nodes the view has."""
    return int(db.execute("SELECT count(*) FROM node").fetchone()[0])


def nodes_by_id(db: sqlite3.Connection) -> Iterator[NodeRow]:
    """All nodes, by id."""
    return db.execute(
        "SELECT id, ino, size, xattrs, attr_stamp, content_stamp, "
        "mode, uid, gid, rdev, mtime, ifnull(target, x'') FROM node ORDER BY id"
    )


def names_by_node(db: sqlite3.Connection) -> Iterator[NameRow]:
    """All names, by the id of the node."""
    return db.execute(f"{_NAMES} ORDER BY n.id")


def unsigned_keys(db: sqlite3.Connection) -> set[bytes]:
    """The registers that have changed here and are in no update yet."""
    return {key for (key,) in db.execute("SELECT key FROM pending WHERE clock IS NULL")}


def copies(db: sqlite3.Connection) -> dict[int, bytes]:
    """The inodes that show a version of a file beside another one, with the id of the node whose it is."""
    return dict(db.execute("SELECT ino, id FROM copy").fetchall())


def nodes_in_conflicts(db: sqlite3.Connection) -> set[bytes]:
    """The nodes that have copies, are merged with others, or stand elsewhere than their registers say."""
    rows = db.execute("SELECT id FROM copy UNION SELECT id FROM joined UNION SELECT id FROM moved")
    return {node for (node,) in rows}


# -- of one node -----------------------------------------------------------------------------------------


def names_of_node(db: sqlite3.Connection, node: bytes) -> list[NameRow]:
    """The names of a node, and of its copies."""
    return db.execute(f"{_NAMES} WHERE n.ino IN ({_OF_NODE})", (node,)).fetchall()


def names_shown_for(db: sqlite3.Connection, node: bytes) -> list[NameRow]:
    """The same, and those of the node that it is merged with."""
    query = f"{_NAMES} WHERE n.ino IN ({_OF_NODE} UNION ALL SELECT ino FROM joined WHERE id = ?1)"
    return db.execute(query, (node,)).fetchall()


def bodies_by_stamp(db: sqlite3.Connection, stamp: int) -> list[bytes | None]:
    """The updates that a stamp of the view may mean (`RegisterTable.number_of`), None for bare ones: the
    branch may have got another name since, if the device has forked."""
    rows = db.execute(
        "SELECT l.bytes FROM log l JOIN log_branch b ON b.device = l.device "
        "JOIN writer w ON w.branch = b.id WHERE w.number = ? AND l.clock = ?",
        (stamp & 0xFFFF, stamp >> 16),
    )
    return [data for (data,) in rows]


def merged_with(db: sqlite3.Connection, node: bytes) -> MergedNode | None:
    """With which node one is seen as one; None when with none."""
    query = "SELECT n.id FROM joined j LEFT JOIN node n ON n.ino = j.ino WHERE j.id = ?"
    row = db.execute(query, (node,)).fetchone()
    return None if row is None else MergedNode(*row)


def moved_to(db: sqlite3.Connection, node: bytes) -> bytes | None:
    """The folder in which a node stands instead of where its registers say; None when there it stands."""
    row = db.execute("SELECT parent FROM moved WHERE id = ?", (node,)).fetchone()
    return None if row is None else bytes(row[0])


# -- in one folder ---------------------------------------------------------------------------------------


def folders_alike(db: sqlite3.Connection, folder: bytes) -> list[bytes]:
    """The folder, and those that are merged with it."""
    query = "SELECT j.id FROM node n JOIN joined j ON j.ino = n.ino WHERE n.id = ?"
    return [folder, *(one for (one,) in db.execute(query, (folder,)))]


def rivals_named(db: sqlite3.Connection, folder: bytes | None, name: bytes) -> list[bytes]:
    """The nodes that are shown in the folder by this name, of a copy the node whose it is."""
    return [node for (node,) in db.execute(f"{_RIVALS} p.name = ?", (folder, name))]


def rivals_marked(db: sqlite3.Connection, folder: bytes | None, mark: bytes) -> list[bytes]:
    """The nodes that are shown in the folder by names with this in them."""
    return [node for (node,) in db.execute(f"{_RIVALS} instr(p.name, ?)", (folder, mark))]


def has_merged_name(db: sqlite3.Connection, folder: bytes, name: bytes, node: bytes) -> bool | None:
    """Whether a node is merged with one that has this name in the folder; None: no such folder is shown."""
    here, merged = db.execute(
        "WITH here (ino) AS (SELECT ino FROM node WHERE id = ?3 "
        "UNION ALL SELECT ino FROM joined WHERE id = ?3) SELECT EXISTS (SELECT 1 FROM here), "
        "EXISTS (SELECT 1 FROM joined j JOIN place p ON p.ino = j.ino WHERE j.id = ?1 "
        "AND ifnull(p.wanted, p.name) = ?2 AND p.parent IN (SELECT ino FROM here))",
        (node, name, folder),
    ).fetchone()
    return bool(merged) if here else None
