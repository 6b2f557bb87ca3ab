"""Files become chunks: the staged bytes of a snapshot are cut, and its content register lists the chunks.

Where `hybrisfs.write.layout` says. A stretch that is longer than the least chunk is cut by content: a file
that is written again with a few bytes more has most of its chunks already. Bytes that lie in one piece in the
journal stay where they are; others are assembled and appended once more. A chunk of zeros becomes a hole.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import Content, Run, encode_runs
from hybrisfs.state.chunk_states import MAX_CHUNK, ChunkRef, CutRow
from hybrisfs.state.extents import ZEROS, Piece, cut_pieces
from hybrisfs.state.file_chunks import BaseRow
from hybrisfs.state.pieces import hashes_of_pieces
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.cut import FileSnapshot
from hybrisfs.write.layout import ChunkLimits, Layout, pages, plan, without_holes

__all__ = ["Chunker"]

_AT_ONCE: Final = 4  # chunks of the largest size that are assembled together
_ZEROS: Final = bytes(MAX_CHUNK)


@dataclass(frozen=True, slots=True)
class _Fresh:
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
        source = _Source(self._fs, self._fetcher, snapshot)
        fresh = [one for start, end in layout.stretches for one in self._cut_stretch(source, start, end)]
        with self._fs.state.transaction() as tx:
            self._replace(tx, snapshot, layout, fresh)
            return self._value(tx, snapshot, _runs(snapshot.size, layout.kept, fresh))

    def _cut_stretch(self, source: _Source, start: int, end: int) -> Iterator[_Fresh]:
        pieces = source.pieces(start, end)
        for first, last in without_holes(
            ((piece.start, piece.end, piece.segment) for piece in pieces), start, end, self.limits.block
        ):
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
            number = tx.chunks.add(CutRow(identity, len(data), segment, position, hashes))
        return _Fresh(offset, len(data), number, identity)

    def _replace(
        self, tx: Transaction, snapshot: FileSnapshot, layout: Layout, fresh: Sequence[_Fresh]
    ) -> None:
        """Let the view show the chunks instead of the extents, unless the file was cut shorter since."""
        inode = snapshot.inode
        if inode.truncations != snapshot.truncations or (inode.orphan and not inode.handles):
            return
        former = {row.offset: row for row in snapshot.rows}
        parts = [(inode.ino, one.offset, one.length, one.chunk, 0) for one in fresh]
        parts += [
            (inode.ino, row.offset, row.length, row.chunk.number, row.skip)
            for row in layout.kept
            if former.get(row.offset) is not row
        ]
        tx.contents.replace_parts(inode.ino, _regions(snapshot.rows, layout), parts)
        inode.stored = sum(row.length for row in layout.kept) + sum(one.length for one in fresh)
        self._fs.inodes.extents_of(tx, inode).drop_epochs(snapshot.epoch)
        self._fs.inodes.touch_extents(inode)
        self._fs.inodes.touch(inode)

    def _value(self, tx: Transaction, snapshot: FileSnapshot, runs: list[Run]) -> bytes:
        ino, contents = snapshot.inode.ino, tx.contents
        gone = snapshot.inode.orphan and not snapshot.inode.handles
        if snapshot.rows or snapshot.inode.content_stamp:  # cut to nothing, it had its old list still
            contents.drop_pages(ino)
        limits = self.limits
        if len(runs) <= limits.direct_runs:
            return Content(snapshot.size, 0, runs).encode()
        listed: list[Run] = []
        for batch in pages(runs, limits.runs_per_page):
            page = encode_runs(batch)
            identity = self._fs.state.namer.chunk_id(page)
            segment, position = self._fs.journal.append(page, within_budget=False)
            number = tx.chunks.add(CutRow(identity, len(page), segment, position))
            if not gone:
                contents.add_pages([(ino, number)])
            listed.append(Run(sum(run.length for run in batch), identity))
        return Content(snapshot.size, 1, listed).encode()


class _Source:
    """The bytes of a snapshot, wherever they are."""

    def __init__(self, fs: FileSystem, fetcher: Fetcher, snapshot: FileSnapshot) -> None:
        self._fs = fs
        self._fetcher = fetcher
        self._extents = snapshot.extents
        self._starts = [extent.start for extent in snapshot.extents]
        self._rows = snapshot.rows

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


def _runs(size: int, kept: Sequence[BaseRow], fresh: Sequence[_Fresh]) -> list[Run]:
    """The whole file as runs of chunks and holes."""
    parts = [(row.offset, Run(row.length, row.chunk.id, row.skip)) for row in kept]
    parts += [(one.offset, Run(one.length, one.id)) for one in fresh]
    parts.sort()
    runs: list[Run] = []
    at = 0
    for offset, run in parts:
        if offset > at:
            runs.append(Run(offset - at, None))
        runs.append(run)
        at = offset + run.length
    if at < size:
        runs.append(Run(size - at, None))
    return runs
