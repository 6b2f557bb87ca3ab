"""What is wrong with the stored values of registers: what fsck compares with the log, in a snapshot."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from hybrisfs.kinds import Kind

__all__ = [
    "StoredCount",
    "count_values",
    "newest_value",
    "rows_of_key",
    "values_of_no_update",
    "values_with_signers",
]


class StoredCount(NamedTuple):
    """How many values registers have, and how many of them are of bare updates."""

    values: int
    bare: int


def rows_of_key(db: sqlite3.Connection, key: bytes) -> list[tuple[int, int, bytes | None]]:
    """The values of a register: clock, number of the branch, and value."""
    return db.execute("SELECT clock, writer, value FROM register WHERE key = ?", (key,)).fetchall()


def count_values(db: sqlite3.Connection) -> StoredCount:
    """Count the values of all registers."""
    values, bare = db.execute(
        "SELECT count(*), total(EXISTS (SELECT 1 FROM log l WHERE l.branch = w.branch "
        "AND l.clock = r.clock AND l.bytes IS NULL)) "
        "FROM register r LEFT JOIN writer w ON w.number = r.writer"
    ).fetchone()
    return StoredCount(values, int(bare))


def values_with_signers(db: sqlite3.Connection, kind: Kind) -> Iterator[tuple[bytes, bytes | None, bytes]]:
    """The values of registers of a kind that are of updates which are not bare: key, value, and the device
    that signed the update."""
    return db.execute(
        "SELECT r.key, r.value, l.device FROM register r JOIN writer w ON w.number = r.writer "
        "JOIN log l ON l.branch = w.branch AND l.clock = r.clock AND l.bytes IS NOT NULL "
        f"WHERE {kind.sql_rows('r.key')}"
    )


def values_of_no_update(db: sqlite3.Connection, most: int) -> Iterator[tuple[bytes, int]]:
    """Key and clock of up to so many values of updates that are not in the log."""
    return db.execute(
        "SELECT r.key, r.clock FROM register r LEFT JOIN writer w ON w.number = r.writer "
        "WHERE NOT EXISTS (SELECT 1 FROM log l WHERE l.branch = w.branch AND l.clock = r.clock) LIMIT ?",
        (most,),
    )


def newest_value(db: sqlite3.Connection, key: bytes) -> bytes | None:
    """The value of a register with the highest stamp; None also when the register has none."""
    row = db.execute(
        "SELECT r.value FROM register r JOIN writer w ON w.number = r.writer WHERE r.key = ? "
        "ORDER BY r.clock DESC, w.branch DESC LIMIT 1",
        (key,),
    ).fetchone()
    return None if row is None else row[0]
