"""The publisher: turns what changed in the view into signed updates.

Each round takes a cut, cuts its files into chunks, and signs all of it as one transaction. In quiet times a
change is signed at once; under load rounds are at least `ROUND_SECONDS` apart, and the changes between two
rounds are grouped.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.kinds import NODE, PLACE, Trait, having
from hybrisfs.merge.signing import Signer
from hybrisfs.merge.unsigned import is_withheld
from hybrisfs.read.fetch import Fetcher
from hybrisfs.receive.take import Receiver
from hybrisfs.registers.tree import Content, Run, attr_key, content_key, encode_runs, slot_of
from hybrisfs.stages import IDLE, Pause, Signals
from hybrisfs.state.chunk_states import MAX_CHUNK, ChunkRef, CutRow
from hybrisfs.state.extents import ZEROS, Piece, cut_pieces
from hybrisfs.state.file_chunks import BaseRow
from hybrisfs.state.pieces import hashes_of_pieces
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.cut import Cut, CutLimits, FileSnapshot, release, take_cut

__all__ = ["ChunkLimits", "Chunker", "Publisher", "record_signed"]

log = logging.getLogger(__name__)

ROUND_SECONDS: Final = 1.0
_DIRECT: Final = having(Trait.DIRECT)
_BRISK_SECONDS: Final = 0.02
_BRISK_SHARE: Final = (
    20  # of the time, at most one part in so many goes into rounds while others wait for them
)
_RETRY_SECONDS: Final = 10.0


class _OutdatedError(Exception):
    """The cut cannot be signed, because a file was removed since and its bytes cannot be read."""


class Publisher:
    """A stage that signs in rounds."""

    def __init__(
        self,
        fs: FileSystem,
        chunker: Chunker,
        signer: Signer,
        receiver: Receiver,
        signals: Signals,
    ) -> None:
        self.limits = fs.environment.limits.of(CutLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._chunker = chunker
        self._signer = signer
        self._receiver = receiver
        self._signals = signals
        self._postponed: dict[int, float] = {}  # nodes whose bytes cannot be had now, and until when

    def step(self) -> Pause:
        """Sign the changes so far; later ones are gathered for a while."""
        begun = self._monotonic()
        while self.publish_round() and self._behind() and not self._signals.stopping:
            pass
        took = self._monotonic() - begun
        return IDLE._replace(least=self._interval(took) - took)

    def _interval(self, took: float) -> float:
        """Seconds between the beginnings of two rounds, when the last one took so long."""
        if not self._signals.brisk:
            return ROUND_SECONDS
        return min(ROUND_SECONDS, max(_BRISK_SECONDS, took * _BRISK_SHARE))

    def _behind(self) -> bool:
        return len(self._fs.changes.unsigned) >= self.limits.most_registers

    def publish_round(self) -> bool:
        """Sign what has changed; False when there was nothing to sign."""
        with self._fs.state.cutting:
            return self._round()

    def _round(self) -> bool:
        while (cut := self._take_cut()) is not None:
            try:
                for snapshot in cut.files:
                    self._make_value(cut, snapshot)
                with self._fs.state.transaction() as tx:
                    if cut.seqs:
                        self._sign(tx, cut)
            except _OutdatedError as outdated:
                log.debug("the cut is taken again: %s", outdated)
                continue
            finally:
                with self._fs.state.transaction() as tx:
                    release(tx, self._fs, cut)
            self._signals.chunks_made()
            return True
        return False

    def _take_cut(self) -> Cut | None:
        now = self._monotonic()
        everything = self._signals.flushing
        self._postponed = {ino: until for ino, until in self._postponed.items() if until > now}
        with self._fs.state.transaction() as tx:
            if not self._signer.may_contribute(tx):
                return None
            withheld = None
            if not self._fs.is_full:
                withheld = partial(is_withheld, tx, self._fs, self._signer.counting(tx))
            cut, rest_wanted = take_cut(
                tx,
                self._fs,
                now,
                self.limits,
                everything=everything,
                skip=self._postponed.__contains__,
                withheld=withheld,
            )
        self._signals.want_rest(rest_wanted)
        return cut

    def _make_value(self, cut: Cut, snapshot: FileSnapshot) -> None:
        """Make the value of a file's content, even if the file was removed since: later changes of the cut
        may depend on it, as a database depends on its journal. Raises _OutdatedError."""
        inode = snapshot.inode
        try:
            cut.writes[snapshot.key] = self._chunker.chunk(snapshot)
        except (OSError, ChunkUnavailable) as error:
            if inode.orphan:
                raise _OutdatedError(f"file {inode.ino} has been removed, and {error}") from error
            # Staged bytes stay where they are; what was published of the file stays true.
            log.warning("file %d cannot be published now (%s); it will be tried again", inode.ino, error)
            self._postponed[inode.ino] = self._monotonic() + _RETRY_SECONDS
            inode.forced = True  # also if it is open then: what it holds back may hold back others
            cut.without(inode)

    def _sign(self, tx: Transaction, cut: Cut) -> None:
        stamp = self._signer.sign(tx, cut.writes.items(), tx.chunks.newest(), cut.directories)
        self._fs.changes.signed(tx, cut.seqs, stamp.clock)
        record_signed(tx, self._fs, cut.inos, self._signer.number_of(tx, stamp))
        self._receiver.signed(tx, {key[NODE] for key in cut.writes})
        log.debug("signed update %d: %d registers", stamp.clock, len(cut.writes))


def record_signed(tx: Transaction, fs: FileSystem, inos: dict[bytes, int], stamp: int) -> None:
    """Note in the view that the update with this stamp wrote these registers."""
    places: list[tuple[int, int]] = []
    direct = [key for key in inos if key[0] in _DIRECT]
    if direct:
        tx.direct.forget(key for key in direct if key not in fs.changes.unsigned)
    for key, ino in inos.items():
        if key[0] == PLACE:
            places.append((ino, slot_of(key)))
            continue
        try:
            inode = fs.inodes.get(tx, ino)
        except KeyError:
            continue  # removed since the cut; its tombstone follows
        if key == attr_key(inode.id):
            inode.attr_stamp = stamp
        elif key == content_key(inode.id):
            inode.content_stamp = stamp
        fs.inodes.touch(inode)
    tx.places.set_stamp(stamp, places)


# -- settling a file: its staged bytes become chunks, and its content a list of them --------------------
# Only what changed is read: chunk-sized windows that extents touch, and chunks that a truncation left partly
# shown. Bytes that lie in one piece in the journal stay where they are; others are assembled and
# appended once more. A window of zeros becomes a hole.


_ZERO_WINDOW: Final = bytes(MAX_CHUNK)


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """See `hybrisfs.environment.Limits`."""

    size: int = MAX_CHUNK
    """Most bytes of a chunk that is cut here, up to MAX_CHUNK; those of other devices may be longer."""
    direct_runs: int = 64
    """Runs of a content's list, beyond which it is split into pages, ..."""
    runs_per_page: int = 1024
    """... and those of a page."""


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A window's new content: *length* bytes at *offset* are chunk number *chunk*."""

    offset: int
    length: int
    chunk: int
    id: bytes


