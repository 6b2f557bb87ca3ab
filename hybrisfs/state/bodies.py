"""Dropping the bodies of accepted updates, which leaves their rows of the log bare.

A row is removed and put back without its body: SQLite would leave a row that has only become shorter where it
is, and its page hardly filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hybrisfs.state.database import RowWriter
from sync import VersionVector

__all__ = ["BodyStore", "Dropped"]

_KEPT: Final = "number, branch, clock, device, hash, chunk_high, vector, time, moment"


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many bodies have been dropped, and how many bytes they had."""

    updates: int
    bytes: int


class BodyStore:
    """The bodies in one volume's log, under the volume's lock."""

    def __init__(self, database: RowWriter) -> None:
        self._db = database
        self._counted: tuple[object, int] | None = None

    def drop(self, covered: VersionVector, own: bytes, from_clock: int, most: int) -> int:
        """Drop up to *most* bodies of updates that *covered* covers, but for those of device *own* from this
        clock on; how many there were."""
        for branch, clock in covered.items():
            rows = self._db.execute(
                f"SELECT {_KEPT}, length(bytes) FROM log INDEXED BY log_whole "
                "WHERE branch = ? AND clock <= ? AND bytes IS NOT NULL "
                "AND NOT (device = ? AND clock >= ?) ORDER BY clock LIMIT ?",
                (branch, clock, own, from_clock, most),
            ).fetchall()
            if rows:
                self._make_bare(rows)
                return len(rows)
        return 0

    def _make_bare(self, rows: list[tuple[object, ...]]) -> None:
        self._db.execute("SAVEPOINT bare")
        try:
            self._db.executemany("DELETE FROM log WHERE number = ?", [row[:1] for row in rows])
            self._db.executemany(
                f"INSERT INTO log ({_KEPT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [row[:-1] for row in rows]
            )
            for key, more in (("dropped_updates", len(rows)), ("dropped_bytes", sum(map(_size, rows)))):
                self._db.execute("UPDATE meta SET value = value + ? WHERE key = ?", (more, key))
        except BaseException:
            self._db.execute("ROLLBACK TO bare")
            raise
        finally:
            self._db.execute("RELEASE bare")

    def dropped(self) -> Dropped:
        """What has been dropped so far."""
        return Dropped(self._db.meta("dropped_updates"), self._db.meta("dropped_bytes"))

    def left(self) -> int:
        """How many bodies there are. They are counted again only when that may have changed."""
        (newest,) = self._db.execute("SELECT max(number) FROM log").fetchone()
        state = newest, self._db.meta("dropped_updates")
        if self._counted is None or self._counted[0] != state:
            query = "SELECT count(*) FROM log INDEXED BY log_whole WHERE bytes IS NOT NULL"
            self._counted = state, int(self._db.execute(query).fetchone()[0])
        return self._counted[1]


def _size(row: tuple[object, ...]) -> int:
    size = row[-1]
    assert isinstance(size, int)
    return size
