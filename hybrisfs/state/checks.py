"""What `hybrisfs fsck` asks of the state: of the tree, the database, chunks, the view and registers."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from hybrisfs.kinds import KINDS, Kind, Trait
from hybrisfs.state.chunk_states import ELSEWHERE
from hybrisfs.state.database import Reader
from hybrisfs.state.schema import ROOT_INO

__all__ = [
    "TREE_CHECKS",
    "CachedRow",
    "FileCount",
    "MergedNode",
    "NameRow",
    "NodeRow",
    "StagedPart",
    "StoredCount",
    "TreeCheck",
    "bodies_by_stamp",
    "cached_count",
    "cached_rows",
    "copies",
    "count_files",
    "count_nodes",
    "count_pages",
    "count_values",
    "damaged_pages",
    "folders_alike",
    "has_merged_name",
    "is_cached_in",
    "is_spare_in",
    "is_staged",
    "merged_with",
    "moved_to",
    "names_by_node",
    "names_of_node",
    "names_shown_for",
    "newest_value",
    "nodes_by_id",
    "nodes_in_conflicts",
    "recorded_files",
    "rivals_marked",
    "rivals_named",
    "rows_of_key",
    "staged_parts",
    "unsigned_keys",
    "values_of_no_update",
    "values_with_signers",
]

# -- what `hybrisfs fsck` asks of chunks ----------------------------------------------------------------
# The constants are queries: a caller that reads a database which may be damaged knows what an error of SQLite
# means there.


CachedRow = tuple[int, bytes, int, int, int, int | None]
"""Number, id, length, segment, position and pack of a chunk that is here."""

# -- rows that belong to no other -----------------------------------------------------------------------

PARTS_WITHOUT_CHUNK: Final = (
    # How long a chunk is that another device has made is not known before that says where it is.
    "SELECT f.ino, f.offset FROM file_chunk f LEFT JOIN chunk c ON c.number = f.chunk "
    f"WHERE c.number IS NULL OR f.length < 1 OR (f.length > c.length AND c.pack IS NOT {ELSEWHERE})"
)
"""Node and offset of parts of files that no chunk holds."""
PAGES_WITHOUT_CHUNK: Final = (
    "SELECT p.ino, p.chunk FROM content_page p LEFT JOIN chunk c ON c.number = p.chunk WHERE c.number IS NULL"
)
"""Nodes and chunks of pages that no chunk holds."""
CHUNKS_NOWHERE: Final = (
    "SELECT c.number, c.id FROM chunk c LEFT JOIN pack p ON p.number = c.pack "
    f"WHERE p.number IS NULL AND (c.pack <> {ELSEWHERE} OR c.pack IS NULL AND c.segment IS NULL)"
)
"""Numbers and ids of chunks that are in no state."""

# -- are the bytes, and the places, what is recorded? ---------------------------------------------------


def cached_count(db: Reader) -> int:
    """How many chunks are here."""
    (count,) = db.execute("SELECT count(*) FROM chunk WHERE segment IS NOT NULL").fetchone()
    return int(count)


def cached_rows(db: Reader) -> Iterator[CachedRow]:
    """The chunks that are here, in the order of their segments."""
    return db.execute(
        "SELECT number, id, length, segment, position, pack FROM chunk "
        "WHERE segment IS NOT NULL ORDER BY segment"
    )


def is_cached_in(db: Reader, number: int, segment: int) -> bool:
    """Whether a chunk lies in that segment."""
    row = db.execute("SELECT 1 FROM chunk WHERE number = ? AND segment = ?", (number, segment)).fetchone()
    return row is not None


def is_spare_in(db: Reader, pack: int, identity: bytes) -> bool:
    """Whether the pack is one more that has the chunk with this id, or had it before the clouds lost it."""
    row = db.execute(
        "SELECT 1 FROM spare WHERE pack = ? AND chunk = (SELECT number FROM chunk WHERE id = ?)",
        (pack, identity),
    ).fetchone()
    return row is not None


# -- what `hybrisfs fsck` asks of the rows of the tree --------------------------------------------------


class TreeCheck(NamedTuple):
    """A query for rows that must not be, and what is wrong with them."""

    query: str
    what: str

    def wrong(self, db: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
        """What tells the rows that are wrong."""
        return db.execute(self.query)


_DIRECT: Final = " OR ".join(kind.sql_rows("p.key") for kind in KINDS if Trait.DIRECT in kind.traits)
TREE_CHECKS: Final = (
    TreeCheck(
        "SELECT p.parent, p.name FROM place p LEFT JOIN node n ON n.ino = p.ino WHERE n.ino IS NULL",
        "a name without a node",
    ),
    TreeCheck(
        "SELECT p.parent, p.name FROM place p LEFT JOIN node n ON n.ino = p.parent WHERE n.ino IS NULL",
        "a name in a folder that does not exist",
    ),
    TreeCheck(
        f"SELECT n.ino, n.id FROM node n WHERE n.ino <> {ROOT_INO} "
        "AND n.ino NOT IN (SELECT ino FROM place) AND n.ino NOT IN (SELECT ino FROM orphan)",
        "a node without a name",
    ),
    TreeCheck(
        "SELECT n.ino, n.id FROM node n WHERE (n.mode & 61440) <> 16384 AND n.nlink > 0 "
        "AND n.nlink <> (SELECT count(*) FROM place p WHERE p.ino = n.ino)",
        "a wrong link count",
    ),
    TreeCheck(
        "SELECT n.ino, n.id FROM node n WHERE (n.mode & 61440) = 16384 AND n.nlink > 0 AND n.nlink <> 2 + "
        "(SELECT count(*) FROM place p JOIN node c ON c.ino = p.ino "
        "WHERE p.parent = n.ino AND (c.mode & 61440) = 16384)",
        "a wrong link count of a folder",
    ),
    TreeCheck(
        "SELECT n.ino, n.id FROM node n WHERE n.xattrs <> (SELECT count(*) FROM xattr x WHERE x.ino = n.ino)",
        "a wrong count of extended attributes",
    ),
    TreeCheck(PARTS_WITHOUT_CHUNK, "a part of a file without its chunk"),
    TreeCheck(PAGES_WITHOUT_CHUNK, "a list of chunks without its chunk"),
    TreeCheck(
        "SELECT u.ino FROM unlisted u LEFT JOIN node n ON n.ino = u.ino WHERE n.ino IS NULL",
        "a list of chunks that is to be read for a file that does not exist",
    ),
    TreeCheck(
        "SELECT c.ino, c.id FROM copy c LEFT JOIN node n ON n.ino = c.ino WHERE n.ino IS NULL",
        "a version of a file that does not exist",
    ),
    TreeCheck(
        "SELECT j.ino, j.id FROM joined j LEFT JOIN node n ON n.ino = j.ino WHERE n.ino IS NULL",
        "a node that is merged with one that does not exist",
    ),
    TreeCheck(
        "SELECT j.ino, j.id FROM joined j JOIN node n ON n.id = j.id",
        "a node that is merged with another and by itself, too",
    ),
    TreeCheck(
        "SELECT ino, offset FROM (SELECT ino, offset, offset + length > "
        "lead(offset) OVER (PARTITION BY ino ORDER BY offset) AS bad FROM file_chunk) WHERE bad",
        "parts of a file that overlap",
    ),
    TreeCheck(
        "SELECT ino, start FROM (SELECT ino, start, start + length > "
        "lead(start) OVER (PARTITION BY ino ORDER BY start) AS bad FROM extent) WHERE bad OR start < 0",
        "staged parts of a file that overlap",
    ),
    TreeCheck(
        f"WITH RECURSIVE reached (ino) AS (SELECT {ROOT_INO} "
        "UNION SELECT p.ino FROM place p JOIN reached r ON p.parent = r.ino) "
        "SELECT ino, name FROM place WHERE ino NOT IN (SELECT ino FROM reached)",
        "a name that cannot be reached from the root",
    ),
    TreeCheck(
        "SELECT u.key FROM unsigned u LEFT JOIN pending p ON p.key = u.key AND p.clock IS NULL "
        "WHERE p.key IS NULL",
        "a change that no update is going to hold",
    ),
    TreeCheck(
        f"SELECT p.key FROM pending p WHERE p.clock IS NULL AND ({_DIRECT}) "
        "AND NOT EXISTS (SELECT 1 FROM unsigned u WHERE u.key = p.key)",
        "a change without a value",
    ),
    TreeCheck(CHUNKS_NOWHERE, "a chunk that is nowhere"),
)


class FileCount(NamedTuple):
    """How many regular files with a name there are, and the sum of their sizes."""

    files: int
    bytes: int


class StagedPart(NamedTuple):
    """Bytes that were written since a file was last cut: *length* of them from *start* on, in the journal."""

    ino: int
    start: int
    length: int
    segment: int
    position: int


def damaged_pages(db: sqlite3.Connection, most: int) -> list[str]:
    """What SQLite finds wrong with the pages, up to so many findings."""
    lines = db.execute(f"PRAGMA integrity_check({most})").fetchall()
    return [line for (line,) in lines if line != "ok"]


def count_pages(db: sqlite3.Connection) -> int:
    """How many pages the database has."""
    return int(db.execute("PRAGMA page_count").fetchone()[0])


def count_files(db: sqlite3.Connection) -> FileCount:
    """Count what is there."""
    files, size = db.execute(
        "SELECT count(*), total(size) FROM node WHERE (mode & 61440) = ? AND nlink > 0", (stat.S_IFREG,)
    ).fetchone()
    return FileCount(files, int(size))


def recorded_files(db: sqlite3.Connection) -> FileCount:
    """What the counters say of it."""
    recorded = dict(db.execute("SELECT key, value FROM meta WHERE key IN ('files', 'bytes')"))
    return FileCount(recorded["files"], recorded["bytes"])


def staged_parts(db: sqlite3.Connection) -> Iterator[StagedPart]:
    """All parts whose bytes are in the journal."""
    return map(
        StagedPart._make,
        db.execute("SELECT ino, start, length, segment, position FROM extent WHERE segment > 0"),
    )


def is_staged(db: Reader, part: StagedPart) -> bool:
    """Whether a part is still where it was."""
    query = "SELECT 1 FROM extent WHERE ino = ? AND start = ? AND segment = ?"
    return db.execute(query, (part.ino, part.start, part.segment)).fetchone() is not None


# -- what `hybrisfs fsck` asks of the view, in a snapshot, to compare it with the registers -------------
# Rows of all nodes or names are plain tuples, read as the caller goes on: its docstring says what is in one.


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
    """The *other* node with which one is merged; None when it does not exist."""

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
    """The node that this one is merged with, or None."""
    query = "SELECT n.id FROM joined j LEFT JOIN node n ON n.ino = j.ino WHERE j.id = ?"
    row = db.execute(query, (node,)).fetchone()
    return None if row is None else MergedNode(*row)


def moved_to(db: sqlite3.Connection, node: bytes) -> bytes | None:
    """The folder that shows a node instead of the one that its registers name; None when they agree."""
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


# -- what is wrong with the stored values of registers --------------------------------------------------


class StoredCount(NamedTuple):
    """How many values registers have, and how many of them are of bare updates."""

    values: int
    bare: int


def rows_of_key(db: sqlite3.Connection, key: bytes) -> list[tuple[int, int, bytes | None]]:
    """The values of a register: clock, number of the branch, and value."""
    return db.execute("SELECT clock, writer, value FROM register WHERE key = ?", (key,)).fetchall()


def count_values(db: sqlite3.Connection) -> StoredCount:
    """Count the values of all registers."""
    values, bare = db.execute(
        "SELECT count(*), total(EXISTS (SELECT 1 FROM log l WHERE l.branch = w.branch "
        "AND l.clock = r.clock AND l.bytes IS NULL)) "
        "FROM register r LEFT JOIN writer w ON w.number = r.writer"
    ).fetchone()
    return StoredCount(values, int(bare))


def values_with_signers(db: sqlite3.Connection, kind: Kind) -> Iterator[tuple[bytes, bytes | None, bytes]]:
    """The values of registers of a kind that are of updates which are not bare: key, value, and the device
    that signed the update."""
    return db.execute(
        "SELECT r.key, r.value, l.device FROM register r JOIN writer w ON w.number = r.writer "
        "JOIN log l ON l.branch = w.branch AND l.clock = r.clock AND l.bytes IS NOT NULL "
        f"WHERE {kind.sql_rows('r.key')}"
    )


def values_of_no_update(db: sqlite3.Connection, most: int) -> Iterator[tuple[bytes, int]]:
    """Key and clock of up to so many values of updates that are not in the log."""
    return db.execute(
        "SELECT r.key, r.clock FROM register r LEFT JOIN writer w ON w.number = r.writer "
        "WHERE NOT EXISTS (SELECT 1 FROM log l WHERE l.branch = w.branch AND l.clock = r.clock) LIMIT ?",
        (most,),
    )


def newest_value(db: sqlite3.Connection, key: bytes) -> bytes | None:
    """The value of a register with the highest stamp; None also when the register has none."""
    row = db.execute(
        "SELECT r.value FROM register r JOIN writer w ON w.number = r.writer WHERE r.key = ? "
        "ORDER BY r.clock DESC, w.branch DESC LIMIT 1",
        (key,),
    ).fetchone()
    return None if row is None else row[0]
