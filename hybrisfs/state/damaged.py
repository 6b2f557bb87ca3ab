"""What can still be read of a damaged database, row by row.

A page that cannot be read costs the rows on it. Nothing that is read may be believed: a damaged page may hold
anything, of any type. What the redo log has on top of the last commit is shown as if it had been carried out:
views lie over the tables for that, as nothing is written to a damaged file.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from hybrisfs.environment import SYSTEM
from hybrisfs.errors import DamagedError
from hybrisfs.kinds import CONTENT
from hybrisfs.state.chunk_states import ELSEWHERE
from hybrisfs.state.redo import NONCE_SIZE, Range, Record, RedoLog

__all__ = ["DamagedFile", "DamagedRows", "UnreadablePartError"]

_FILES_ONLY_HERE: Final = (
    f"SELECT DISTINCT ino FROM pending WHERE substr(key, 1, 1) = {CONTENT.sql_prefix}",
    "SELECT DISTINCT ino FROM extent WHERE segment > 0",
    # That show a PENDING chunk.
    "SELECT DISTINCT f.ino FROM file_chunk f JOIN chunk c ON c.number = f.chunk WHERE c.pack IS NULL",
    # That show an UNPLACED or SET_ASIDE chunk. Of what another device made and no cloud is known to have,
    # only what is here as a whole: the rest comes from that device, or is lost with it.
    "SELECT DISTINCT f.ino FROM file_chunk f JOIN chunk c ON c.number = f.chunk "
    f"WHERE c.pack = {ELSEWHERE} "
    "AND NOT EXISTS (SELECT 1 FROM file_chunk o JOIN chunk d ON d.number = o.chunk "
    "WHERE o.ino = f.ino AND d.segment IS NULL)",
)


# Tables with the columns that tell which rows a record replaces.
_RECORDED: Final = {"node": "ino", "place": "number", "extent": "ino, start", "pending": "key"}


class UnreadablePartError(Exception):
    """A part of a file cannot be read."""


class DamagedFile:
    """A database that may be damaged, for reading; text comes as bytes. Close it in the end."""

    def __init__(self, path: Path) -> None:
        self._db: sqlite3.Connection | None = None
        if path.is_file():
            with contextlib.suppress(sqlite3.Error):
                self._db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
                self._db.text_factory = bytes

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    def readable(self, query: str, *parameters: object) -> Iterator[Any]:
        """The rows of a query up to the first one that cannot be read."""
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error, OverflowError):
                yield from self._db.execute(query, parameters)

    def all(self, query: str, *parameters: object) -> list[Any]:
        """All rows of a query. Raises UnreadablePartError unless all can be read."""
        if self._db is None:
            raise UnreadablePartError
        try:
            return self._db.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise UnreadablePartError from error


class DamagedRows(DamagedFile):
    """The rows of `volume.db`: those that cannot be read are left out, unless a method says otherwise."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.ranges: list[Range] = []
        """The bytes that the redo log has, in the order in which they were written to the journal."""
        with contextlib.suppress(sqlite3.Error, OSError, DamagedError):
            self._show_records(path)

    def _show_records(self, path: Path) -> None:
        nonces = list(self.readable("SELECT value FROM meta WHERE key = 'redo'"))
        nonce = nonces[0][0] if nonces else None
        if self._db is None or not isinstance(nonce, bytes) or len(nonce) != NONCE_SIZE:
            return
        with contextlib.closing(RedoLog(path.with_name(f"{path.name}-redo"), SYSTEM, 0)) as redo:
            for number, record in enumerate(redo.replay(nonce)):
                if not number:
                    self._lay_views(self._db)
                self._lay(self._db, record)

    @staticmethod
    def _lay_views(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA temp_store = MEMORY")
        for table, key in _RECORDED.items():
            db.execute(f"CREATE TEMP TABLE come_{table} AS SELECT * FROM main.{table} WHERE 0")
            db.execute(f"CREATE TEMP TABLE gone_{table} AS SELECT {key} FROM main.{table} WHERE 0")
            db.execute(
                f"CREATE TEMP VIEW {table} AS SELECT * FROM come_{table} UNION ALL "
                f"SELECT * FROM main.{table} WHERE ({key}) NOT IN (SELECT * FROM gone_{table})"
            )

    def _lay(self, db: sqlite3.Connection, record: Record) -> None:
        pending = [(key, ino, seq, None) for key, ino, seq in record.pending]
        _replace(db, "node", [row[:1] for row in record.nodes], record.nodes)
        _replace(db, "place", [row[:1] for row in record.places], record.places)
        come = record.extents.come
        _replace(db, "extent", [*record.extents.gone, *(row[:2] for row in come)], come)
        _replace(db, "pending", [row[:1] for row in pending], pending)
        self.ranges += record.ranges

    def members(self) -> list[tuple[Any, ...]]:
        """Device, public key, name and state of the members."""
        return list(self.readable("SELECT device, public, name, state FROM member"))

    def inviter(self) -> Any:
        """The id of the device that let this one in; None when it cannot be read."""
        rows = list(self.readable("SELECT value FROM meta WHERE key = 'inviter'"))
        return rows[0][0] if rows else None

    def files_only_here(self) -> set[Any]:
        """The numbers of the files with bytes that no cloud is known to have."""
        return {ino for query in _FILES_ONLY_HERE for (ino,) in self.readable(query)}

    def nodes(self, ino: int) -> list[tuple[Any, ...]]:
        """Mode, size and number of names of the node with this number, if there is one."""
        return list(self.readable("SELECT mode, size, nlink FROM node WHERE ino = ?", ino))

    def places(self, ino: int) -> list[tuple[Any, ...]]:
        """Folder and name of a place of the node with this number, if it has one."""
        return list(self.readable("SELECT parent, name FROM place WHERE ino = ? LIMIT 1", ino))

    def parts(self, ino: int) -> list[tuple[Any, ...]]:
        """Of each part of a file: its offset, its length, and from which byte of its chunk on; id, length,
        segment, position and pack of the chunk.

        Raises UnreadablePartError unless all can be read.
        """
        return self.all(
            "SELECT f.offset, f.length, f.skip, c.id, c.length, c.segment, c.position, c.pack "
            "FROM file_chunk f LEFT JOIN chunk c ON c.number = f.chunk WHERE f.ino = ? ORDER BY f.offset",
            ino,
        )

    def extents(self, ino: int) -> list[tuple[Any, ...]]:
        """Start, length, segment and position of the staged bytes of a file.

        Raises UnreadablePartError unless all can be read.
        """
        return self.all(
            "SELECT start, length, segment, position FROM extent WHERE ino = ? ORDER BY start", ino
        )


def _replace(
    db: sqlite3.Connection, table: str, gone: Iterable[tuple[Any, ...]], come: Iterable[tuple[Any, ...]]
) -> None:
    """Let rows with these keys go, and others come."""
    for key in gone:
        marks = ", ".join("?" * len(key))
        db.execute(f"DELETE FROM come_{table} WHERE ({_RECORDED[table]}) = ({marks})", key)
        db.execute(f"INSERT INTO gone_{table} VALUES ({marks})", key)
    for row in come:
        db.execute(f"INSERT INTO come_{table} VALUES ({', '.join('?' * len(row))})", row)
