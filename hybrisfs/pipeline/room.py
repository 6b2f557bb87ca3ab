"""Making room: evicting journal segments that hold nothing but cache.

The database forgets a segment durably before its file goes, so that after a crash nothing is believed to
be where it is not, and nothing that only a rolled-back transaction had on the clouds is lost.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.pipeline.commit import Committer
from hybrisfs.pipeline.signals import Signals

__all__ = ["RoomMaker"]

log = logging.getLogger(__name__)

_LOW_WATER: Final = 0.9
_PATIENCE_SECONDS: Final = 30.0


class RoomMaker:
    """Evicts least recently used segments when the cache is over its budget or the disk is short."""

    def __init__(self, fs: FileSystem, committer: Committer, signals: Signals) -> None:
        self._fs = fs
        self._committer = committer
        self._signals = signals

    def run(self) -> None:
        """The thread's body: keep some room ahead of those who write."""
        while self._signals.pause(1.0):
            journal = self._fs.journal
            excess = journal.bytes - int(journal.budget * _LOW_WATER)
            if journal.free_bytes() < 0:
                excess = max(excess, -journal.free_bytes())
            if excess > 0:
                try:
                    self.evict(excess)
                except OSError as error:
                    log.warning("cannot make room: %s", error)

    def wait_for_room(self, length: int) -> bool:
        """Block until *length* more bytes fit, evicting and waiting for uploads; False when they never will.

        It gives up when nothing has left the pending set for a while: then the clouds are out of reach.
        """
        last_progress, pinned = time.monotonic(), self._pinned()
        while not self._signals.stopping:
            journal = self._fs.journal
            if journal.bytes + length <= journal.budget and journal.free_bytes() >= 0:
                return True
            try:
                if self.evict(length + max(0, -journal.free_bytes())):
                    continue
            except OSError as error:
                log.warning("cannot make room: %s", error)
                return False
            now_pinned = self._pinned()
            if now_pinned < pinned:
                last_progress, pinned = time.monotonic(), now_pinned
            if time.monotonic() - last_progress > _PATIENCE_SECONDS or not self._signals.pause(0.05):
                return False
        return False

    def _pinned(self) -> int:
        with self._fs.lock:
            return self._fs.journal.pins.total()

    def evict(self, wanted: int) -> int:
        """Remove cache of at least *wanted* bytes if there is as much; the bytes removed.

        Raises OSError when the eviction cannot be committed.
        """
        with self._fs.lock:
            journal = self._fs.journal
            chosen: list[int] = []
            size = 0
            for number in journal.evictable():
                if size >= wanted:
                    break
                chosen.append(number)
                size += journal.size_of(number)
            if not chosen:
                return 0
            self._fs.chunks.forget_local(chosen)
        self._committer.commit_now()
        freed = 0
        with self._fs.lock:
            for number in chosen:
                # A chunk may have been settled into it meanwhile: then it stays.
                if not journal.pins[number] and not self._named(number):
                    freed += journal.remove(number)
        log.debug("evicted %d segments, %d bytes", len(chosen), freed)
        return freed

    def _named(self, segment: int) -> bool:
        row = self._fs.db.execute("SELECT 1 FROM chunk WHERE segment = ? LIMIT 1", (segment,)).fetchone()
        return row is not None

    def drop_all(self) -> tuple[int, int]:
        """Forget every cached byte that the clouds hold; (bytes freed, bytes that had to stay)."""
        with self._fs.lock:
            self._fs.journal.seal_active()
            self._fs.cache_generation += 1
        freed = self.evict(1 << 62)
        return freed, self._fs.journal.bytes