class Chunker:
    """Cuts snapshots into chunks."""

    def __init__(
        self,
        fs: FileSystem,
        fetcher: Fetcher,
    ) -> None:
        self._fs = fs
        self._fetcher = fetcher
        self.limits = fs.environment.limits.of(ChunkLimits)
        """They may be others at any moment."""

    def chunk(self, snapshot: FileSnapshot) -> bytes:
        """Make the chunks of *snapshot*, put them into the view, and return the content register's value.

        Called without the lock. Raises OSError or ChunkUnavailable when bytes cannot be read,
        JournalFullError when the disk has no room to assemble a chunk; the file then stays staged.
        """
        regions = _regions(snapshot, self.limits.size)
        staged = sum(extent.end - extent.start for extent in snapshot.extents)
        snapshot.recut = max(0, sum(end - start for start, end in regions) - staged)
        fresh = [one for start, end in regions for one in self._cut_region(snapshot, start, end)]
        kept = [row for row in snapshot.rows if not _inside(row.offset, regions)]
        with self._fs.state.transaction() as tx:
            self._replace(tx, snapshot, regions, fresh, kept)
            return self._value(tx, snapshot, _runs(snapshot.size, kept, fresh))

    def _cut_region(self, snapshot: FileSnapshot, start: int, end: int) -> Iterator[_Fresh]:
        starts = [extent.start for extent in snapshot.extents]
        rows = [row for row in snapshot.rows if start <= row.offset < end]
        size = self.limits.size
        for offset in range(start, end, size):
            upto = min(offset + size, end)
            pieces = _joined(cut_pieces(snapshot.extents, starts, offset, upto))
            if all(piece.segment == ZEROS for piece in pieces):
                continue
            data = self._assemble(pieces, rows)
            length = upto - offset
            if data == _ZERO_WINDOW[:length] if length < MAX_CHUNK else data == _ZERO_WINDOW:
                continue
            namer = self._fs.state.namer
            identity, hashes = namer.chunk_id(data), hashes_of_pieces(namer, data)
            with self._fs.state.transaction() as tx:
                segment, position = (
                    (pieces[0].segment or 0, pieces[0].position)
                    if len(pieces) == 1 and pieces[0].segment is not None
                    else self._fs.journal.append(data, within_budget=False)
                )
                number = tx.chunks.add(CutRow(identity, length, segment, position, hashes))
            yield _Fresh(offset, length, number, identity)

    def _assemble(self, pieces: list[Piece], rows: list[BaseRow]) -> bytes:
        parts: list[bytes] = []
        for piece in pieces:
            if piece.segment is not None:
                parts.append(self._fs.content.read_staged(piece))
                continue
            at = piece.start
            for row in rows:
                if row.offset + row.length <= at or row.offset >= piece.end:
                    continue
                parts.append(bytes(row.offset - at) if row.offset > at else b"")
                at = max(at, row.offset)
                upto = min(row.offset + row.length, piece.end)
                parts.append(self._chunk(row.chunk)[at - row.offset : upto - row.offset])
                at = upto
            parts.append(bytes(piece.end - at))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _chunk(self, ref: ChunkRef) -> bytes:
        with self._fs.state.transaction() as tx:
            # The row is read again: the chunk may have been evicted since the snapshot.
            now = tx.chunks.get(ref.number)
            data = tx.chunks.read_whole(now)
        return data if data is not None else self._fetcher.fetch_one(now)

    def _replace(
        self,
        tx: Transaction,
        snapshot: FileSnapshot,
        regions: list[tuple[int, int]],
        fresh: list[_Fresh],
        kept: list[BaseRow],
    ) -> None:
        """Let the view show the chunks instead of the extents, unless the file was cut shorter since."""
        inode = snapshot.inode
        if inode.truncations != snapshot.truncations or (inode.orphan and not inode.handles):
            return
        parts = [(inode.ino, one.offset, one.length, one.chunk) for one in fresh]
        tx.contents.replace_parts(inode.ino, regions if snapshot.rows else (), parts)
        inode.stored = sum(row.length for row in kept) + sum(one.length for one in fresh)
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
        pages: list[Run] = []
        for start in range(0, len(runs), limits.runs_per_page):
            batch = runs[start : start + limits.runs_per_page]
            page = encode_runs(batch)
            identity = self._fs.state.namer.chunk_id(page)
            segment, position = self._fs.journal.append(page, within_budget=False)
            number = tx.chunks.add(CutRow(identity, len(page), segment, position))
            if not gone:
                contents.add_pages([(ino, number)])
            pages.append(Run(sum(run.length for run in batch), identity))
        return Content(snapshot.size, 1, pages).encode()


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


