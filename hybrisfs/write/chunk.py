"""Files become chunks: the staged bytes of a snapshot are cut, and its content register lists the chunks.

Where `hybrisfs.write.layout` says. A stretch that is longer than the least chunk is cut by content: a file
that is written again with a few bytes more has most of its chunks already. Bytes that lie in one piece in the
journal stay where they are; others are assembled and appended once more. A chunk of zeros becomes a hole.

Of many small files, each written in one go, most time went into taking turns with programs: for each file two
transactions, some statements, and a read of the journal. So such files are cut in groups. What they share
is as little as programs do not notice: bytes that lie side by side are read at once.
"""

from __future__ import annotations

import errno
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from hybrisfs.errors import failure
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import Content, Run, encode_runs
from hybrisfs.state.chunk_states import MAX_CHUNK, ChunkRef, CutRow
from hybrisfs.state.extents import ZEROS, Extent, Piece, cut_pieces
from hybrisfs.state.file_chunks import BaseRow, ContentPage
from hybrisfs.state.pieces import hashes_of_pieces
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.cut import FileSnapshot
from hybrisfs.write.layout import ChunkLimits, Layout, in_pages, page_length, plan, without_holes

__all__ = ["Chunker"]

_MOST_TOGETHER: Final = 64  # files of a group: programs wait about as long as for one
_BYTES_TOGETHER: Final = 512 << 10
_AT_ONCE: Final = 4  # chunks of the largest size that are assembled together
_ZEROS: Final = bytes(MAX_CHUNK)


class _Fresh(Struct, frozen=True):
    """*length* bytes at *offset* are chunk number *chunk*."""

    offset: int
    length: int
    chunk: int
    id: bytes


