"""What content registers said of files: sizes, and the bytes of a version, wherever they are."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Sequence

from hybrisfs.errors import failure
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import Content, Run, decode_runs
from hybrisfs.tree.filesystem import FileSystem
from sync.codec import DecodeError

__all__ = ["VersionReader", "content_of", "size_of"]


def content_of(value: bytes | None) -> Content:
    """What no correct device can have written counts as an empty file, as everywhere."""
    try:
        return Content(0, 0, ()) if value is None else Content.decode(value)
    except DecodeError:
        return Content(0, 0, ())


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
        runs = self._list()
        end = min(offset + size, self.size)
        parts: list[bytes] = []
        at = offset
        index = max(bisect_right(self._starts, at) - 1, 0)
        while at < end:
            start, run = self._starts[index], runs[index]
            upto = min(start + run.length, end)
            if run.chunk is None:
                parts.append(bytes(upto - at))
            else:
                data = self._chunk(run.chunk)[at - start : upto - start]
                if len(data) != upto - at:
                    raise failure(errno.EIO)
                parts.append(data)
            at, index = upto, index + 1
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _list(self) -> Sequence[Run]:
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
        return self._runs

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
