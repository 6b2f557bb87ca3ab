"""What operations on clouds, and single calls, are timed by: for how long they have been at a standstill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backends.pacing import Pacer
from hybrisfs.dispersal.throttle import StandingClock
from hybrisfs.environment import Environment

__all__ = ["SLOWEST", "Stopwatch", "WatchedPacer"]

# The slowest line on which a call may take as long as its bytes need is one ISDN channel, 64 kbit/s. Without
# such a floor a cloud that sends a byte now and then would hold an operation for ever.
SLOWEST: Final = 8 << 10  # bytes per second
# No object is much larger. Without this bound a listing could be made to go on for days.
_MOST: Final = 72 << 20  # bytes


class Stopwatch(StandingClock):
    """A clock that also tells for how long an operation, or a call, has been at a standstill. Thread-safe.

    That is the longer of two times: since something moved last, and since the beginning, less what all that
    has moved takes at `SLOWEST`. So a transfer that moves never stands still, however long it takes, and a
    trickle does not help.

    Of the bytes of one cloud only those count that exceed what an earlier call has moved. Otherwise a cloud
    would hold a read for ever that returns wrong bytes whenever it is asked again. And none count beyond what
    the largest object has.
    """

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self._most: dict[int, int] = {}
        self._began = self._last = self()

    def start(self) -> None:
        """It begins now, for the first time or again."""
        self._began = self._last = self()

    def moved(self, cloud: int, total: int) -> None:
        """A call to this cloud has moved so many bytes since it began."""
        now = self()
        counted = min(total, _MOST)
        with self._lock:
            if counted > self._most.get(cloud, 0):
                self._most[cloud] = counted
                self._last = now

    @property
    def has_moved(self) -> bool:
        """Whether anything has moved."""
        with self._lock:
            return bool(self._most)

    def standstill(self) -> float:
        """Return for how many seconds it has been at a standstill."""
        now = self()
        with self._lock:
            return max(now - self._last, now - self._began - sum(self._most.values()) / SLOWEST)


class WatchedPacer:
    """The `backends.pacing.Pacer` of a call to one cloud: it tells stopwatches what another one lets pass."""

    def __init__(self, pacer: Pacer, cloud: int, watches: Sequence[Stopwatch]) -> None:
        self._pacer = pacer
        self._cloud = cloud
        self._watches = watches
        self._total = 0

    @property
    def limited(self) -> bool:
        return self._pacer.limited

    def sending(self, count: int) -> float:
        held = self._pacer.sending(count)
        self._moved(count)
        return held

    def received(self, count: int) -> float:
        self._moved(count)
        return self._pacer.received(count)

    def _moved(self, count: int) -> None:
        self._total += count
        for watch in self._watches:
            watch.moved(self._cloud, self._total)
