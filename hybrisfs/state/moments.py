"""When an update counts as signed: the time that its writer says, as far as it can be believed.

People tell versions apart by time, and clocks are set wrong. So the *moment* of an update is never before
that of any update which it depends on: what supersedes something came after it, whatever the clock said. And
a time in the future is not believed: else a single wrong clock would drag along all that comes after; it
counts as that of its causes. All devices find the same moment as long as their clocks are right within
`TOLERANCE_NS`. Where one is ahead by more, what it accepts until that time, and all that depends on it, has
other moments on that device than on the others. Nothing but dates depends on moments.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Final

from hybrisfs.environment import Environment
from sync import VersionVector

__all__ = ["TOLERANCE_NS", "Moments", "credible", "latest"]

TOLERANCE_NS: Final = 3600 * 1_000_000_000
"""How far ahead of this device's clock a time may be."""
_REMEMBERED: Final = 2048
_EARLIEST: Final = 1
_LATEST: Final = (1 << 63) - 1  # as SQLite stores it


def latest(causes: Iterable[int]) -> int:
    """The last of the moments of what an update depends on; 0 when there are none."""
    return max(causes, default=0)


def credible(time_ns: int, causes: int, now_ns: int) -> int:
    """The moment of an update signed at *time_ns*, the last of whose causes has the moment *causes*.

    All are ns since the epoch; at least 1. *now_ns*: this device's clock.
    """
    if time_ns > now_ns + TOLERANCE_NS:
        time_ns = causes or now_ns
    return min(max(time_ns, causes, _EARLIEST), _LATEST)


class Moments:
    """The moments of a log's updates. *read* runs a query on all that is in the log by now."""

    def __init__(
        self, read: Callable[[str, tuple[object, ...]], sqlite3.Cursor], environment: Environment
    ) -> None:
        self._read = read
        self._time_ns = environment.time_ns
        self._recent: dict[tuple[bytes, int], int] = {}  # by branch and clock
        self._before: dict[tuple[bytes, int], int] = {}  # what was remembered before these

    def clear(self) -> None:
        """Updates have been taken back, or have other names."""
        self._recent.clear()
        self._before.clear()

    def of(self, branch: bytes, clock: int) -> int:
        """The moment of an update, ns since the epoch; 0 when there is no such one."""
        entry = branch, clock
        found = self._recent.get(entry)
        if found is None:
            found = self._before.get(entry)
            if found is None:
                query = "SELECT moment FROM log WHERE branch = ? AND clock = ?"
                row = self._read(query, entry).fetchone()
                found = row[0] if row else 0
            self._remember(entry, found)
        return found

    def date(self, branch: bytes, clock: int, time_ns: int, causes: VersionVector) -> int:
        """The moment of an update that is about to be stored, signed at *time_ns* by its writer's clock."""
        before = latest([self._recent.get(entry) or self.of(*entry) for entry in causes.items()])
        moment = credible(time_ns, before, self._time_ns())
        self._remember((branch, clock), moment)
        return moment

    def _remember(self, entry: tuple[bytes, int], moment: int) -> None:
        if len(self._recent) >= _REMEMBERED:
            self._before, self._recent = self._recent, {}
        self._recent[entry] = moment