class Chunker:
    """Cuts snapshots into chunks."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher) -> None:
        self._fs = fs
        self._fetcher = fetcher
        self.limits = fs.environment.limits.of(ChunkLimits)
        """They may be others at any moment."""

    def chunk(self, snapshot: FileSnapshot) -> bytes:
        """Make the chunks of *snapshot*, put them into the view, and return the content register's value.

        Called without the lock. Raises OSError or ChunkUnavailable when bytes cannot be read,
        JournalFullError when the disk has no room to assemble a chunk; the file then stays staged.
        """
        layout = plan(snapshot.size, snapshot.extents, snapshot.rows, self.limits)
        staged = sum(extent.end - extent.start for extent in snapshot.extents)
        snapshot.recut = max(0, sum(end - start for start, end in layout.stretches) - staged)
        source = _Source(self._fs, self._fetcher, snapshot, defers=self._defers(snapshot))
        fresh = [one for start, end in layout.stretches for one in self._cut_stretch(source, start, end)]
        with self._fs.state.transaction() as tx:
            if not self._defers(snapshot):  # a program may have synced the file in between
                tx.chunks.hurry([one.chunk for one in fresh])
            is_shown = self._show(tx, snapshot, layout, fresh)
            return self._list(tx, snapshot, _Runs(layout.kept, fresh), is_shown=is_shown)

    def in_groups(self, snapshots: Iterable[FileSnapshot]) -> Iterator[list[FileSnapshot]]:
        """The same files, in the same order, as those that `chunk_group` takes together."""
        group: list[FileSnapshot] = []
        size = 0
        for snapshot in snapshots:
            is_plain = self._is_plain(snapshot)
            size += snapshot.size
            if group and not (is_plain and len(group) < _MOST_TOGETHER and size <= _BYTES_TOGETHER):
                yield group
                group, size = [], snapshot.size
            group.append(snapshot)
            if not is_plain:
                yield group
                group, size = [], 0
        if group:
            yield group

    def chunk_group(self, group: Sequence[FileSnapshot]) -> list[bytes]:
        """`chunk` of several files of a group. What it raises says nothing of a single one: all stay
        staged."""
        cuts = [self._whole(extent, data) for extent, data in self._read_all(group)]
        with self._fs.state.transaction() as tx:
            numbers = iter(tx.chunks.add_all([cut for cut in cuts if cut is not None]))
            fresh = [[] if cut is None else [_Fresh(0, cut.length, next(numbers), cut.id)] for cut in cuts]
            tx.chunks.hurry([one.chunk for some in fresh for one in some])
            shown = [self._may_show(snapshot) for snapshot in group]
            files = list(zip(group, fresh, shown, strict=True))
            # Before the first file is shown without its extents.
            tx.contents.add_parts(
                [
                    (snapshot.inode.ino, 0, one.length, one.chunk, 0)
                    for snapshot, some, is_shown in files
                    for one in some
                    if is_shown
                ]
            )
            for snapshot, some, is_shown in files:
                if is_shown:
                    self._shows(tx, snapshot, sum(one.length for one in some))
            return [
                self._list(tx, snapshot, _Runs((), some), is_shown=is_shown)
                for snapshot, some, is_shown in files
            ]

    def _whole(self, extent: Extent, data: bytes) -> CutRow | None:
        """The chunk that a plain file is; None for zeros."""
        if not data[0] and data == _ZEROS[: len(data)]:
            return None
        namer = self._fs.state.namer
        identity, hashes = namer.chunk_id(data), hashes_of_pieces(namer, data)
        return CutRow(identity, len(data), extent.segment, extent.position, hashes)

    def _read_all(self, group: Iterable[FileSnapshot]) -> Iterator[tuple[Extent, bytes]]:
        """The extent of each plain file, and its bytes. Raises OSError."""
        extents = [snapshot.extents[0] for snapshot in group]
        places = [(extent.segment, extent.position, extent.end) for extent in extents]
        for extent, data in zip(extents, self._fs.journal.read_all(places), strict=True):
            if data is None:
                raise failure(errno.EIO)
            yield extent, data

    def _is_plain(self, snapshot: FileSnapshot) -> bool:
        """Whether it is a new file that lies in one piece in the journal and makes one chunk."""
        if snapshot.rows or snapshot.pages or len(snapshot.extents) != 1:
            return False
        start, end, segment, *_ = snapshot.extents[0]
        return (
            (start, end) == (0, snapshot.size)
            and segment != ZEROS
            and self._fs.state.namer.is_one(end, self.limits.size)
            and not self._defers(snapshot)
        )

    def _defers(self, snapshot: FileSnapshot) -> bool:
        return snapshot.inode.unsynced and snapshot.size >= self.limits.deferred

    def _cut_stretch(self, source: _Source, start: int, end: int) -> Iterator[_Fresh]:
        for first, last in source.without_holes(start, end, self.limits.block):
            for offset, data in self._cut_by_content(source, first, last):
                if data[0] or data != _ZEROS[: len(data)]:
                    yield self._add(source, offset, data)

    def _cut_by_content(self, source: _Source, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The chunks of start..end: where each begins, and its bytes."""
        most = self.limits.size
        at = start
        while at < end:
            upto = min(at + _AT_ONCE * most, end)
            data = source.read(at, upto)
            left = 0
            for length in self._fs.state.namer.cut(data, most):
                # What the end of these bytes has cut may go on in the next ones.
                if left + length == len(data) and upto < end and length < most:
                    break
                yield at + left, data[left : left + length] if length < len(data) else data
                left += length
            at += left

    def _add(self, source: _Source, offset: int, data: bytes) -> _Fresh:
        namer = self._fs.state.namer
        identity, hashes = namer.chunk_id(data), hashes_of_pieces(namer, data)
        pieces = source.pieces(offset, offset + len(data))
        with self._fs.state.transaction() as tx:
            segment, position = (
                (pieces[0].segment or 0, pieces[0].position)
                if len(pieces) == 1 and pieces[0].segment is not None
                else self._fs.journal.append(data, within_budget=False)
            )
            before = tx.chunks.newest() if source.defers else 0
            number = tx.chunks.add(CutRow(identity, len(data), segment, position, hashes))
            if source.defers and number > before:
                tx.chunks.deferred[number] = source.ino
        return _Fresh(offset, len(data), number, identity)

    def _show(self, tx: Transaction, snapshot: FileSnapshot, layout: Layout, fresh: Sequence[_Fresh]) -> bool:
        """Let the view show the chunks instead of the extents, if it may."""
        inode = snapshot.inode
        if not self._may_show(snapshot):
            return False
        former = {row.offset: row for row in snapshot.rows}
        parts = [(inode.ino, one.offset, one.length, one.chunk, 0) for one in fresh]
        parts += [
            (inode.ino, row.offset, row.length, row.chunk.number, row.skip)
            for row in layout.kept
            if former.get(row.offset) is not row
        ]
        tx.contents.replace_parts(inode.ino, _regions(snapshot.rows, layout), parts)
        self._shows(tx, snapshot, sum(row.length for row in layout.kept) + sum(one.length for one in fresh))
        return True

    @staticmethod
    def _may_show(snapshot: FileSnapshot) -> bool:
        """Whether the file is as it was, or longer: what was cut off, or has gone, is not shown again."""
        inode = snapshot.inode
        return inode.truncations == snapshot.truncations and (not inode.orphan or bool(inode.handles))

    def _shows(self, tx: Transaction, snapshot: FileSnapshot, stored: int) -> None:
        """The view shows *stored* bytes of chunks instead of the rows and extents of the snapshot."""
        inode = snapshot.inode
        inode.stored += stored - sum(row.length for row in snapshot.rows)
        self._fs.inodes.extents_of(tx, inode).drop_epochs(snapshot.epoch)
        self._fs.inodes.touch_extents(inode)
        self._fs.inodes.touch(inode)

    def _list(self, tx: Transaction, snapshot: FileSnapshot, runs: _Runs, *, is_shown: bool) -> bytes:
        """The register's value. The pages of a long list are chunks, too."""
        inode, contents, limits = snapshot.inode, tx.contents, self.limits
        if snapshot.rows or inode.content_stamp:  # cut to nothing, it had its old list still
            contents.drop_pages(inode.ino)
        inode.pages = None
        if not snapshot.pages and len(all_runs := runs.between(0, snapshot.size)) <= limits.direct_runs:
            return Content(snapshot.size, 0, all_runs).encode()
        usual = page_length(snapshot.size, limits)
        pages = [*snapshot.pages, *self._new_pages(tx, snapshot.ranges, runs, usual)]
        pages.sort()
        if is_shown:
            inode.pages = pages
        if not inode.orphan or inode.handles:
            contents.add_pages((inode.ino, page.chunk) for page in pages)
        return Content(snapshot.size, 1, [Run(page.length, page.id) for page in pages]).encode()

    def _new_pages(
        self, tx: Transaction, ranges: Iterable[tuple[int, int]], runs: _Runs, usual: int
    ) -> Iterator[ContentPage]:
        for start, end in ranges:
            for batch in in_pages(runs.between(start, end), usual):
                page, length = encode_runs(batch), sum(run.length for run in batch)
                identity = self._fs.state.namer.chunk_id(page)
                segment, position = self._fs.journal.append(page, within_budget=False)
                number = tx.chunks.add(CutRow(identity, len(page), segment, position))
                yield ContentPage(start, length, number, identity)
                start += length


