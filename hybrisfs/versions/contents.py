"""What content registers said of files: sizes, and the bytes of a version, wherever they are."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

from hybrisfs.errors import failure
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import Content, Run, content_of, decode_runs
from hybrisfs.state.database import Reader, RowWriter, Snapshot
from hybrisfs.state.file_chunks import is_at_hand, is_known
from hybrisfs.state.versions import (
    add_kept_chunks,
    begin_kept_chunks,
    forget_removals,
    forget_versions,
    kept_contents,
    unshipped_contents,
    unshipped_removed_contents,
)
from hybrisfs.tree.filesystem import FileSystem
from sync.codec import DecodeError

__all__ = [
    "VersionReader",
    "chunks_of_page",
    "forget_lost",
    "ChunkLists",
    "gather_kept",
    "is_readable",
    "named_chunks",
    "size_of",
]


def size_of(value: bytes | None) -> int:
    """The size of a file with this content."""
    return content_of(value).size


class VersionReader:
    """The bytes of one content. Its methods are called without the volume's lock, and may wait for clouds."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher, value: bytes | None) -> None:
        self._fs = fs
        self._fetcher = fetcher
        self._content = content_of(value)
        self._runs: Sequence[Run] | None = None if self._content.depth else self._content.runs
        self._starts: list[int] = []
        self.size = self._content.size

    def read(self, offset: int, size: int) -> bytes:
        """Up to *size* bytes from *offset*; short only at the end. Raises ChunkUnavailable, OSError (EIO)."""
        self.list_chunks()
        end = min(offset + size, self.size)
        parts: list[bytes] = []
        at = offset
        for start, run in self.runs(offset, end):
            upto = min(start + run.length, end)
            if run.chunk is None:
                parts.append(bytes(upto - at))
            else:
                data = self._chunk(run.chunk)[run.skip + at - start : run.skip + upto - start]
                if len(data) != upto - at:
                    raise failure(errno.EIO)
                parts.append(data)
            at = upto
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def list_chunks(self) -> None:
        """Read the list of chunks, unless that has been done. Raises what `read` does."""
        if self._runs is None:
            runs: list[Run] = []
            for page in self._content.runs:
                runs += self._page(page)
            self._runs = runs
        if not self._starts and self._runs:
            at = 0
            for run in self._runs:
                self._starts.append(at)
                at += run.length

    def runs(self, start: int, end: int) -> Iterator[tuple[int, Run]]:
        """The parts that touch start..end, each with its offset, of a content that has been listed."""
        if start >= end or self._runs is None:
            return
        for index in range(max(bisect_right(self._starts, start) - 1, 0), len(self._starts)):
            if self._starts[index] >= end:
                return
            yield self._starts[index], self._runs[index]

    def _page(self, page: Run) -> list[Run]:
        try:
            runs = decode_runs(self._chunk(page.chunk or b""))
        except DecodeError:
            raise failure(errno.EIO) from None
        if sum(run.length for run in runs) != page.length:
            raise failure(errno.EIO)
        return runs

    def _chunk(self, identity: bytes) -> bytes:
        with self._fs.state.transaction() as tx:
            ref = tx.chunks.find(identity)
            if ref is None:
                raise failure(errno.EIO)
            data = tx.chunks.read_whole(ref)
        return data if data is not None else self._fetcher.fetch([ref])[ref.number]


# -- which chunks versions need -------------------------------------------------------------------------
# They are gathered in a temporary table of a snapshot of the database, so that the queries which look through
# packs can ask for them. What counts is what is kept now, whatever the retention rule says by now: so a
# device never agrees that a pack is not needed and then finds that it is.


_BATCH: Final = 1000


class ChunkLists(Protocol):
    """What is used of `hybrisfs.gc.find.Pages`."""

    def read(self, identity: bytes) -> bytes:
        """The bytes of the list of chunks with this id. Raises ChunkUnavailable, OSError."""


def gather_kept(db: Snapshot, source: ChunkLists) -> None:
    """Make the table `kept_chunk (id)` in the snapshot *db*.

    Raises what *source* raises: then it is unknown what is needed.
    """
    begin_kept_chunks(db)
    pages: set[bytes] = set()
    rows = kept_contents(db)
    while batch := list(islice(rows, _BATCH)):
        named: set[bytes] = set()
        for (value,) in batch:
            chunks, lists = named_chunks(value)
            named |= chunks
            if lists:
                pages |= chunks
        add_kept_chunks(db, named)
    for page in pages:
        add_kept_chunks(db, chunks_of_page(source.read(page)))


def named_chunks(value: bytes) -> tuple[set[bytes], bool]:
    """The chunks that a content names, and whether they hold lists of chunks."""
    try:
        content = Content.decode(value)
    except DecodeError:
        return set(), False  # it shows an empty file
    return {run.chunk for run in content.runs if run.chunk is not None}, bool(content.depth)


def chunks_of_page(data: bytes) -> set[bytes]:
    """The ids of the chunks that a list of chunks names; none when it is no such list."""
    try:
        return {run.chunk for run in decode_runs(data) if run.chunk is not None}
    except DecodeError:
        return set()


# -- versions whose bytes are gone ----------------------------------------------------------------------
# While the clouds cannot be reached, what is overwritten again and again would fill the disk until nothing
# can be written any more. Then such chunks go (`ChunkStore.drop_unwanted`), and with them the versions that
# named them: what cannot be read is not called kept.


def forget_lost(db: RowWriter) -> None:
    """Forget versions that no cloud has and of which chunks are missing."""
    forget_versions(db, [number for number, value in unshipped_contents(db) if _is_lost(db, value)])
    forget_removals(db, [node for node, value in unshipped_removed_contents(db) if _is_lost(db, value)])


def is_readable(db: Snapshot, value: bytes | None, list_here: Callable[[bytes], bytes | None]) -> bool:
    """Whether all bytes of a content are on this device or known to be on the clouds. *list_here* returns a
    list of chunks that is on this device; of others it is not known what they list."""
    chunks, lists = named_chunks(value or b"") if value is not None else (set[bytes](), False)
    for page in tuple(chunks) if lists else ():
        data = list_here(page)
        chunks |= chunks_of_page(data) if data is not None else set()
    return all(is_at_hand(db, chunk) for chunk in chunks)


def _is_lost(db: Reader, value: bytes) -> bool:
    return not all(is_known(db, chunk) for chunk in named_chunks(value)[0])
