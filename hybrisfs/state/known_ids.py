"""What is known of IDs of files and folders (`hybrisfs.content_ids`), so that only what changed is hashed.

Hashes of leaves are kept in the table `leaf`, by the parts of chunks that the bytes are in. So they serve all
files and versions that show these parts, as long as the first chunk is known here.

Hashes of whole files and folders are in the temporary table `node_id`, while the volume is open. Triggers
note which nodes change (`changed_id`): rows of `node` by what a hash covers or follows from, and rows of
`place` for their folder. `settle` forgets the hashes of these and of all folders above, up to the first
without a hash: above that there are none. Of nodes without a hash it is noted only while IDs are
made (the row with ino 0).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hybrisfs.state.database import RowWriter
from hybrisfs.state.file_chunks import BaseRow

__all__ = ["KnownIds", "LeafKey", "ListedNode", "leaf_key"]

_NOTES: Final = "EXISTS (SELECT 1 FROM node_id WHERE ino IN (0, {ino}))"
# Not OR IGNORE: what the statement that fires a trigger does on conflict would hold instead.
_NOTE: Final = (
    "INSERT INTO changed_id SELECT {ino} WHERE NOT EXISTS (SELECT 1 FROM changed_id WHERE ino = {ino});"
)
_CHANGES: Final = " OR ".join(
    f"OLD.{column} IS NOT NEW.{column}"
    for column in ("mode", "size", "mtime", "ctime", "target", "rdev", "content_stamp")
)
_TABLES: Final = (
    "CREATE TEMP TABLE IF NOT EXISTS node_id (ino INTEGER PRIMARY KEY, hash BLOB NOT NULL)",
    "CREATE TEMP TABLE IF NOT EXISTS changed_id (ino INTEGER PRIMARY KEY)",
    "CREATE TEMP TRIGGER IF NOT EXISTS id_of_changed AFTER UPDATE ON node "
    f"WHEN ({_CHANGES}) AND {_NOTES.format(ino='NEW.ino')} BEGIN {_NOTE.format(ino='NEW.ino')} END",
    "CREATE TEMP TRIGGER IF NOT EXISTS id_of_removed AFTER DELETE ON node "
    "BEGIN DELETE FROM node_id WHERE ino = OLD.ino; END",
    "CREATE TEMP TRIGGER IF NOT EXISTS id_with_more AFTER INSERT ON place "
    f"WHEN {_NOTES.format(ino='NEW.parent')} BEGIN {_NOTE.format(ino='NEW.parent')} END",
    "CREATE TEMP TRIGGER IF NOT EXISTS id_with_less AFTER DELETE ON place "
    f"WHEN {_NOTES.format(ino='OLD.parent')} BEGIN {_NOTE.format(ino='OLD.parent')} END",
    "CREATE TEMP TRIGGER IF NOT EXISTS id_with_others AFTER UPDATE OF parent, name, ino ON place "
    f"WHEN {_NOTES.format(ino='OLD.parent')} OR {_NOTES.format(ino='NEW.parent')} "
    f"BEGIN {_NOTE.format(ino='OLD.parent')} {_NOTE.format(ino='NEW.parent')} END",
)


class ListedNode(NamedTuple):
    """What is in a folder. *number*: of its name, after which a listing goes on. *hash*: if it is known."""

    number: int
    name: bytes
    ino: int
    mode: int
    rdev: int
    target: bytes | None
    hash: bytes | None


class LeafKey(NamedTuple):
    """Which bytes a leaf has. *chunk*: the number of the first chunk; *parts*: a hash of all parts."""

    chunk: int
    parts: bytes


def leaf_key(parts: Sequence[BaseRow], start: int, length: int) -> LeafKey | None:
    """The key of the *length* bytes from *start* on of a file, which these parts in chunks show, and zeros
    between them. None when there are zeros only."""
    if not parts:
        return None
    digest = hashlib.sha256(length.to_bytes(4, "big"))
    for one in parts:
        for number in (one.offset - start, one.length, one.skip):
            digest.update(number.to_bytes(4, "big"))
        digest.update(one.chunk.id)
    return LeafKey(parts[0].chunk.number, digest.digest())


class KnownIds:
    """The hashes of one volume. Under its lock, with all changes flushed to the rows."""

    def __init__(self, db: RowWriter) -> None:
        self._db = db

    def begin(self) -> None:
        """IDs are being made from now on: note what changes."""
        for statement in _TABLES:
            self._db.execute(statement)
        self._db.execute("INSERT OR IGNORE INTO node_id VALUES (0, x'')")

    def end(self) -> None:
        """No IDs are being made."""
        self._db.execute("DELETE FROM node_id WHERE ino = 0")

    def settle(self, most: int) -> bool:
        """Forget the hashes of what has changed, and of all folders above: for *most* of the changes. When it
        returns True, these were all, and the hashes that are left are right."""
        query = "SELECT ino FROM changed_id LIMIT ?"
        pending = [ino for (ino,) in self._db.execute(query, (most,)).fetchall()]
        is_all = len(pending) < most
        for table in ("node_id", "changed_id"):
            rows = [(ino,) for ino in pending]
            self._db.executemany(f"DELETE FROM {table} WHERE ino = ?", rows)
        while pending:
            query = "SELECT DISTINCT parent FROM place WHERE ino = ?"
            for (parent,) in self._db.execute(query, (pending.pop(),)).fetchall():
                if self._db.execute("DELETE FROM node_id WHERE ino = ?", (parent,)).rowcount:
                    pending.append(parent)
        return is_all

    def find(self, ino: int) -> bytes | None:
        """The hash of a file or folder, if it is known."""
        row = self._db.execute("SELECT hash FROM node_id WHERE ino = ?", (ino,)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, hashes: Iterable[tuple[int, bytes]]) -> None:
        """Inodes and their hashes; of a folder after all that is in it."""
        self._db.executemany("INSERT OR REPLACE INTO node_id VALUES (?, ?)", hashes)

    def list(self, folder: int, after: int, limit: int) -> list[ListedNode]:
        """The first *limit* names in a folder with numbers above *after*."""
        rows = self._db.execute(
            "SELECT p.number, p.name, p.ino, n.mode, n.rdev, n.target, i.hash "
            "FROM place p JOIN node n ON n.ino = p.ino LEFT JOIN node_id i ON i.ino = p.ino "
            "WHERE p.parent = ? AND p.number > ? ORDER BY p.number LIMIT ?",
            (folder, after, limit),
        )
        return [ListedNode(*row) for row in rows]

    def leaf(self, key: LeafKey | None) -> bytes | None:
        """The hash of a leaf, if it is known; one without a key is not."""
        if key is None:
            return None
        row = self._db.execute("SELECT hash FROM leaf WHERE chunk = ? AND parts = ?", key).fetchone()
        return None if row is None else bytes(row[0])

    def put_leaf(self, key: LeafKey, digest: bytes) -> None:
        """Keep the hash of a leaf, while its first chunk is known."""
        self._db.execute(
            "INSERT OR REPLACE INTO leaf SELECT number, ?, ? FROM chunk WHERE number = ?",
            (key.parts, digest, key.chunk),
        )
