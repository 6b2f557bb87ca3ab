"""Where log segments end: a segment's name tells the beginning of the hash of its last update.

So which segments are known to be on the clouds can be forgotten once a checkpoint covers them.
"""

from __future__ import annotations

from typing import NamedTuple

from hybrisfs.state.database import Database
from sync import HASH_SIZE, DecodeError, VersionVector, parse_segment_name

__all__ = [
    "SegmentEnd",
    "end_of_segment",
    "first_recorded_clock",
    "forget_covered_segments",
    "is_covered",
    "recorded_segments",
]


class SegmentEnd(NamedTuple):
    """The last update in a segment; *bare*: only a checkpoint tells what it and those before it wrote."""

    branch: bytes
    clock: int
    bare: bool


def end_of_segment(database: Database, name: str) -> SegmentEnd | None:
    """The update with which a segment ends, None when it has not been accepted here, or the name is none.
    Called with the volume's lock held."""
    try:
        device, segment = parse_segment_name(name)
    except DecodeError:
        return None
    rest = HASH_SIZE - len(segment.prefix)
    row = database.execute(
        "SELECT branch, clock, bytes IS NULL FROM log WHERE hash BETWEEN ? AND ? AND device = ?",
        (segment.prefix + bytes(rest), segment.prefix + b"\xff" * rest, device),
    ).fetchone()
    return SegmentEnd(row[0], row[1], bool(row[2])) if row is not None else None


def is_covered(database: Database, name: str, covered: VersionVector) -> bool:
    """Whether *covered* covers all updates in a segment, which is so when it covers the last one."""
    end = end_of_segment(database, name)
    return end is not None and covered[end.branch] >= end.clock


def recorded_segments(database: Database) -> set[str]:
    """The names of the segments that this device knows to be on the clouds, own ones and relayed ones."""
    own = database.execute("SELECT name FROM log_segment").fetchall()
    relayed = database.execute("SELECT name FROM relayed_segment").fetchall()
    return {name for (name,) in (*own, *relayed)}


def first_recorded_clock(database: Database) -> int | None:
    """The clock of the first update in an own segment that is on the clouds; None while there is none."""
    first: int | None = database.execute("SELECT min(first) FROM log_segment").fetchone()[0]
    return first


def forget_covered_segments(database: Database, covered: VersionVector) -> None:
    """Know no longer of segments that *covered* covers, but for the newest own one."""
    own = database.execute("SELECT name FROM log_segment ORDER BY first DESC LIMIT -1 OFFSET 1").fetchall()
    relayed = database.execute("SELECT name FROM relayed_segment").fetchall()
    for table, names in (("log_segment", own), ("relayed_segment", relayed)):
        gone = [(name,) for (name,) in names if is_covered(database, name, covered)]
        database.executemany(f"DELETE FROM {table} WHERE name = ?", gone)
