"""The journal: append-only segment files that hold file bytes in clear.

It is staging area and cache in one. What programs write is appended here and is read back from here
until it has been cut into chunks; a chunk's bytes then simply stay where they were written, first
because no cloud has them yet, later as cache. Nothing is copied when its role changes.

A segment is *dirty* while something in it is on no cloud as far as is known here: an extent of a file, or
a chunk without a pack. Only clean segments are ever removed, so what is not on the clouds is not
evictable. Where room is short, the rest of a dirty segment is given back to the disk as a hole.

Space: `append` refuses with ENOSPC when the budget is used up, or when the disk has less than the reserve
left (SQLite needs room to commit what has been accepted): the error belongs to the write that exceeds,
never to a later one. The disk is asked for blocks in steps of 1 MiB, and gets back what is not used: left to
itself, XFS takes for a file that grows as much again, at one blow, which may be more than the reserve.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

from msgspec import Struct

from hybrisfs.environment import Environment, make_directory, sync_directory
from hybrisfs.state.redo import Range
from sync.codec import Buffer

__all__ = ["ACTIVE_SEGMENT_SIZE", "RESERVE", "Journal", "JournalFullError", "JournalLimits", "Segment"]

log = logging.getLogger(__name__)

ACTIVE_SEGMENT_SIZE: Final = 32 << 20
RESERVE: Final = 64 << 20
_SPACE_CHECK_BYTES: Final = 1 << 20
_STEP: Final = 1 << 20
_MOST_RECORDED: Final = 64 << 10  # bytes; writing more than that a second time costs more than a sync
_MOST_RANGES: Final = 64
_KEEP_SIZE: Final = 0x01  # FALLOC_FL_KEEP_SIZE
_PUNCH_HOLE: Final = _KEEP_SIZE | 0x02  # FALLOC_FL_PUNCH_HOLE
_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


class JournalLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    segment_size: int = ACTIVE_SEGMENT_SIZE
    block: int = 4096
    """Bytes that the disk gives and takes back at a time."""


class JournalFullError(OSError):
    """No room for more bytes. `budget` tells whether it is our own limit or the disk's."""

    def __init__(self, message: str, *, budget: bool) -> None:
        super().__init__(errno.ENOSPC, message)
        self.budget = budget


