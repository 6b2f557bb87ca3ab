"""What some nodes and all below them hold, measured in a snapshot of the database: that needs no lock."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from hybrisfs.state.chunk_states import ELSEWHERE, ON_CLOUDS, ONLY_HERE

__all__ = ["Measure", "Subtree"]

_IS_FILE = "mode & 61440 = 32768"  # S_IFMT, S_IFREG
_DESCEND = """
INSERT INTO {name} WITH RECURSIVE below(ino) AS (
    SELECT ino FROM {name}_root UNION SELECT p.ino FROM below b CROSS JOIN place p ON p.parent = b.ino
) SELECT ino FROM below
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """Regular files, the bytes of their content (holes are none, equal chunks count once), and how many of
    these are not on this device."""

    files: int
    bytes: int
    missing: int


class Subtree:
    """The nodes at and below *roots*, as a table *name* of a connection's own.

    *snapshot* is what `Database.snapshot` yields.
    """

    def __init__(self, snapshot: sqlite3.Connection, roots: Iterable[int], name: str = "below") -> None:
        self._db = snapshot
        self._table = f"temp.{name}"
        for table in (self._table, f"{self._table}_root"):
            snapshot.execute(f"CREATE TABLE {table} (ino INTEGER PRIMARY KEY)")
        snapshot.executemany(
            f"INSERT OR IGNORE INTO {self._table}_root VALUES (?)", [(ino,) for ino in roots]
        )
        snapshot.execute(_DESCEND.format(name=self._table))
        self._chunks = f"(SELECT f.chunk FROM {self._table} b CROSS JOIN file_chunk f ON f.ino = b.ino)"

    def measure(self) -> Measure:
        """How much there is. Files whose list of chunks is elsewhere count as missing, as do their lists."""
        (files,) = self._one(
            f"SELECT count(*) FROM {self._table} b JOIN node n ON n.ino = b.ino AND {_IS_FILE}"
        )
        size, missing = self._one(
            "SELECT total(length), total(CASE WHEN segment IS NULL THEN length ELSE 0 END) "
            f"FROM chunk WHERE number IN {self._chunks}"
        )
        (staged,) = self._one(
            f"SELECT total(e.length) FROM {self._table} b JOIN extent e ON e.ino = b.ino WHERE e.segment > 0"
        )
        (unlisted,) = self._one(
            f"SELECT total(n.size) FROM unlisted u JOIN {self._table} b ON b.ino = u.ino "
            "JOIN node n ON n.ino = u.ino"
        )
        return Measure(int(files), int(size + staged + unlisted), int(missing + unlisted))

    def staged(self) -> int:
        """Bytes on this device that no cloud is known to have."""
        (staged,) = self._one(
            f"SELECT total(e.length) FROM {self._table} b JOIN extent e ON e.ino = b.ino WHERE e.segment > 0"
        )
        (waiting,) = self._one(
            f"SELECT total(length) FROM chunk WHERE {ONLY_HERE} AND number IN {self._chunks}"
        )
        return int(staged + waiting)

    def missing(self) -> array[int]:
        """Numbers of the chunks that are not here, those last whose place on the clouds is not known yet."""
        return self._numbers(
            f"SELECT number FROM chunk WHERE segment IS NULL AND number IN {self._chunks} "
            f"ORDER BY pack = {ELSEWHERE}, number"
        )

    def unlisted(self) -> list[int]:
        """The files whose list of chunks is elsewhere."""
        rows = self._db.execute(f"SELECT u.ino FROM unlisted u JOIN {self._table} b ON b.ino = u.ino")
        return [ino for (ino,) in rows]

    def evictable(self, kept: Subtree) -> array[int]:
        """Numbers of the chunks that are here and on the clouds, but for those that files in *kept* show."""
        return self._numbers(
            f"SELECT number FROM chunk WHERE segment IS NOT NULL AND {ON_CLOUDS} "
            f"AND number IN {self._chunks} AND number NOT IN {kept._chunks}"
        )

    def shared_with(self, kept: Subtree) -> int:
        """Bytes that are here and on the clouds, and that files in *kept* show as well."""
        (size,) = self._one(
            f"SELECT total(length) FROM chunk WHERE segment IS NOT NULL AND {ON_CLOUDS} "
            f"AND number IN {self._chunks} AND number IN {kept._chunks}"
        )
        return int(size)

    def _one(self, query: str) -> tuple[float, ...]:
        row: tuple[float, ...] = self._db.execute(query).fetchone()
        return row

    def _numbers(self, query: str) -> array[int]:
        return array("q", (number for (number,) in self._db.execute(query)))
