"""Where log segments end: a segment's name tells the beginning of the hash of its last update.

So which segments are known to be on the clouds can be forgotten once a checkpoint covers them.
"""

from __future__ import annotations

from typing import NamedTuple

from hybrisfs.state.database import Reader
from sync import HASH_SIZE, DecodeError, VersionVector, parse_segment_name

__all__ = ["SegmentEnd", "end_of_segment", "is_covered"]


class SegmentEnd(NamedTuple):
    """The last update in a segment; *bare*: only a checkpoint tells what it and those before it wrote."""

    branch: bytes
    clock: int
    bare: bool


def end_of_segment(database: Reader, name: str) -> SegmentEnd | None:
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


def is_covered(database: Reader, name: str, covered: VersionVector) -> bool:
    """Whether *covered* covers all updates in a segment, which is so when it covers the last one."""
    end = end_of_segment(database, name)
    return end is not None and covered[end.branch] >= end.clock