class Segment:
    """One segment file. The descriptor lives as long as a reader needs it."""

    __slots__ = ("block", "descriptor", "number", "path", "requested", "sealed", "size", "stored", "used_at")

    def __init__(self, number: int, path: Path, block: int, *, create: bool) -> None:
        self.number = number
        self.path = path
        self.block = block
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        self.descriptor = os.open(path, flags, 0o600)
        self.size = os.fstat(self.descriptor).st_size  # where it is appended to
        # What it takes of the disk: its blocks less the holes.
        self.stored = min(_in_blocks(self.size, block), _allocated(self.descriptor))
        self.used_at = 0
        self.requested = self.size  # up to where the disk has been asked for blocks
        self.sealed = not create  # never appended to again

    def allocate(self, end: int, most: int) -> None:
        """Have the disk give the blocks up to *end*, and some ahead, up to *most*, for what comes next."""
        if end > self.requested:
            ahead = max(end, min(-(-end // _STEP) * _STEP, most))
            # Not every disk can, and a full one cannot: whether the bytes find room is for the write to say.
            _libc.fallocate(self.descriptor, _KEEP_SIZE, self.requested, ahead - self.requested)
            self.requested = ahead

    def trim(self) -> None:
        """Give back disk space for bytes that will not come. The bytes that are there have been synced."""
        if self.sealed and _allocated(self.descriptor) > _in_blocks(self.size, self.block):
            os.ftruncate(self.descriptor, self.size)

    def __del__(self) -> None:
        descriptor = getattr(self, "descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


class _Written:
    """What was written since a moment, as far as it is little."""

    __slots__ = ("is_much", "ranges", "size")

    def __init__(self) -> None:
        self.ranges: list[Range] = []
        """Each write, with its bytes: to read them again costs more than to keep so few."""
        self.size = 0
        self.is_much = False
        """It is no longer known what: only a sync makes it durable."""

    def add(self, segment: int, position: int, data: Buffer) -> None:
        self.size += len(data)
        if self.size > _MOST_RECORDED or len(self.ranges) >= _MOST_RANGES:
            self.ranges.clear()
            self.is_much = True
        else:
            self.ranges.append((segment, position, bytes(data)))


class Journal:
    """The segments of one volume, in one directory.

    The volume's lock serialises everything that changes the journal; `read` may be called by anyone.
    """

    def __init__(
        self,
        directory: Path,
        environment: Environment,
        *,
        budget: int,
    ) -> None:
        self.directory = directory
        self._environment = environment
        self.budget = budget
        self.dirty_pieces: Counter[int] = Counter()
        """How many extents and chunks keep each segment dirty."""
        limits = environment.limits.of(JournalLimits)
        self.segment_size = limits.segment_size
        """Bytes after which the next segment begins."""
        self._block = limits.block
        self._segments: dict[int, Segment] = {}
        self._unsynced: dict[int, Segment] = {}
        self._unsynced_names = False
        self._written = _Written()  # since the last sync began, or the last record
        self._syncing = _Written()  # before that; a sync of it is under way
        self._unsynced_lock = threading.Lock()
        self._sync_lock = threading.Lock()
        self._failure: OSError | None = None
        self._active: Segment | None = None
        self._ticks = 0
        self._unchecked = _SPACE_CHECK_BYTES
        self.bytes = 0
        make_directory(directory, environment)
        for path in directory.iterdir():
            if path.suffix == ".segment" and path.stem.isdigit():
                segment = Segment(int(path.stem), path, self._block, create=False)
                self._segments[segment.number] = segment
                self.bytes += segment.stored
        # What was written by a process that was killed may not have been synced.
        self._unsynced.update(self._segments)
        # A segment that a crash interrupted is never appended to again.
        self._next = max(self._segments, default=0) + 1

    # -- writing ---------------------------------------------------------------------------------

    def append(self, data: Buffer, *, within_budget: bool = True) -> tuple[int, int]:
        """Store *data*; return (segment, position). Raises JournalFullError, leaving nothing behind.

        What has been accepted before is put into order even beyond the budget: that is how room becomes free.
        """
        length = len(data)
        self._require_sound()
        self._require_room(length, within_budget)
        active = self._active
        if active is None or active.size + length > self.segment_size:
            active = self._open_next()
        position = active.size
        room = max(0, self.budget - self.bytes)
        active.allocate(position + length, min(self.segment_size, position + room))
        _write_all(active.descriptor, data, position)
        active.size = position + length
        block = self._block
        grown = _in_blocks(active.size, block) - _in_blocks(position, block)
        active.stored += grown
        self.bytes += grown
        self._note_written(active, position, data)
        return active.number, position

    def overwrite(self, segment: int, position: int, data: Buffer) -> None:
        """Replace bytes to which nothing else refers."""
        self._require_sound()
        target = self._segments[segment]
        _write_all(target.descriptor, data, position)
        self._note_written(target, position, data)

    def _note_written(self, segment: Segment, position: int, data: Buffer) -> None:
        with self._unsynced_lock:
            self._unsynced[segment.number] = segment
            if not self._written.is_much:
                self._written.add(segment.number, position, data)

    @property
    def failure(self) -> OSError | None:
        """Why nothing is taken any more, see `fail`."""
        return self._failure

    def fail(self, error: OSError) -> None:
        """Take nothing more: it could not be committed, and programs that never sync would not notice."""
        self._failure = error

    def _require_sound(self) -> None:
        if self._failure is not None:
            raise OSError(self._failure.errno or errno.EIO, str(self._failure))

    def fits(self, length: int) -> bool:
        """Whether the budget allows for so many bytes more."""
        return self.bytes + _in_blocks(length, self._block) <= self.budget

    def _require_room(self, length: int, within_budget: bool) -> None:
        if within_budget and not self.fits(length):
            raise JournalFullError(
                f"the cache budget of {self.budget} bytes is used up by files not yet on the clouds",
                budget=True,
            )
        self._unchecked += length
        if self._unchecked >= _SPACE_CHECK_BYTES:
            self.require_free_space()
            self._unchecked = 0

    def require_free_space(self, reserve: int = RESERVE) -> None:
        """Raise JournalFullError when the disk has less than *reserve* left, see `free_bytes`."""
        if self.free_bytes(reserve) < 0:
            self._unchecked = _SPACE_CHECK_BYTES
            raise JournalFullError(f"the disk that holds {self.directory} is full", budget=False)

    def free_bytes(self, reserve: int = RESERVE) -> int:
        """The bytes that the disk can take beyond *reserve*; below 0 when the reserve is touched.

        A disk of less than 1 GiB keeps only a part of the reserve: that of its size which the reserve
        is of 1 GiB.
        """
        facts = self._environment.statvfs(self.directory)
        scaled = reserve * min(facts.f_frsize * facts.f_blocks, 1 << 30) >> 30
        return facts.f_frsize * facts.f_bavail - scaled

    def begin_above(self, number: int) -> None:
        """The database still knows a segment with this number, which must not come to mean other bytes, even
        if its file is lost."""
        self._next = max(self._next, number + 1)

    def _open_next(self) -> Segment:
        self.seal_active()
        # The same goes for those that extents name.
        number = max(self._next, max(self.dirty_pieces, default=0) + 1)
        path = self.directory / f"{number:08d}.segment"
        try:
            segment = Segment(number, path, self._block, create=True)
        except OSError as error:  # it may be out of inodes, too
            _require_disk(error)
            raise
        self._next = number + 1
        self._segments[number] = segment
        self._active = segment
        with self._unsynced_lock:
            self._unsynced_names = True
            self._written.is_much = True  # of a file that may have no name after a power cut
        self._touch(segment)
        return segment

    def sync(self) -> None:
        """Make everything appended so far survive a power cut. May be called without the lock.

        Raises OSError, and ever after: what a failed sync has lost, a later one does not bring back.
        """
        with self._sync_lock:  # a caller that finds nothing left to sync must know that it has been synced
            self._require_sound()
            with self._unsynced_lock:
                batch, names = list(self._unsynced.values()), self._unsynced_names
                self._unsynced.clear()
                self._unsynced_names = False
                self._syncing, self._written = self._written, _Written()
            try:
                for segment in batch:
                    self._environment.fdatasync(segment.descriptor)
                    segment.trim()
                if names:
                    sync_directory(self.directory, self._environment)
            except OSError as error:
                self.fail(error)
                raise
            with self._unsynced_lock:
                self._syncing = _Written()

    def unrecorded(self) -> list[Range] | None:
        """What has been written and is durable neither by a sync nor by a record; None when it is too much
        for a record."""
        with self._unsynced_lock:
            written = [self._syncing, self._written]
        if any(one.is_much for one in written):
            return None
        return [one for some in written for one in some.ranges if one[0] in self._segments]

    def note_recorded(self) -> None:
        """All that `unrecorded` has returned is in a record."""
        with self._unsynced_lock:
            self._syncing, self._written = _Written(), _Written()

    def restore(self, ranges: Iterable[Range]) -> None:
        """Write ranges of a record where they were written before a crash. Segments that are gone since are
        not needed. Raises OSError."""
        for number, position, data in ranges:
            segment = self._segments.get(number)
            if segment is None or os.pread(segment.descriptor, len(data), position) == data:
                continue
            _write_all(segment.descriptor, data, position)
            segment.size = max(segment.size, position + len(data))
            self.bytes -= segment.stored
            segment.stored = min(_in_blocks(segment.size, self._block), _allocated(segment.descriptor))
            self.bytes += segment.stored

    # -- reading ---------------------------------------------------------------------------------

    def read(self, segment: int, position: int, length: int) -> bytes | None:
        """Exactly *length* bytes, or None when the segment is gone or too short."""
        source = self._segments.get(segment)
        if source is None:
            return None
        self._touch(source)
        data = os.pread(source.descriptor, length, position)
        if len(data) != length:
            return None
        return data

    def read_all(self, places: Iterable[tuple[int, int, int]]) -> list[bytes | None]:
        """`read` of several places, given as (segment, position, length); what lies side by side is read at
        once. Raises OSError when one of them cannot be read."""
        found: list[bytes | None] = []
        for segment, position, lengths in _side_by_side(places):
            data = self.read(segment, position, sum(lengths))
            borders = pairwise(accumulate(lengths, initial=0))
            if data is None and len(lengths) > 1:  # the first of them may be there
                found += [self.read(segment, position + start, end - start) for start, end in borders]
            elif data is None or len(lengths) == 1:
                found.append(data)
            else:
                found += [data[start:end] for start, end in borders]
        return found

    def _touch(self, segment: Segment) -> None:
        self._ticks += 1
        segment.used_at = self._ticks

    # -- eviction --------------------------------------------------------------------------------

    def evictable(self) -> list[int]:
        """Clean segments that are not being written, least recently used first."""
        return [
            segment.number
            for segment in sorted(self._segments.values(), key=lambda one: one.used_at)
            if segment is not self._active and not self.dirty_pieces[segment.number]
        ]

    def seal_active(self) -> None:
        """Append to a new segment from now on. The next `sync` trims this one."""
        if self._active is not None:
            self._active.sealed = True
            with self._unsynced_lock:
                self._unsynced[self._active.number] = self._active
            self._active = None

    def size_of(self, segment: int) -> int:
        """Bytes of disk that removing it frees."""
        return self._segments[segment].stored

    def numbers(self) -> set[int]:
        return set(self._segments)

    def __contains__(self, segment: int) -> bool:
        return segment in self._segments

    def remove(self, segment: int) -> int:
        """Delete a clean segment; its size. The database must no longer name it, durably."""
        if self.dirty_pieces[segment]:
            raise ValueError(f"segment {segment} is dirty")
        gone = self._segments.pop(segment)
        if self._active is gone:
            self._active = None
        with self._unsynced_lock:
            self._unsynced.pop(segment, None)
        self.bytes -= gone.stored
        # XFS gives the blocks of an unlinked file back later, and eviction would see no free space.
        os.ftruncate(gone.descriptor, 0)
        gone.path.unlink(missing_ok=True)
        return gone.stored

    def dirty(self) -> list[int]:
        """Segments that cannot be removed, least recently used first; none of them is being written."""
        return [
            segment.number
            for segment in sorted(self._segments.values(), key=lambda one: one.used_at)
            if segment is not self._active and self.dirty_pieces[segment.number]
        ]

    def dead_ranges(self, segment: int, live: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """The whole blocks of a segment outside the *live* ranges, as (start, end)."""
        block = self._block
        dead: list[tuple[int, int]] = []
        at = 0
        end = self._segments[segment].size
        for start, stop in [*sorted(live), (end, end)]:
            first, last = -(-at // block) * block, start // block * block
            if first < last:
                dead.append((first, last))
            at = max(at, stop)
        return dead

    def punch(self, segment: int, dead: Iterable[tuple[int, int]]) -> int:
        """Give the blocks of *dead* ranges back to the disk; the bytes freed.

        The database must no longer name them, durably.
        """
        target = self._segments[segment]
        freed = 0
        for start, end in dead:
            held = _data_within(target.descriptor, start, end)
            if _libc.fallocate(target.descriptor, _PUNCH_HOLE, start, end - start):
                log.debug("no holes in %s: %s", target.path, os.strerror(ctypes.get_errno()))
                break
            freed += held
        freed = min(target.stored, freed)
        target.stored -= freed
        self.bytes -= freed
        return freed

    def close(self) -> None:
        self.seal_active()
        self.sync()
        self._segments.clear()


def _side_by_side(places: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, list[int]]]:
    """The same places, as (segment, position, lengths): the first of those that follow each other, and how
    long each is."""
    lengths: list[int] = []
    where = upto = 0, 0
    for segment, position, length in places:
        if lengths and upto != (segment, position):
            yield *where, lengths
            lengths = []
        if not lengths:
            where = segment, position
        lengths.append(length)
        upto = segment, position + length
    if lengths:
        yield *where, lengths


def _in_blocks(size: int, block: int) -> int:
    """The bytes of the blocks that so many bytes fill or begin."""
    return -(-size // block) * block


def _data_within(descriptor: int, start: int, end: int) -> int:
    """Bytes of a range of whole blocks that are no holes. What a file takes of the disk is not a measure of
    that: the blocks in which ext4 keeps where the others are come and go with the holes."""
    total = 0
    with contextlib.suppress(OSError):  # ENXIO: there is no data from there on
        while start < end:
            first = os.lseek(descriptor, start, os.SEEK_DATA)
            start = os.lseek(descriptor, first, os.SEEK_HOLE)
            total += max(0, min(start, end) - first)
    return total


def _allocated(descriptor: int) -> int:
    """Bytes of disk that an open file takes."""
    return os.fstat(descriptor).st_blocks * 512


def _write_all(descriptor: int, data: Buffer, position: int) -> None:
    try:
        done = os.pwrite(descriptor, data, position)
        while done < len(data):
            done += os.pwrite(descriptor, memoryview(data)[done:], position + done)
    except OSError as error:
        _require_disk(error)
        raise


def _require_disk(error: OSError) -> None:
    """Raises JournalFullError if this comes of a full disk."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        raise JournalFullError("the local disk is full", budget=False) from error
