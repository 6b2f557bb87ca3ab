"""What `hybrisfs fsck` asks of the rows of the tree, and of the database as a whole, in a snapshot."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from hybrisfs.kinds import KINDS, Trait
from hybrisfs.state.chunk_checks import CHUNKS_NOWHERE, PAGES_WITHOUT_CHUNK, PARTS_WITHOUT_CHUNK
from hybrisfs.state.database import Reader
from hybrisfs.state.schema import ROOT_INO

__all__ = [
    "TREE_CHECKS",
    "FileCount",
    "StagedPart",
    "TreeCheck",
    "count_files",
    "count_pages",
    "damaged_pages",
    "is_staged",
    "recorded_files",
    "staged_parts",
]


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
        "a node that is seen as one with one that does not exist",
    ),
    TreeCheck(
        "SELECT j.ino, j.id FROM joined j JOIN node n ON n.id = j.id",
        "a node that is seen as one with another and by itself, too",
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
