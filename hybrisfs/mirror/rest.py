"""Which files are at rest: not being written just now, so that no half of them is taken.

`Rest` is sans-IO: it gets what was seen, and the time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from hybrisfs.merge.names import Author, conflict_name
from hybrisfs.mirror.folder import Care
from hybrisfs.mirror.watch import Watcher

__all__ = ["Rest", "WatchedCare"]

_LONG_AGO: Final = 5.0  # seconds; what changed before that need not be watched first
_OVERDUE: Final = 30.0  # seconds after which a file that never rests is taken as it is


@dataclass(slots=True)
class _Recent:
    first: float
    since: float
    stamp: bytes
    rested: bool = False


class Rest:
    """Looks at files that changed a moment ago. A file counts as finished after *quiet* seconds
    without a change."""

    def __init__(self, quiet: float) -> None:
        self._quiet = quiet
        self._recent: dict[bytes, _Recent] = {}

    def is_at_rest(self, path: bytes, stamp: bytes, age: float, *, writing: bool, now: float) -> bool:
        """Whether the file may be taken. *age*: seconds since its last change by the system's clock, which
        may be wrong; *writing*: a program is known to have it open for writing; *now*: seconds, monotonic."""
        long_ago = age >= _LONG_AGO and not writing
        one = self._recent.get(path)
        if one is None or long_ago:
            self._recent.pop(path, None)
            if not long_ago:
                self._recent[path] = _Recent(now, now, stamp)
            return long_ago
        if stamp != one.stamp:
            one.stamp, one.since, one.rested = stamp, now, False
        if not one.rested:
            quiet = now - one.since >= self._quiet and not writing
            one.rested = quiet or now - one.first >= _OVERDUE
        if one.rested:
            one.first = now
        return one.rested

    def forget(self) -> None:
        """Nothing is known any more: the folder was away."""
        self._recent.clear()


class WatchedCare(Care):
    """Takes what is at rest, and watches each directory before it is listed."""

    def __init__(self, watcher: Watcher, rest: Rest, device: str) -> None:
        self._watcher = watcher
        self._rest = rest
        self._device = device

    def rests(self, path: bytes, stamp: bytes, changed: int) -> bool:
        age = (time.time_ns() - changed) / 1e9
        writing = self._watcher.is_being_written(path)
        return self._rest.is_at_rest(path, stamp, age, writing=writing, now=time.monotonic())

    def entering(self, path: bytes) -> None:
        self._watcher.cover(path)

    def conflict_name(self, name: bytes, number: int) -> bytes:
        return conflict_name(name, Author(self._device, time.time_ns()), number)
