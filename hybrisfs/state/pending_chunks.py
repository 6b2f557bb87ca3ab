"""Chunks that are on no cloud, as far as this device knows: those that it brings there, and those of others.

This device brings PENDING ones. Of UNPLACED and AWAITED ones their maker has yet to say where they are.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, TypeAlias

from hybrisfs.state.chunk_states import ELSEWHERE, Reader

__all__ = ["PendingRow", "awaited", "first_pending", "pending_after", "pending_bytes", "pending_row"]

PendingRow: TypeAlias = tuple[int, bytes, int, int, int]
"""Number, id, length, segment and position of a chunk that is PENDING."""
_PENDING: Final = "SELECT number, id, length, segment, position FROM chunk WHERE pack IS NULL"


# -- those that this device brings there -----------------------------------------------------------------


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


# -- those of others -------------------------------------------------------------------------------------


def awaited(db: Reader) -> dict[bytes, int]:
    """The chunks that are AWAITED or LOST, by id: their numbers."""
    return dict(db.execute(f"SELECT id, number FROM chunk WHERE pack = {ELSEWHERE} AND segment IS NULL"))
