"""Reading something of the volume, to put it on the other side of a mirror."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.mirror.content import WINDOW, ContentHash, is_zero
from hybrisfs.mirror.model import ChangedError, Seen, own_bits
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.tree.content import Missing
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode

__all__ = ["Reader", "VolumeFile"]


@dataclass(frozen=True, slots=True)
class Reader:
    """What reading needs; *fetch* brings chunks, or raises ChunkUnavailable."""

    fs: FileSystem
    fetch: Callable[[list[ChunkRef]], object]

    def bring(self, missing: Missing) -> None:
        """Raises OSError (EAGAIN) when it cannot be had just now."""
        try:
            self.fetch(missing.chunks)
        except ChunkUnavailable as error:
            raise OSError(errno.EAGAIN, f"cannot be had from the clouds just now: {error}") from error

    def list_chunks(self, inode: Inode) -> None:
        """See to it that this device knows the chunks of the file."""
        while True:
            with self.fs.state.transaction() as tx:
                lacking = self.fs.received.lacking(tx, inode)
            if lacking is None:
                return
            self.bring(lacking)


class VolumeFile:
    """Something of the volume that is being read; see `engine.Original`."""

    def __init__(self, reader: Reader, inode: Inode, seen: Seen, xattrs: Mapping[bytes, bytes]) -> None:
        self._reader = reader
        self._inode = inode
        self._version = _version(inode)
        self.seen = seen
        self.xattrs = xattrs
        self.own_bits = own_bits(inode.mode)

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        found = ContentHash(self._reader.fs.state.namer)
        for offset in self._windows():
            data = self._data(offset)
            if not is_zero(data):
                found.add(offset, data)
                yield offset, data
        self._finish(found)

    def identified(self) -> Seen:
        """With the identity of the content, for which only what has not been cut into chunks is read."""
        found = ContentHash(self._reader.fs.state.namer)
        for offset in self._windows():
            known = self._known(offset)
            if known is not None:
                found.add_known(offset, known)
                continue
            data = self._data(offset)
            if not is_zero(data):
                found.add(offset, data)
        self._finish(found)
        return self.seen

    def _finish(self, found: ContentHash) -> None:
        with self._reader.fs.state.transaction():
            if _version(self._inode) != self._version or self._inode.orphan:
                raise ChangedError("a file of the volume has changed while it was read")
        self.seen = self.seen.with_content(found.digest(self.seen.facts.size))

    def _windows(self) -> Iterator[int]:
        """The windows that are no holes."""
        reader, offset = self._reader, 0
        reader.list_chunks(self._inode)
        while True:
            with reader.fs.state.transaction() as tx:
                try:
                    offset = reader.fs.content.seek(tx, self._inode, offset, os.SEEK_DATA)
                except OSError as error:
                    if error.errno != errno.ENXIO:
                        raise
                    return
            offset -= offset % WINDOW
            yield offset
            offset += WINDOW

    def _known(self, offset: int) -> bytes | None:
        """The id of the chunk that is just this window, if one is."""
        fs, inode = self._reader.fs, self._inode
        end = min(offset + WINDOW, inode.size)
        with fs.state.transaction() as tx:
            extents = fs.inodes.extents_of(tx, inode)
            staged = [piece for piece in extents.pieces(offset, end) if piece.segment is not None]
            rows = fs.content.base_rows(tx, inode, offset, end)
        if staged or len(rows) != 1 or (rows[0].offset, rows[0].length) != (offset, end - offset):
            return None
        return rows[0].chunk.id if rows[0].chunk.length == rows[0].length else None

    def _data(self, offset: int) -> bytes:
        while True:
            with self._reader.fs.state.transaction() as tx:
                data = self._reader.fs.read(tx, self._inode, offset, WINDOW)
            if not isinstance(data, Missing):
                return data
            self._reader.bring(data)


def _version(inode: Inode) -> tuple[int, int, int]:
    """Changes whenever the content does."""
    return inode.size, inode.mtime, inode.truncations