class _Source:
    """The bytes of a snapshot, wherever they are."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher, snapshot: FileSnapshot, *, defers: bool) -> None:
        self.defers = defers
        self.ino: Final = snapshot.inode.ino
        self._fs = fs
        self._fetcher = fetcher
        self._extents = snapshot.extents
        self._starts = [extent.start for extent in snapshot.extents]
        self._rows = snapshot.rows
        self._has_holes = any(extent.segment == ZEROS for extent in snapshot.extents)

    def without_holes(self, start: int, end: int, block: int) -> Iterable[tuple[int, int]]:
        """What of start..end is to be cut."""
        if not self._has_holes:
            return [(start, end)]
        pieces = [(piece.start, piece.end, piece.segment) for piece in self.pieces(start, end)]
        return without_holes(pieces, start, end, block)

    def pieces(self, start: int, end: int) -> list[Piece]:
        """start..end in order, as staged pieces and gaps; pieces that are adjacent in the journal are one."""
        return _joined(cut_pieces(self._extents, self._starts, start, end))

    def read(self, start: int, end: int) -> bytes:
        """The bytes of start..end. Raises OSError, ChunkUnavailable."""
        parts: list[bytes] = []
        for piece in self.pieces(start, end):
            if piece.segment is None:
                parts += self._shown(piece.start, piece.end)
            else:
                parts.append(self._fs.content.read_staged(piece))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _shown(self, start: int, end: int) -> Iterator[bytes]:
        index = max(bisect_right(self._rows, start, key=lambda row: row.offset) - 1, 0)
        at = start
        for row in self._rows[index:]:
            if row.offset >= end:
                break
            if row.end <= at:
                continue
            if row.offset > at:
                yield bytes(row.offset - at)
                at = row.offset
            part = row.between(at, min(row.end, end))
            yield self._chunk(row.chunk)[part.skip : part.skip + part.length].ljust(part.length, b"\0")
            at = part.end
        if at < end:
            yield bytes(end - at)

    def _chunk(self, ref: ChunkRef) -> bytes:
        with self._fs.state.transaction() as tx:
            # The row is read again: the chunk may have been evicted since the snapshot.
            now = tx.chunks.get(ref.number)
            data = tx.chunks.read_whole(now)
        return data if data is not None else self._fetcher.fetch_one(now)


def _joined(pieces: list[Piece]) -> list[Piece]:
    """The same pieces; those that are adjacent in the journal are joined."""
    joined = pieces[:1]
    for piece in pieces[1:]:
        last = joined[-1]
        follows = piece.segment == last.segment and piece.position == last.position + last.end - last.start
        if follows and piece.segment not in (None, ZEROS):
            joined[-1] = last._replace(end=piece.end)
        else:
            joined.append(piece)
    return joined


def _regions(rows: Sequence[BaseRow], layout: Layout) -> Iterator[tuple[int, int]]:
    """The ranges in which parts begin that the file shows otherwise now, or not at all."""
    for start, end in layout.stretches if rows else ():
        crossing = rows[max(bisect_left(rows, start, key=lambda row: row.offset) - 1, 0)]
        yield crossing.offset if crossing.offset < start < crossing.end else start, end


class _Runs:
    """The parts of a file, as runs of its list."""

    def __init__(self, kept: Iterable[BaseRow], fresh: Iterable[_Fresh]) -> None:
        parts = [(row.offset, Run(row.length, row.chunk.id, row.skip)) for row in kept]
        parts += [(one.offset, Run(one.length, one.id)) for one in fresh]
        self._parts = sorted(parts)

    def between(self, start: int, end: int) -> list[Run]:
        """The runs of start..end, which no part crosses; what no part covers is a hole."""
        runs: list[Run] = []
        at = start
        for offset, run in islice(self._parts, bisect_left(self._parts, (start,)), None):
            if offset >= end:
                break
            if offset > at:
                runs.append(Run(offset - at, None))
            runs.append(run)
            at = offset + run.length
        if at < end:
            runs.append(Run(end - at, None))
        return runs
