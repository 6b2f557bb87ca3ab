"""Making room: evicting journal segments that hold nothing but cache.

The database forgets a segment durably before its file goes, so that after a crash nothing is believed to
be where it is not, and nothing that only a rolled-back transaction had on the clouds is lost.
"""

from __future__ import annotations

import enum
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from hybrisfs.stages import IDLE, Pause, Signals
from hybrisfs.state.journal import JournalFullError
from hybrisfs.state.pins import KeptChunk
from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced import (
    chunk_ranges,
    dirty_ranges,
    dirty_segments,
    is_segment_named,
    staged_ranges,
)
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.residency import CloudHealth

__all__ = ["Evictor", "RoomLimits", "Shortage"]

log = logging.getLogger(__name__)

_LOW_WATER: Final = 0.9
_THINNED_SECONDS: Final = 60.0  # for which a segment is believed to hold nothing but what is to be kept
_FORGET_BATCH: Final = 2000

_Ranges = list[tuple[int, int]]


class _Plan(Struct):
    """Segments to be removed, and ranges of others to be given back."""

    removed: list[int] = field(default_factory=list)
    holes: dict[int, _Ranges] = field(default_factory=dict)


class RoomLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    patience_seconds: float = 30.0
    """How long a writer waits while no room is made."""


class Shortage(enum.Enum):
    """Why programs cannot write."""

    DISK = "disk"
    """The disk has nothing left but the reserve, and no cache that could go."""
    CACHE = "cache"
    """The cache is full of what no cloud has yet."""


