"""The bytes of files: reading, writing, truncating, holes.

Bytes come from three layers: extents (staged in the journal) hide chunks, and what neither
covers reads as zeros. A read that needs chunks which this device does not hold returns `Missing`,
so that the caller can fetch them without holding anything up, and read again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct

from hybrisfs.errors import failure
from hybrisfs.registers.tree import (
    MAX_FILE_SIZE,
    Content,
    Run,
    attr_key,
    content_key,
    content_of,
    decode_runs,
)
from hybrisfs.state.chunk_states import MAX_CHUNK, ChunkRef
from hybrisfs.state.extents import ZEROS, ExtentMap, Piece
from hybrisfs.state.file_chunks import BaseRow, Part, RecentParts
from hybrisfs.state.journal import Journal, JournalFullError
from hybrisfs.state.state import Transaction
from hybrisfs.tree.changes import Changes
from hybrisfs.tree.inodes import Inode, InodeTable, Intent
from sync.codec import Buffer, DecodeError

__all__ = ["BLOCK", "FileBytes", "Missing", "NoListError", "ReceivedContent"]

BLOCK: Final = 4096
"""The unit of disk space that programs see."""

_WINDOW: Final = 256 << 10  # bytes of a file in which there are ...
_MOST_PIECES: Final = 32  # ... no more extents, when it is aside
_FALLOC_KEEP_SIZE: Final = 0x01
_FALLOC_PUNCH_HOLE: Final = 0x02
_FALLOC_ZERO_RANGE: Final = 0x10


class Missing(Struct, frozen=True):
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
        self._recent = RecentParts()
        self._awaited: dict[int, Callable[[], None]] = {}  # by the number of a chunk

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

    def await_reading(self, chunk: int, note: Callable[[], None]) -> None:
        """Call *note* when the chunk with this number is next read. The volume's lock may be held then, so it
        only takes note. This and the two below: from any thread."""
        self._awaited[chunk] = note

    def await_no_longer(self, chunks: Iterable[int]) -> None:
        """Undo `await_reading`."""
        for chunk in chunks:
            self._awaited.pop(chunk, None)

    def was_read(self, chunk: int) -> None:
        """A program reads the chunk, which is here or is being fetched for it."""
        note = self._awaited.pop(chunk, None)
        if note is not None:
            note()

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
        for row in self._recent.between(tx, inode.ino, start, end) if inode.stored else ():
            if row.offset > at:
                parts.append(bytes(row.offset - at))
                at = row.offset
            upto = min(row.offset + row.length, end)
            data = tx.chunks.read(row.chunk, row.skip + at - row.offset, upto - at)
            if data is None:
                missing.append(row.chunk)
            else:
                parts.append(data)
                if self._awaited:
                    self.was_read(row.chunk.number)
            at = upto
        if at < end:
            parts.append(bytes(end - at))

    def base_rows(self, tx: Transaction, inode: Inode, start: int, end: int) -> list[BaseRow]:
        """The parts in chunks that touch start..end, in order."""
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
            if inode.ino in self._changes.aside:
                self._gather(extents, offset)
        if end > inode.size:
            self.resize(inode, end)
        self._changed(inode)
        return length

    def _gather(self, extents: ExtentMap, offset: int) -> None:
        """Make one extent of those around *offset* when they are many. Those of other files become chunks; of
        a file that is aside there would be one for each write, for ever."""
        start = offset - offset % _WINDOW
        pieces = extents.pieces(start, start + _WINDOW)
        if len(pieces) <= _MOST_PIECES:
            return
        for run in _staged_runs(pieces):
            data = b"".join(map(self.read_staged, run))
            try:
                segment, position = self._journal.append(data)
            except JournalFullError:
                return
            extents.write(run[0].start, run[-1].end, segment, position)

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
        inode.pages = None
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
            inode.pages = None

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


def _staged_runs(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """The pieces that lie in segments, as runs of adjacent ones."""
    for is_staged, run in groupby(pieces, lambda piece: piece.segment not in (None, ZEROS)):
        if is_staged:
            yield list(run)


# -- contents that other devices made: the bytes of a file whose content register they wrote ------------
# The list of a long file's chunks stands in chunks itself; those may have to be fetched before the file can
# be read or changed: until then the file is *unlisted*.


class NoListError(OSError):
    """What should be a list of chunks is none: no correct device wrote it."""

    def __init__(self) -> None:
        super().__init__(errno.EIO, os.strerror(errno.EIO))


class ReceivedContent:
    """Shows contents by their register values."""

    def __init__(self, tx: Transaction, inodes: InodeTable, content: FileBytes) -> None:
        self._inodes = inodes
        self._content = content
        self._unlisted = tx.contents.unlisted()

    def show(self, tx: Transaction, inode: Inode, value: bytes | None) -> None:
        """Replace the content of the file by this one. If a program has the file open, the list of its chunks
        is here (`lacking_to_show`), as programs are asked to wait for it only when they open a file."""
        listed = content_of(value)
        self._content.discard(tx, inode)
        self.forget(tx, inode)
        self._content.resize(inode, listed.size)
        inode.truncations += 1  # chunks that are being made of the old content must not come back
        if listed.depth:
            self._show_later(tx, inode, listed, value or b"")
        else:
            self._list(tx, inode, listed.runs)
        self._inodes.touch(inode)
        if inode.handles:
            self.lacking(tx, inode)

    def show_all(self, tx: Transaction, contents: Mapping[int, bytes | None]) -> dict[int, tuple[int, int]]:
        """Let new files, by their numbers, have these contents; the size of each, and the bytes stored of it.

        There is nothing else of these files yet.
        """
        listed = {ino: content_of(value) for ino, value in contents.items()}
        numbers = self._numbers(tx, listed.values())
        sizes: dict[int, tuple[int, int]] = {}
        parts: list[Part] = []
        for ino, one in listed.items():
            if one.depth:
                self._list_later(tx, ino, one.runs, contents[ino] or b"", numbers)
                sizes[ino] = one.size, one.size
                continue
            mine = _parts(ino, one.runs, numbers)
            parts += mine
            sizes[ino] = one.size, sum([part[2] for part in mine])
        tx.contents.add_parts(parts)
        self._content.total_bytes += sum([size for size, _ in sizes.values()])
        return sizes

    def all_unlisted(self) -> list[int]:
        """The numbers of all files that are unlisted, in their order."""
        return sorted(self._unlisted)

    def is_unlisted(self, ino: int) -> bool:
        return ino in self._unlisted

    def unlisted(self, tx: Transaction, inode: Inode) -> bytes | None:
        """The content register of a file that is unlisted; None when it is not."""
        return tx.contents.value_unlisted(inode.ino) if inode.ino in self._unlisted else None

    def forget(self, tx: Transaction, inode: Inode) -> None:
        """The file is not unlisted any more."""
        if inode.ino in self._unlisted:
            self._unlisted.discard(inode.ino)
            tx.contents.end_unlisted(inode.ino)

    def _show_later(self, tx: Transaction, inode: Inode, listed: Content, value: bytes) -> None:
        self._list_later(tx, inode.ino, listed.runs, value, self._numbers(tx, [listed]))
        inode.stored = listed.size

    def _numbers(self, tx: Transaction, contents: Iterable[Content]) -> dict[bytes, int]:
        """The numbers of all chunks that the contents name; the length of a page is not known yet."""
        lengths: dict[bytes, int] = {}
        for one in contents:
            for run in one.runs:
                if run.chunk is not None:
                    length = 0 if one.depth else run.reach
                    lengths[run.chunk] = max(length, lengths.get(run.chunk, 0))
        return tx.chunks.known(lengths)

    def _list_later(
        self, tx: Transaction, ino: int, pages: Iterable[Run], value: bytes, numbers: Mapping[bytes, int]
    ) -> None:
        tx.contents.add_pages([(ino, numbers[page.chunk]) for page in pages if page.chunk])
        tx.contents.leave_unlisted(ino, value)
        self._unlisted.add(ino)

    def lacking(self, tx: Transaction, inode: Inode) -> Missing | None:
        """The chunks needed before the file can be read or changed; None when it can be now.

        Raises NoListError (EIO) when what they hold is not a list of chunks, and OSError.
        """
        value = self.unlisted(tx, inode)
        if value is None:
            return None
        runs = self._all_runs(tx, value)
        if isinstance(runs, Missing):
            return runs
        self.forget(tx, inode)
        self._list(tx, inode, runs)
        return None

    def lacking_to_show(self, tx: Transaction, value: bytes | None) -> Missing | None:
        """The chunks needed before a file that shows this content can be read or changed. Raises as
        `lacking`."""
        runs = self._all_runs(tx, value)
        return runs if isinstance(runs, Missing) else None

    @staticmethod
    def _all_runs(tx: Transaction, value: bytes | None) -> list[Run] | Missing:
        """All that a content lists, or the chunks that its list needs."""
        listed = content_of(value)
        runs = [] if listed.depth else list(listed.runs)
        missing: list[ChunkRef] = []
        for page in listed.runs if listed.depth else ():
            ref = tx.chunks.find(page.chunk or b"")
            data = None if ref is None else tx.chunks.read_whole(ref)
            if ref is not None and data is None:
                missing.append(ref)
            elif not missing:
                runs += _page(data, page.length)
        return Missing(missing) if missing else runs

    def lacking_to_know(self, tx: Transaction, inode: Inode) -> Missing | None:
        """The chunks needed before it is known what the file needs; None when that is. What should be a list
        of chunks and is none names nothing, on all devices. Raises OSError."""
        try:
            return self.lacking(tx, inode)
        except NoListError:
            return None

    def _list(self, tx: Transaction, inode: Inode, runs: Sequence[Run]) -> None:
        parts = _parts(inode.ino, runs, self._numbers(tx, [Content(inode.size, 0, runs)]))
        tx.contents.set_parts(inode.ino, parts)
        inode.stored = sum(part[2] for part in parts)
        self._inodes.touch(inode)


def _parts(ino: int, runs: Iterable[Run], numbers: Mapping[bytes, int]) -> list[Part]:
    at = 0
    parts: list[Part] = []
    for run in runs:
        if run.chunk is not None:
            parts.append((ino, at, run.length, numbers[run.chunk], run.skip))
        at += run.length
    return parts


def _page(data: bytes | None, length: int) -> list[Run]:
    try:
        runs = decode_runs(data or b"")
    except DecodeError:
        raise NoListError from None
    if sum(run.length for run in runs) != length:
        raise NoListError
    return runs
