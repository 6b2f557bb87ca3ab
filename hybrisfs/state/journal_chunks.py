"""Which chunks lie in the segments of the journal: those that keep their segment there, and those that this
device brings to the clouds."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final, TypeAlias

from hybrisfs.state.bulk import select_many
from hybrisfs.state.chunk_states import ONLY_HERE
from hybrisfs.state.database import Reader, RowWriter
from hybrisfs.state.journal import Journal

__all__ = [
    "PendingRow",
    "chunk_ranges",
    "dirty_among",
    "dirty_ranges",
    "dirty_segments",
    "first_pending",
    "is_segment_named",
    "pending_after",
    "pending_bytes",
    "pending_row",
    "remove_unnamed_segments",
    "shown_in_segment",
    "staged_bytes",
    "staged_ranges",
]

PendingRow: TypeAlias = tuple[int, bytes, int, int, int]
"""Number, id, length, segment and position of a chunk that is PENDING."""
_PENDING: Final = "SELECT number, id, length, segment, position FROM chunk WHERE pack IS NULL"


def chunk_ranges(db: Reader, segment: int) -> list[tuple[int, int]]:
    """Where in a segment chunks lie, as (start, end)."""
    rows = db.execute("SELECT position, length FROM chunk WHERE segment = ?", (segment,))
    return [(position, position + length) for position, length in rows]


def is_segment_named(db: Reader, segment: int) -> bool:
    """Whether any chunk lies in a segment."""
    return db.execute("SELECT 1 FROM chunk WHERE segment = ? LIMIT 1", (segment,)).fetchone() is not None


def remove_unnamed_segments(db: RowWriter, journal: Journal) -> None:
    """Delete the segments that the database does not name: their bytes were never committed."""
    rows = db.execute("SELECT DISTINCT segment FROM chunk WHERE segment IS NOT NULL")
    for number in journal.numbers() - {segment for (segment,) in rows}:
        if not journal.dirty_pieces[number]:
            journal.remove(number)


def shown_in_segment(db: Reader, segment: int) -> list[tuple[int, int, int, int, int]]:
    """Number, position and length of the chunks in a segment, each with the node of a file that shows it and
    a folder in which that stands: one row for each of these."""
    return db.execute(
        "SELECT c.number, c.position, c.length, f.ino, p.parent FROM chunk c "
        "CROSS JOIN file_chunk f ON f.chunk = c.number CROSS JOIN place p ON p.ino = f.ino "
        "WHERE c.segment = ?",
        (segment,),
    ).fetchall()


def dirty_ranges(db: Reader) -> Iterator[tuple[int, int, int]]:
    """Segment, position and length of all chunks that keep their segment dirty."""
    return db.execute(f"SELECT segment, position, length FROM chunk WHERE {ONLY_HERE}")


def dirty_segments(db: Reader) -> set[int]:
    """The segments that hold bytes, cut into chunks or not, which no cloud is known to have."""
    rows = db.execute(f"SELECT segment FROM chunk WHERE {ONLY_HERE} UNION SELECT segment FROM extent")
    return {segment for (segment,) in rows}


def dirty_among(db: RowWriter, numbers: Iterable[int]) -> list[int]:
    """Those of the chunks that keep their segment dirty."""
    query = f"SELECT number FROM chunk WHERE number IN (VALUES {{}}) AND {ONLY_HERE}"
    return [number for (number,) in select_many(db, query, [(one,) for one in numbers])]


def staged_ranges(db: Reader) -> Iterator[tuple[int, int, int]]:
    """Segment, position and length of all bytes in segments that have not been cut into chunks yet."""
    return db.execute("SELECT segment, position, length FROM extent WHERE segment > 0")


def staged_bytes(db: Reader) -> int:
    """How many bytes in segments have not been cut into chunks yet."""
    (size,) = db.execute("SELECT total(length) FROM extent WHERE segment > 0").fetchone()
    return int(size)


def pending_after(db: Reader, number: int, limit: int) -> list[PendingRow]:
    """The first *limit* PENDING chunks above a number, in the order in which they were made."""
    return db.execute(f"{_PENDING} AND number > ? ORDER BY number LIMIT ?", (number, limit)).fetchall()


def pending_row(db: Reader, number: int) -> PendingRow | None:
    """The chunk with this number if it is PENDING."""
    row: PendingRow | None = db.execute(f"{_PENDING} AND number = ?", (number,)).fetchone()
    return row


def first_pending(db: Reader, but: Container[int]) -> int | None:
    """The lowest number of a PENDING chunk that is none of *but*."""
    rows = db.execute("SELECT number FROM chunk WHERE pack IS NULL ORDER BY number")
    return next((number for (number,) in rows if number not in but), None)


def pending_bytes(db: Reader) -> int:
    """The sum of the lengths of PENDING chunks."""
    (size,) = db.execute("SELECT total(length) FROM chunk WHERE pack IS NULL").fetchone()
    return int(size)
