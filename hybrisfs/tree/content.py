"""The bytes of files: reading, writing, truncating, holes.

Bytes come from three layers: extents (staged in the journal) hide chunks (settled), and what neither
covers reads as zeros. A read that needs chunks which this device does not hold returns `Missing`,
so that the caller can fetch them without holding anything up, and read again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hybrisfs.errors import failure
from hybrisfs.registers.tree import MAX_FILE_SIZE, attr_key, content_key
from hybrisfs.state.chunk_states import MAX_CHUNK, ChunkRef
from hybrisfs.state.contents import BaseRow
from hybrisfs.state.extents import ZEROS, Piece
from hybrisfs.state.journal import Journal
from hybrisfs.state.state import Transaction
from hybrisfs.tree.changes import Changes
from hybrisfs.tree.inodes import Inode, InodeTable, Intent
from sync.codec import Buffer

__all__ = ["BLOCK", "FileBytes", "Missing"]

BLOCK: Final = 4096
"""The unit of disk space that programs see."""

_FALLOC_KEEP_SIZE: Final = 0x01
_FALLOC_PUNCH_HOLE: Final = 0x02
_FALLOC_ZERO_RANGE: Final = 0x10


@dataclass(frozen=True, slots=True)
class Missing:
    """A read needs these chunks from the clouds first."""

    chunks: list[ChunkRef]


class FileBytes:
    """Reads and changes the content of inodes."""

    def __init__(
        self,
        journal: Journal,
        inodes: InodeTable,
        changes: Changes,
        *,
        total_bytes: int,
    ) -> None:
        self.total_bytes = total_bytes
        self._journal = journal
        self._inodes = inodes
        self._changes = changes

    # -- reading ---------------------------------------------------------------------------------

    def read(self, tx: Transaction, inode: Inode, offset: int, size: int) -> bytes | Missing:
        """Up to *size* bytes from *offset*; short only at the end of the file. Raises OSError (EIO)."""
        end = min(offset + size, inode.size)
        if end <= offset:
            return b""
        extents = self._inodes.extents_of(tx, inode)
        pieces = extents.pieces(offset, end) if extents else [Piece(offset, end, None, 0)]
        parts: list[bytes] = []
        missing: list[ChunkRef] = []
        for piece in pieces:
            if piece.segment is None:
                self._read_base(tx, inode, piece.start, piece.end, parts, missing)
            else:
                parts.append(self.read_staged(piece))
        if missing:
            return Missing(missing)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_staged(self, piece: Piece) -> bytes:
        """The bytes of a staged piece. Safe without the lock while its segment is dirty."""
        length = piece.end - piece.start
        if piece.segment == ZEROS or piece.segment is None:
            return bytes(length)
        data = self._journal.read(piece.segment, piece.position, length)
        if data is None:
            raise failure(errno.EIO)
        return data

    def _read_base(
        self, tx: Transaction, inode: Inode, start: int, end: int, parts: list[bytes], missing: list[ChunkRef]
    ) -> None:
        at = start
        for row in self.base_rows(tx, inode, start, end) if inode.stored else ():
            if row.offset + row.length <= at:
                continue
            if row.offset > at:
                parts.append(bytes(row.offset - at))
                at = row.offset
            upto = min(row.offset + row.length, end)
            data = tx.chunks.read(row.chunk, at - row.offset, upto - at)
            if data is None:
                missing.append(row.chunk)
            else:
                parts.append(data)
            at = upto
        if at < end:
            parts.append(bytes(end - at))

    def base_rows(self, tx: Transaction, inode: Inode, start: int, end: int) -> list[BaseRow]:
        """The settled parts that touch start..end, in order."""
        return tx.contents.parts_between(inode.ino, start, end, MAX_CHUNK)

    # -- changing --------------------------------------------------------------------------------

    def write(self, tx: Transaction, inode: Inode, offset: int, data: Buffer) -> int:
        """Stage *data*. Raises JournalFullError (ENOSPC) or EFBIG, and has then changed nothing."""
        length = len(data)
        end = offset + length
        if end > MAX_FILE_SIZE:
            raise failure(errno.EFBIG)
        if not length:
            return 0
        self._inodes.intend(tx, inode, Intent.WRITE)
        extents = self._inodes.extents_of(tx, inode)
        spot = extents.in_place(offset, end)
        if spot is not None:
            self._journal.overwrite(*spot, data)
        else:
            segment, position = self._journal.append(data)
            extents.write(offset, end, segment, position)
            self._inodes.touch_extents(inode)
        if end > inode.size:
            self.resize(inode, end)
        self._changed(inode)
        return length

    def truncate(self, tx: Transaction, inode: Inode, size: int) -> None:
        if size > MAX_FILE_SIZE:
            raise failure(errno.EFBIG)
        self._inodes.intend(tx, inode, Intent.WRITE)
        if size < inode.size:
            self._cut_off(tx, inode, size)
        self.resize(inode, size)
        self._changed(inode)

    def _cut_off(self, tx: Transaction, inode: Inode, size: int) -> None:
        inode.truncations += 1
        extents = self._inodes.extents_of(tx, inode)
        extents.truncate(size)
        self._inodes.touch_extents(inode)
        if inode.stored:
            inode.stored -= tx.contents.cut_off(inode.ino, size)

    def take_over(self, tx: Transaction, inode: Inode, source: Inode) -> None:
        """Move the content of *source*, a file that no update has named, to *inode*."""
        self._inodes.intend(tx, inode, Intent.WRITE)
        if inode.size:
            self._cut_off(tx, inode, 0)
        extents, staged = self._inodes.extents_of(tx, inode), self._inodes.extents_of(tx, source)
        for one in staged.snapshot():
            extents.write(one.start, one.end, one.segment, one.position)
        staged.clear()
        size = source.size
        self.resize(source, 0)
        self.resize(inode, size)
        self._inodes.touch_extents(source)
        self._inodes.touch_extents(inode)
        self._changed(inode)

    def allocate(self, tx: Transaction, inode: Inode, mode: int, offset: int, length: int) -> None:
        """fallocate(2): plain, KEEP_SIZE, PUNCH_HOLE and ZERO_RANGE."""
        if offset < 0 or length <= 0:
            raise failure(errno.EINVAL)
        end = offset + length
        if end > MAX_FILE_SIZE:
            raise failure(errno.EFBIG)
        keep = bool(mode & _FALLOC_KEEP_SIZE)
        action = mode & ~_FALLOC_KEEP_SIZE
        if action not in (0, _FALLOC_PUNCH_HOLE, _FALLOC_ZERO_RANGE) or (
            action == _FALLOC_PUNCH_HOLE and not keep
        ):
            raise failure(errno.EOPNOTSUPP)
        self._inodes.intend(tx, inode, Intent.WRITE)
        if action:
            self._zero(tx, inode, offset, min(end, inode.size))
        elif self._journal.free_bytes() < length:
            raise failure(errno.ENOSPC)
        if not keep and end > inode.size:
            self.resize(inode, end)
        self._changed(inode)

    def _zero(self, tx: Transaction, inode: Inode, start: int, end: int) -> None:
        if start >= end:
            return
        extents = self._inodes.extents_of(tx, inode)
        extents.write(start, end, ZEROS, 0)
        self._inodes.touch_extents(inode)

    def discard(self, tx: Transaction, inode: Inode) -> None:
        """Forget the content of a node that is going away."""
        self.resize(inode, 0)
        extents = self._inodes.extents_of(tx, inode)
        if len(extents):
            extents.clear()
            self._inodes.touch_extents(inode)
        if inode.stored or inode.content_stamp:  # cut to nothing, it still has the pages of its old list
            tx.contents.clear(inode.ino)
            inode.stored = 0

    def resize(self, inode: Inode, size: int) -> None:
        """The size is this, whatever the content."""
        self.total_bytes += size - inode.size
        inode.size = size

    def _changed(self, inode: Inode) -> None:
        inode.mtime = inode.ctime = self._inodes.now()
        self._inodes.touch(inode)
        if not inode.orphan:
            self._changes.mark(content_key(inode.id), inode.ino)
            self._changes.mark(attr_key(inode.id), inode.ino)

    # -- holes -----------------------------------------------------------------------------------

    def seek(self, tx: Transaction, inode: Inode, offset: int, whence: int) -> int:
        """lseek(2) with SEEK_DATA or SEEK_HOLE. Data fills whole blocks, as it does on disks."""
        if whence not in (os.SEEK_DATA, os.SEEK_HOLE):
            raise failure(errno.EINVAL)
        if not 0 <= offset < inode.size:
            raise failure(errno.ENXIO)
        at = offset
        for start, end in self._data_ranges(tx, inode, offset - offset % BLOCK):
            start, end = start - start % BLOCK, end + -end % BLOCK
            if whence == os.SEEK_DATA:
                return max(start, offset)
            if start > at:
                break
            at = max(at, end)
        if whence == os.SEEK_DATA:
            raise failure(errno.ENXIO)
        return min(at, inode.size)

    def _data_ranges(self, tx: Transaction, inode: Inode, offset: int) -> Iterator[tuple[int, int]]:
        """Ranges from *offset* on that are not holes, in order."""
        for piece in self._inodes.extents_of(tx, inode).pieces(offset, inode.size):
            if piece.segment is None:
                for row in self.base_rows(tx, inode, piece.start, piece.end) if inode.stored else ():
                    yield max(row.offset, piece.start), min(row.offset + row.length, piece.end)
            elif piece.segment != ZEROS:
                yield piece.start, piece.end
