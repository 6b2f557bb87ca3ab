"""What this device has put of logs on the clouds: its own segments, those that it relayed for others, and its
head.

Own segments hold the updates of the own chain, one after the other without a gap. A relayed one is known for
as long as the head of its author does not lead to it. Heads replace each other: a cloud that has acknowledged
one has to have that or a later one. What it acknowledged just before a crash may not be known here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from hybrisfs.state.database import Reader
from hybrisfs.state.stored_log import end_of_segment, is_covered
from sync import VersionVector, parse_segment_name
from sync.head import LogOnClouds

__all__ = ["OwnSegment", "SegmentTable"]

_COLUMNS: Final = "first, last, name, placement"


class OwnSegment(NamedTuple):
    """An own log segment: the clocks of its first and last update, and the clouds that have a copy, one byte
    each."""

    first: int
    last: int
    name: str
    placement: bytes


class SegmentTable:
    """What there is of this device's log, under the volume's lock; or as a snapshot shows it, without."""

    def __init__(self, db: Reader) -> None:
        self._db = db

    # -- own segments ------------------------------------------------------------------------------------

    def find(self, name: str) -> OwnSegment | None:
        """The own segment of this name; None when there is none, or a checkpoint has taken its place."""
        return self._one("WHERE name = ?", name)

    def newest(self, skipping: int = 0) -> OwnSegment | None:
        """The own segment that goes on furthest but for so many."""
        return self._one("ORDER BY first DESC LIMIT 1 OFFSET ?", skipping)

    def newest_name(self, through: int) -> str | None:
        """The name of the newest own segment that ends with the update at this clock or below."""
        newest = self._one("WHERE last <= ? ORDER BY first DESC LIMIT 1", through)
        return None if newest is None else newest.name

    def before(self, segment: OwnSegment) -> OwnSegment | None:
        """The own segment that this one follows."""
        return self._one("WHERE first < ? ORDER BY first DESC LIMIT 1", segment.first)

    def on_clouds(self) -> LogOnClouds | None:
        """The own log on the clouds, as far as it is known here."""
        row = self._db.execute(
            "SELECT name, last, (SELECT count(*) FROM log_segment) FROM log_segment "
            "ORDER BY first DESC LIMIT 1"
        ).fetchone()
        return LogOnClouds(row[2], parse_segment_name(row[0])[1], row[1]) if row else None

    def count(self) -> int:
        """How many own segments there are."""
        (count,) = self._db.execute("SELECT count(*) FROM log_segment").fetchone()
        return int(count)

    def first_clock(self) -> int | None:
        """The clock of the first update in an own segment; None while there is none."""
        first: int | None = self._db.execute("SELECT min(first) FROM log_segment").fetchone()[0]
        return first

    def after(self, clock: int = 0, limit: int = -1) -> list[OwnSegment]:
        """The own segments that begin above this clock, in order; up to *limit* unless that is negative."""
        return self._many("WHERE first > ? ORDER BY first LIMIT ?", clock, limit)

    def ending_after(self, clock: int) -> list[OwnSegment]:
        """The own segments that end above this clock, in order."""
        return self._many("WHERE last > ? ORDER BY last", clock)

    def on_cloud(self, cloud: int) -> list[OwnSegment]:
        """The own segments that this cloud has, in order."""
        return self._many("WHERE instr(placement, ?) ORDER BY first", bytes((cloud,)))

    def with_fewer_copies(self, copies: int) -> list[OwnSegment]:
        """The own segments that fewer clouds have, in order."""
        return self._many("WHERE length(placement) < ? ORDER BY first", copies)

    def put(self, segment: OwnSegment, size: int) -> None:
        """An own segment of so many bytes is on the clouds."""
        first, last, name, placement = segment
        self._db.execute(
            "INSERT INTO log_segment (first, last, name, size, placement) VALUES (?, ?, ?, ?, ?)",
            (first, last, name, size, placement),
        )

    def move(self, name: str, placement: bytes) -> None:
        """Other clouds have the copies of an own segment."""
        self._db.execute("UPDATE log_segment SET placement = ? WHERE name = ?", (placement, name))

    def _one(self, which: str, value: int | str) -> OwnSegment | None:
        row = self._db.execute(f"SELECT {_COLUMNS} FROM log_segment {which}", (value,)).fetchone()
        return None if row is None else OwnSegment(*row)

    def _many(self, which: str, *values: Any) -> list[OwnSegment]:
        return [
            OwnSegment(*row)
            for row in self._db.execute(f"SELECT {_COLUMNS} FROM log_segment {which}", values)
        ]

    # -- relayed segments --------------------------------------------------------------------------------

    def relayed(self, author: bytes) -> list[str]:
        """The names of the segments of another device that this one has put there."""
        rows = self._db.execute("SELECT name FROM relayed_segment WHERE device = ?", (author,))
        return [name for (name,) in rows]

    def put_relayed(self, name: str, author: bytes, size: int, placement: bytes) -> None:
        """The clouds of *placement* hold a segment of another device."""
        self._db.execute(
            "INSERT OR REPLACE INTO relayed_segment (name, device, size, placement) VALUES (?, ?, ?, ?)",
            (name, author, size, placement),
        )

    def forget_relayed(self, name: str) -> None:
        """Its author's head leads to it by now."""
        self._db.execute("DELETE FROM relayed_segment WHERE name = ?", (name,))

    # -- the own head ------------------------------------------------------------------------------------

    def head_holders(self) -> frozenset[int]:
        """The clouds that have acknowledged a head of this device."""
        row = self._db.execute("SELECT value FROM meta WHERE key = 'head'").fetchone()
        return frozenset(row[0]) if row else frozenset()

    def head_acknowledged(self, by: Collection[int], among: Collection[int]) -> None:
        """These clouds have acknowledged a head of this device, too. Of others than *among* forget it."""
        before = self.head_holders()
        now = before.union(by).intersection(among)
        if now != before:
            self._db.execute("INSERT OR REPLACE INTO meta VALUES ('head', ?)", (bytes(sorted(now)),))

    # -- both --------------------------------------------------------------------------------------------

    def end(self, name: str) -> tuple[bytes, int] | None:
        """(branch, clock) of the update with which a segment ends, None when it is not in the log here."""
        found = end_of_segment(self._db, name)
        return None if found is None else (found.branch, found.clock)

    def names(self) -> set[str]:
        """The names of all that are known."""
        rows = self._db.execute("SELECT name FROM log_segment UNION ALL SELECT name FROM relayed_segment")
        return {name for (name,) in rows}

    def forget_covered(self, covered: VersionVector) -> None:
        """Know no longer of those that *covered* covers, but for the newest own one."""
        newest = self.newest()
        gone = [
            (name,)
            for name in self.names()
            if (newest is None or name != newest.name) and is_covered(self._db, name, covered)
        ]
        for table in ("log_segment", "relayed_segment"):
            self._db.executemany(f"DELETE FROM {table} WHERE name = ?", gone)