class Evictor:
    """Evicts least recently used segments when the cache is over its budget or the disk is short.

    Pinned content stays: the rest of its segments is punched out as holes when their turn comes. So does
    precious content, unless there is no other way to make room.
    """

    def __init__(self, fs: FileSystem, committer: Committer, signals: Signals, clouds: CloudHealth) -> None:
        self.limits = fs.environment.limits.of(RoomLimits)
        """They may be others at any moment."""
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._committer = committer
        self._signals = signals
        self._clouds = clouds
        self._punched: dict[int, _Ranges] = {}
        self._thinned: dict[int, tuple[int, float]] = {}  # generation of the pins; until when
        self._refused = 0  # bytes for which the last one who waited got no room; 0: there was some

    def shortage(self) -> Shortage | None:
        """Why nothing can be written now; None when it can be, as far as is known. From any thread."""
        journal = self._fs.journal
        if journal.free_bytes() < 0:
            return Shortage.DISK
        if self._refused and journal.fits(self._refused):
            self._refused = 0
        return Shortage.CACHE if self._refused else None

    def step(self) -> Pause:
        """Keep some room ahead of those who write."""
        journal = self._fs.journal
        excess = journal.bytes - int(journal.budget * _LOW_WATER)
        if journal.free_bytes() < 0:
            excess = max(excess, -journal.free_bytes())
        if excess > 0:
            try:
                self.evict(excess)
            except OSError as error:
                log.warning("cannot make room: %s", error)
        return IDLE

    def wait_for_room(self, length: int) -> bool:
        """Block until *length* more bytes fit, evicting and waiting for uploads; False when they never will.

        It gives up at once when no upload can make room, and after a while when no upload has made any.
        """
        fits = self._wait_for_room(length)
        self._refused = 0 if fits else length
        return fits

    def _wait_for_room(self, length: int) -> bool:
        last_progress, dirty = self._monotonic(), self._dirty_pieces()
        while not self._signals.stopping:
            journal = self._fs.journal
            if journal.fits(length) and journal.free_bytes() >= 0:
                return True
            try:
                if self.evict(length + max(0, -journal.free_bytes()), precious=True):
                    continue
            except OSError as error:
                log.warning("cannot make room: %s", error)
                return False
            now_dirty = self._dirty_pieces()
            if now_dirty < dirty:
                last_progress, dirty = self._monotonic(), now_dirty
            idle = self._monotonic() - last_progress
            if not self._clouds.can_upload() or idle > self.limits.patience_seconds:
                return False
            if not self._signals.pause(0.05):
                return False
        return False

    def _dirty_pieces(self) -> int:
        with self._fs.state.transaction():
            return self._fs.journal.dirty_pieces.total()

    def evict(self, wanted: int, *, shortage: bool = True, precious: bool = False) -> int:
        """Remove cache of at least *wanted* bytes if there is as much; the bytes removed.

        In a *shortage*, versions that have been overwritten before a cloud got them go as well; at last what
        is *precious*, if somebody waits for room. Raises OSError when the eviction cannot be committed.
        """
        with self._fs.state.transaction() as tx:
            plan = self._plan(tx, wanted, shortage, precious)
        return self._carry_out(plan)

    def _carry_out(self, plan: _Plan) -> int:
        """Remove what the database has forgotten; the bytes freed. Raises OSError."""
        if not plan.removed and not plan.holes:
            return 0
        try:
            self._committer.commit_now()
        except JournalFullError:
            plan = self._without_commit(plan)
            if not plan.removed:
                raise
        freed = 0
        with self._fs.state.transaction() as tx:
            journal, recorded = self._fs.journal, tx.recorded_segments()
            for number in plan.removed:
                # It may have been removed since the plan, or a chunk have been cut into it: then it stays.
                if (
                    number in journal
                    and number not in recorded
                    and not journal.dirty_pieces[number]
                    and not is_segment_named(tx, number)
                ):
                    freed += journal.remove(number)
            for number, dead in plan.holes.items():
                if number in journal:
                    freed += journal.punch(number, dead)
                    self._punched[number] = dead
        log.debug("evicted %d segments, thinned %d, %d bytes", len(plan.removed), len(plan.holes), freed)
        return freed

    def _plan(self, tx: Transaction, wanted: int, shortage: bool, precious: bool) -> _Plan:
        """Choose what goes, and let the database forget it."""
        plan = _Plan()
        self._fs.flush(tx)
        size = self._plan_clean(tx, plan, wanted)
        if size < wanted and shortage:
            tx.chunks.drop_unwanted()
            size += self._plan_clean(tx, plan, wanted - size)
        if size < wanted:
            self._fs.journal.seal_active()
            if not self._plan_holes(tx, plan) and precious:
                self._plan_clean(tx, plan, wanted - size, precious=True)
        return plan

    def _plan_clean(self, tx: Transaction, plan: _Plan, wanted: int, *, precious: bool = False) -> int:
        """Choose among the segments that hold only cache, *precious* cache included. Returns roughly the
        bytes freed."""
        fs, journal = self._fs, self._fs.journal
        size, removed = 0, list[int]()
        for number in journal.evictable():
            if size >= wanted:
                break
            thin = self._is_thin(number) and not precious
            if thin or number in plan.removed or number in plan.holes:
                continue
            kept = fs.pins.kept_in(tx, number, precious=precious)
            if kept:
                size += self._plan_thinning(tx, plan, number, kept)
            else:
                removed.append(number)
                size += journal.size_of(number)
        tx.chunks.forget_local(removed)
        plan.removed += removed
        return size

    def _is_thin(self, number: int) -> bool:
        generation, until = self._thinned.get(number, (-1, 0.0))
        return generation == self._fs.pins.generation and self._monotonic() < until

    def _plan_thinning(self, tx: Transaction, plan: _Plan, number: int, kept: Mapping[int, KeptChunk]) -> int:
        """Find what a segment holds besides pinned content. Returns roughly the bytes freed."""
        dead = self._fs.journal.dead_ranges(number, _ranges(kept.values()))
        punched = self._punched.get(number, [])
        if dead == punched:
            self._thinned[number] = (self._fs.pins.generation, self._monotonic() + _THINNED_SECONDS)
            return 0
        tx.chunks.forget_clean(number, kept)
        plan.holes[number] = dead
        return max(0, _length(dead) - _length(punched))

    def _plan_holes(self, tx: Transaction, plan: _Plan) -> bool:
        """Find what dirty segments hold besides the bytes that keep them dirty; False when it is nothing.

        The journal only grows at its end, so what is dead now and durably forgotten stays dead.
        """
        fs, found = self._fs, False
        live = self._staged(tx)
        for segment, position, length in dirty_ranges(tx):
            live[segment].append((position, position + length))
        for number in fs.journal.dirty():
            kept = fs.pins.kept_in(tx, number)
            dead = fs.journal.dead_ranges(number, live[number] + _ranges(kept.values()))
            if dead and dead != self._punched.get(number):
                tx.chunks.forget_clean(number, kept)
                plan.holes[number] = dead
                found = True
        return found

    def _staged(self, tx: Transaction) -> defaultdict[int, _Ranges]:
        """Where bytes lie that have not been cut into chunks yet, by segment."""
        live: defaultdict[int, _Ranges] = defaultdict(list)
        for extent in self._fs.being_chunked:
            live[extent.segment].append((extent.position, extent.position + extent.end - extent.start))
        for segment, position, length in staged_ranges(tx):
            live[segment].append((position, position + length))
        return live

    def _without_commit(self, plan: _Plan) -> _Plan:
        """What may go although the disk has no room left for the database to forget it: by the last commit
        the clouds have it, so after a crash it is found missing and fetched."""
        self._fs.state.make_durable()
        with self._fs.state.snapshot() as committed:
            needed = dirty_segments(committed)
        return _Plan(removed=[number for number in plan.removed if number not in needed])

    def drop_all(self) -> tuple[int, int]:
        """Forget every cached byte that the clouds hold; (bytes freed, bytes that had to stay)."""
        with self._fs.state.transaction():
            self._fs.journal.seal_active()
            self._fs.cache_generation += 1
            self._thinned.clear()
        freed = self.evict(1 << 62, shortage=False)
        return freed, self._fs.journal.bytes

    def evict_chunks(self, numbers: Sequence[int]) -> int:
        """Forget these chunks as far as the clouds hold them; how many bytes of content they were.

        Raises OSError when that cannot be committed.
        """
        forgotten, segments = 0, set[int]()
        for start in range(0, len(numbers), _FORGET_BATCH):
            with self._fs.state.transaction() as tx:
                size, where = tx.chunks.forget(numbers[start : start + _FORGET_BATCH])
            forgotten += size
            segments |= where
        with self._fs.state.transaction() as tx:
            self._fs.cache_generation += 1
            self._fs.flush(tx)
            self._fs.journal.seal_active()
            plan = self._plan_rest(tx, segments)
        self._carry_out(plan)
        return forgotten

    def _plan_rest(self, tx: Transaction, segments: Iterable[int]) -> _Plan:
        """Find the unneeded parts of segments of which chunks have been forgotten."""
        plan, live = _Plan(), self._staged(tx)
        for number in segments:
            if number not in self._fs.journal:
                continue
            live[number] += chunk_ranges(tx, number)
            if live[number] or self._fs.journal.dirty_pieces[number]:
                plan.holes[number] = self._fs.journal.dead_ranges(number, live[number])
            else:
                plan.removed.append(number)
        return plan


def _ranges(chunks: Iterable[KeptChunk]) -> _Ranges:
    return [(one.position, one.position + one.length) for one in chunks]


def _length(ranges: _Ranges) -> int:
    return sum(end - start for start, end in ranges)
