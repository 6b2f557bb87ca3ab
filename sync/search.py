"""Searching for the newest updates that two logs have in common (Depot 4.3), from the side that will send.

Every leaf of our tree of branches ends a path down to the device's first update. A side that has an update of
a path has all below it. So on each path the newest update that the other side has is found by asking about a
few points in the interval left, in steps that double from the tip at first and evenly spaced ones later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from sync.accepted import Known
from sync.messages import MAX_PROBES
from sync.update import Stamp
from sync.vector import VersionVector

__all__ = ["PrefixSearch", "SearchedLog"]

_POINTS = 16


@dataclass(slots=True)
class _Path:
    """The interval left on the path that ends in the update `tip` begins with."""

    tip: bytes
    low: int
    """The highest clock that they have, 0 when none is known."""
    high: int
    """The lowest clock that they have not, or one above the tip."""
    found: Stamp | None = None
    first: bool = True
    asked: list[Stamp] = field(default_factory=list)


class SearchedLog(Protocol):
    """The local log as the search reads it."""

    def tips(self) -> list[Known]:
        """The newest update of each branch that no other branch grows from."""

    def find(self, prefix: bytes) -> Known | None:
        """The accepted update whose hash begins so, if any."""

    def path(self, known: Known) -> list[tuple[bytes, int]]:
        """(branch, clock) of the update and of each fork point below it, newest first."""

    def newest_below(self, branch: bytes, clock: int) -> Known | None:
        """The newest update on a branch with at most this clock."""


class PrefixSearch:
    """One search, over the paths of `devices`; the other side is known to have what `covered` covers."""

    def __init__(self, log: SearchedLog, devices: Collection[bytes], covered: VersionVector) -> None:
        self._log = log
        self._paths: list[_Path] = []
        for tip in log.tips():
            if tip.device in devices:
                low = max((min(clock, covered[branch]) for branch, clock in log.path(tip)), default=0)
                self._paths.append(_Path(tip.stamp.prefix, low, tip.clock + 1))

    def probes(self) -> tuple[bytes, ...]:
        """The beginnings of the hashes to ask about next; none when the search is over."""
        left = [path for path in self._paths if path.high - path.low > 1]
        asked: list[bytes] = []
        for number, path in enumerate(left):
            room = (MAX_PROBES - len(asked)) // (len(left) - number)
            path.asked = list(self._points(path, min(room, _POINTS))) if room else []
            asked += [stamp.prefix for stamp in path.asked]
        return tuple(asked)

    def answered(self, known: list[bool]) -> None:
        """The answers to the last probes, in their order."""
        answers = iter(known)
        for path in self._paths:
            for stamp in path.asked:
                if next(answers):
                    if stamp.clock > path.low:
                        path.low, path.found = stamp.clock, stamp
                else:
                    path.high = min(path.high, stamp.clock)
            path.asked = []
            path.first = False

    def common(self) -> tuple[Stamp, ...]:
        """The newest update of each path that they said they have."""
        return tuple(path.found for path in self._paths if path.found)

    def _points(self, path: _Path, most: int) -> Iterator[Stamp]:
        """Updates in the interval, the newest first, at most `most` of them."""
        tip = self._log.find(path.tip)
        if tip is None:
            return
        last = path.high
        for clock in _clocks(path, most):
            if clock >= last:
                continue
            known = self._at(tip, clock)
            if known is None or known.clock <= path.low:
                return
            yield known.stamp
            last = known.clock

    def _at(self, tip: Known, clock: int) -> Known | None:
        """The newest update of the path with at most this clock."""
        for branch, end in self._log.path(tip):
            found = self._log.newest_below(branch, min(clock, end))
            if found:
                return found
        return None


def _clocks(path: _Path, most: int) -> Iterator[int]:
    """Clocks in the interval, falling; the highest always, as an update that they lack ends the interval."""
    top = path.high - 1
    if path.first:
        yield top
        for exponent in range(most - 1):
            yield top - (1 << 2 * exponent)
    else:
        for part in range(most):
            yield top - (top - path.low) * part // most