def _regions(snapshot: FileSnapshot, window: int) -> list[tuple[int, int]]:
    """Ranges to cut again, in order: whole windows of so many bytes, and whole rows where they cross a
    window's edge."""
    touched = [(extent.start, extent.end) for extent in snapshot.extents]
    touched += [
        (row.offset, row.offset + row.length) for row in snapshot.rows if row.length != row.chunk.length
    ]
    windows = [(start // window * window, -(-end // window) * window) for start, end in touched]
    widened = [_widen(start, end, snapshot.rows) for start, end in _merge(windows)]
    return [(start, min(end, snapshot.size)) for start, end in _merge(widened) if start < snapshot.size]


def _merge(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges, sorted; those that touch are joined."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def _widen(start: int, end: int, rows: list[BaseRow]) -> tuple[int, int]:
    """start..end, and the whole of the rows that cross its ends (rows never overlap each other)."""
    first = bisect_right(rows, start, key=lambda row: row.offset) - 1
    if first >= 0 and rows[first].offset + rows[first].length > start:
        start = rows[first].offset
    last = bisect_left(rows, end, key=lambda row: row.offset) - 1
    if last >= 0:
        end = max(end, rows[last].offset + rows[last].length)
    return start, end


def _inside(offset: int, regions: list[tuple[int, int]]) -> bool:
    index = bisect_right(regions, offset, key=lambda region: region[0]) - 1
    return index >= 0 and offset < regions[index][1]


def _runs(size: int, kept: list[BaseRow], fresh: list[_Fresh]) -> list[Run]:
    """The whole file as runs of chunks and holes."""
    parts = [(row.offset, row.length, row.chunk.id) for row in kept]
    parts += [(one.offset, one.length, one.id) for one in fresh]
    parts.sort()
    runs: list[Run] = []
    at = 0
    for offset, length, identity in parts:
        if offset > at:
            runs.append(Run(offset - at, None))
        runs.append(Run(length, identity))
        at = offset + length
    if at < size:
        runs.append(Run(size - at, None))
    return runs
