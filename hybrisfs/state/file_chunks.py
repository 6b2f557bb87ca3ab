"""Which chunks files show, and where these are.

A file shows chunks by its parts (`file_chunk`); the list of a long file's chunks stands in chunks itself, its
pages (`content_page`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from hybrisfs.state.chunk_states import CHUNK_COLUMNS, ELSEWHERE, ChunkRef, Reader

__all__ = ["BaseRow", "Whereabouts", "chunks_after", "packs_of_file", "parts_between", "whereabouts"]

_CHUNKS: Final = "chunk c WHERE c.number IN (SELECT chunk FROM file_chunk WHERE ino = :ino)"
_PAGES: Final = "chunk c WHERE c.number IN (SELECT chunk FROM content_page WHERE ino = :ino)"


@dataclass(frozen=True, slots=True)
class BaseRow:
    """A settled part of a file: its first *length* bytes of *chunk* stand at *offset*."""

    offset: int
    length: int
    chunk: ChunkRef


def parts_between(db: Reader, ino: int, start: int, end: int, longest: int) -> list[BaseRow]:
    """The parts of a file that touch start..end, in order. None is of more than *longest* bytes."""
    rows = db.execute(
        f"SELECT f.offset, f.length, {CHUNK_COLUMNS} "
        "FROM file_chunk f JOIN chunk c ON c.number = f.chunk "
        "WHERE f.ino = ? AND f.offset > ? AND f.offset < ? ORDER BY f.offset",
        (ino, start - longest, end),
    ).fetchall()
    return [BaseRow(row[0], row[1], ChunkRef(*row[2:])) for row in rows if row[0] + row[1] > start]


def chunks_after(db: Reader, number: int, limit: int) -> list[ChunkRef]:
    """Up to *limit* chunks that stand after this one in a file, of several files one."""
    rows = db.execute(
        f"SELECT {CHUNK_COLUMNS} FROM file_chunk f JOIN chunk c ON c.number = f.chunk, "
        "(SELECT ino, offset FROM file_chunk WHERE chunk = ? LIMIT 1) this "
        "WHERE f.ino = this.ino AND f.offset > this.offset ORDER BY f.offset LIMIT ?",
        (number, limit),
    ).fetchall()
    return [ChunkRef(*row) for row in rows]


class Whereabouts(NamedTuple):
    """Of the chunks of a file: whether any is not here (pages do not count), whether others have yet to say
    where one is, and whether this device has yet to bring one to the clouds."""

    absent: bool
    elsewhere: bool
    pending: bool


def whereabouts(db: Reader, ino: int) -> Whereabouts:
    """Where the chunks of a file are, and its pages."""
    absent, elsewhere, pending = db.execute(
        f"SELECT total(c.segment IS NULL), total(c.pack = {ELSEWHERE}), total(c.pack IS NULL) FROM {_CHUNKS}",
        {"ino": ino},
    ).fetchone()
    pages_elsewhere, pages_pending = db.execute(
        f"SELECT total(c.pack = {ELSEWHERE}), total(c.pack IS NULL) FROM {_PAGES}", {"ino": ino}
    ).fetchone()
    return Whereabouts(bool(absent), bool(elsewhere or pages_elsewhere), bool(pending or pages_pending))


def packs_of_file(db: Reader, ino: int) -> list[bytes]:
    """The ids of the packs from which the chunks of a file are read."""
    rows = db.execute(f"SELECT id FROM pack WHERE number IN (SELECT c.pack FROM {_CHUNKS})", {"ino": ino})
    return [identity for (identity,) in rows]
