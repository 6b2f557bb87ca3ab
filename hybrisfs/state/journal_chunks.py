"""Which chunks lie in the segments of the journal, and which of them keep their segment there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hybrisfs.state.chunk_states import ONLY_HERE, Reader
from hybrisfs.store.bulk import select_many
from hybrisfs.store.database import Database

__all__ = [
    "chunk_ranges",
    "dirty_among",
    "dirty_ranges",
    "dirty_segments",
    "is_segment_named",
    "named_segments",
]


def chunk_ranges(db: Reader, segment: int) -> list[tuple[int, int]]:
    """Where in a segment chunks lie, as (start, end)."""
    rows = db.execute("SELECT position, length FROM chunk WHERE segment = ?", (segment,))
    return [(position, position + length) for position, length in rows]


def is_segment_named(db: Reader, segment: int) -> bool:
    """Whether any chunk lies in a segment."""
    return db.execute("SELECT 1 FROM chunk WHERE segment = ? LIMIT 1", (segment,)).fetchone() is not None


def named_segments(db: Reader) -> set[int]:
    """The segments in which chunks lie."""
    rows = db.execute("SELECT DISTINCT segment FROM chunk WHERE segment IS NOT NULL")
    return {segment for (segment,) in rows}


def dirty_ranges(db: Reader) -> Iterator[tuple[int, int, int]]:
    """Segment, position and length of all chunks that pin their segment."""
    return db.execute(f"SELECT segment, position, length FROM chunk WHERE {ONLY_HERE}")


def dirty_segments(db: Reader) -> set[int]:
    """The segments that hold bytes, cut into chunks or not, which no cloud is known to have."""
    rows = db.execute(f"SELECT segment FROM chunk WHERE {ONLY_HERE} UNION SELECT segment FROM extent")
    return {segment for (segment,) in rows}


def dirty_among(db: Database, numbers: Iterable[int]) -> list[int]:
    """Those of the chunks that pin their segment."""
    query = f"SELECT number FROM chunk WHERE number IN (VALUES {{}}) AND {ONLY_HERE}"
    return [number for (number,) in select_many(db, query, [(one,) for one in numbers])]
