"""What `hybrisfs fsck` asks of chunks.

The constants are queries: a caller that reads a database which may be damaged knows what an error of SQLite
means there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hybrisfs.state.chunk_states import ELSEWHERE
from hybrisfs.state.database import Reader

__all__ = [
    "CHUNKS_NOWHERE",
    "PAGES_WITHOUT_CHUNK",
    "PARTS_WITHOUT_CHUNK",
    "CachedRow",
    "cached_count",
    "cached_rows",
    "is_cached_in",
    "is_spare_in",
]

CachedRow = tuple[int, bytes, int, int, int, int | None]
"""Number, id, length, segment, position and pack of a chunk that is here."""

# -- rows that belong to no other -----------------------------------------------------------------------

PARTS_WITHOUT_CHUNK: Final = (
    # How long a chunk is that another device has made is not known before that says where it is.
    "SELECT f.ino, f.offset FROM file_chunk f LEFT JOIN chunk c ON c.number = f.chunk "
    f"WHERE c.number IS NULL OR f.length < 1 OR (f.length > c.length AND c.pack IS NOT {ELSEWHERE})"
)
"""Node and offset of parts of files that no chunk holds."""
PAGES_WITHOUT_CHUNK: Final = (
    "SELECT p.ino, p.chunk FROM content_page p LEFT JOIN chunk c ON c.number = p.chunk WHERE c.number IS NULL"
)
"""Nodes and chunks of pages that no chunk holds."""
CHUNKS_NOWHERE: Final = (
    "SELECT c.number, c.id FROM chunk c LEFT JOIN pack p ON p.number = c.pack "
    f"WHERE p.number IS NULL AND (c.pack <> {ELSEWHERE} OR c.pack IS NULL AND c.segment IS NULL)"
)
"""Numbers and ids of chunks that are in no state."""

# -- are the bytes, and the places, what is recorded? ---------------------------------------------------


def cached_count(db: Reader) -> int:
    """How many chunks are here."""
    (count,) = db.execute("SELECT count(*) FROM chunk WHERE segment IS NOT NULL").fetchone()
    return int(count)


def cached_rows(db: Reader) -> Iterator[CachedRow]:
    """The chunks that are here, in the order of their segments."""
    return db.execute(
        "SELECT number, id, length, segment, position, pack FROM chunk "
        "WHERE segment IS NOT NULL ORDER BY segment"
    )


def is_cached_in(db: Reader, number: int, segment: int) -> bool:
    """Whether a chunk lies in that segment."""
    row = db.execute("SELECT 1 FROM chunk WHERE number = ? AND segment = ?", (number, segment)).fetchone()
    return row is not None


def is_spare_in(db: Reader, pack: int, identity: bytes) -> bool:
    """Whether the pack is one more that has the chunk with this id, or had it before the clouds lost it."""
    row = db.execute(
        "SELECT 1 FROM spare WHERE pack = ? AND chunk = (SELECT number FROM chunk WHERE id = ?)",
        (pack, identity),
    ).fetchone()
    return row is not None
