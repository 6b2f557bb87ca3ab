"""The chunks of files: the tables `file_chunk`, `content_page` and `unlisted`.

A file shows chunks by its *parts*, which never overlap. The list of a long file's chunks stands in chunks
itself, its *pages*. Until these have been read the file has no parts: it is *unlisted*.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hybrisfs.state.bulk import insert_many
from hybrisfs.state.chunk_states import CHUNK_COLUMNS, ChunkRef
from hybrisfs.state.database import Reader

__all__ = ["BaseRow", "ContentTable", "Part"]

Part: TypeAlias = tuple[int, int, int, int]
"""The inode of a file, the offset and length of a part, and the number of the chunk that it shows."""
_INSERT: Final = "INSERT INTO file_chunk (ino, offset, length, chunk) VALUES {}"


@dataclass(frozen=True, slots=True)
class BaseRow:
    """A settled part of a file: its first *length* bytes of *chunk* stand at *offset*."""

    offset: int
    length: int
    chunk: ChunkRef


class ContentTable:
    """The contents of one volume's files, under its lock; or as a snapshot shows them, without it."""

    def __init__(self, db: Reader) -> None:
        self._db = db

    def clear(self, ino: int) -> None:
        """Remove all parts and pages of a file."""
        self._db.execute("DELETE FROM file_chunk WHERE ino = ?", (ino,))
        self._db.execute("DELETE FROM content_page WHERE ino = ?", (ino,))

    # -- parts -----------------------------------------------------------------------------------

    def parts_between(self, ino: int, start: int, end: int, longest: int) -> list[BaseRow]:
        """The parts of a file that touch start..end, in order. None is of more than *longest* bytes."""
        rows = self._db.execute(
            f"SELECT f.offset, f.length, {CHUNK_COLUMNS} "
            "FROM file_chunk f JOIN chunk c ON c.number = f.chunk "
            "WHERE f.ino = ? AND f.offset > ? AND f.offset < ? ORDER BY f.offset",
            (ino, start - longest, end),
        ).fetchall()
        return [BaseRow(row[0], row[1], ChunkRef(*row[2:])) for row in rows if row[0] + row[1] > start]

    def add_parts(self, parts: Sequence[Part]) -> None:
        """Let files show these parts, too."""
        insert_many(self._db, _INSERT, parts)

    def set_parts(self, ino: int, parts: Sequence[Part]) -> None:
        """Let a file show these parts and no others."""
        self._db.execute("DELETE FROM file_chunk WHERE ino = ?", (ino,))
        self.add_parts(parts)

    def replace_parts(self, ino: int, regions: Iterable[tuple[int, int]], parts: Iterable[Part]) -> None:
        """Let a file show new parts instead of those that begin in *regions*, which are given as (start,
        end)."""
        self._db.executemany(
            "DELETE FROM file_chunk WHERE ino = ? AND offset >= ? AND offset < ?",
            [(ino, start, end) for start, end in regions],
        )
        self._db.executemany(_INSERT.format("(?, ?, ?, ?)"), parts)

    def cut_off(self, ino: int, size: int) -> int:
        """Let a file show no part from *size* on; by how many bytes it shows less."""
        cut = 0
        last = self._db.execute(
            "SELECT offset, length FROM file_chunk WHERE ino = ? AND offset < ? ORDER BY offset DESC LIMIT 1",
            (ino, size),
        ).fetchone()
        if last is not None and sum(last) > size:
            offset, length = last
            cut = offset + length - size
            query = "UPDATE file_chunk SET length = ? WHERE ino = ? AND offset = ?"
            self._db.execute(query, (size - offset, ino, offset))
        (gone,) = self._db.execute(
            "SELECT total(length) FROM file_chunk WHERE ino = ? AND offset >= ?", (ino, size)
        ).fetchone()
        if gone:
            self._db.execute("DELETE FROM file_chunk WHERE ino = ? AND offset >= ?", (ino, size))
        return cut + int(gone)

    # -- pages -----------------------------------------------------------------------------------

    def add_pages(self, pages: Iterable[tuple[int, int]]) -> None:
        """The list of a file's chunks stands in this chunk, too: the inode of each file, and the chunk."""
        self._db.executemany("INSERT OR IGNORE INTO content_page (ino, chunk) VALUES (?, ?)", pages)

    def drop_pages(self, ino: int) -> None:
        """The list of a file's chunks stands in no chunks any more."""
        self._db.execute("DELETE FROM content_page WHERE ino = ?", (ino,))

    # -- files that are unlisted -----------------------------------------------------------------

    def unlisted(self) -> set[int]:
        """All files that are unlisted."""
        return {ino for (ino,) in self._db.execute("SELECT ino FROM unlisted")}

    def value_unlisted(self, ino: int) -> bytes | None:
        """The content register of a file that is unlisted; None of others."""
        row = self._db.execute("SELECT value FROM unlisted WHERE ino = ?", (ino,)).fetchone()
        return None if row is None else bytes(row[0])

    def leave_unlisted(self, ino: int, value: bytes) -> None:
        """A file, which is not unlisted, has this content register; its pages have yet to be read."""
        self._db.execute("INSERT INTO unlisted VALUES (?, ?)", (ino, value))

    def end_unlisted(self, ino: int) -> None:
        """A file is not unlisted any more."""
        self._db.execute("DELETE FROM unlisted WHERE ino = ?", (ino,))
