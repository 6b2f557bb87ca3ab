"""Is the content that the view shows of a file the one of a register value?"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.registers.tree import Content, Run, encode_runs
from hybrisfs.state.contents import ContentTable
from hybrisfs.state.file_chunks import pages_of_file, parts_of_file
from sync import DecodeError

__all__ = ["ContentCheck"]


class ContentCheck:
    """Compares rows of files in *db* with values of content registers."""

    def __init__(self, db: sqlite3.Connection, namer: ChunkNamer) -> None:
        self._db = db
        self._namer = namer

    def problem(self, ino: int, size: int, value: bytes | None) -> str | None:
        """How the file *ino* of *size* bytes differs from *value*, in words."""
        signed = _decoded(value)
        if signed.size != size:
            return f"it has {size} bytes, {signed.size} were signed"
        unlisted = ContentTable(self._db).value_unlisted(ino)
        if unlisted is not None:
            if unlisted != value or signed.depth == 0:
                return "its list of chunks, which has yet to be read, is not the one signed"
            return None if self._has_pages(ino, signed) else "a chunk of its list of chunks is not on record"
        same = (
            self._is_listed(ino, size, signed)
            if signed.depth
            else list(signed.runs) == list(self._runs(ino, size))
        )
        return None if same else "its content is not the one signed"

    def _has_pages(self, ino: int, signed: Content) -> bool:
        pages = pages_of_file(self._db, ino)
        return all(run.chunk is None or run.chunk in pages for run in signed.runs)

    def _is_listed(self, ino: int, size: int, signed: Content) -> bool:
        """Whether the runs, cut into pages like the signed ones, are what the chunks of these hold."""
        runs = self._runs(ino, size)
        for page in signed.runs:
            batch: list[Run] = []
            left = page.length
            while left > 0 and (run := next(runs, None)) is not None:
                batch.append(run)
                left -= run.length
            if left != 0 or self._namer.chunk_id(encode_runs(batch)) != page.chunk:
                return False
        return next(runs, None) is None

    def _runs(self, ino: int, size: int) -> Iterator[Run]:
        at = 0
        for offset, length, identity in parts_of_file(self._db, ino):
            if offset > at:
                yield Run(offset - at, None)
            yield Run(length, identity)
            at = offset + length
        if at < size:
            yield Run(size - at, None)


def _decoded(value: bytes | None) -> Content:
    """What no correct device can have written counts as an empty file (`tree.received`)."""
    try:
        return Content(0, 0, ()) if value is None else Content.decode(value)
    except DecodeError:
        return Content(0, 0, ())
