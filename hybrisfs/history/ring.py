"""A ring of intervals of equal length: what was counted in each of the last so many."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["COLUMNS", "Ring", "Row"]

_NEVER: Final = -1


class Row(NamedTuple):
    """What was counted of one cloud in an interval.

    Bytes up and down, requests that failed, small reads and writes that were answered and the seconds that
    these took, and the worst state, as `cloud.STATES` orders them.
    """

    up: float = 0.0
    down: float = 0.0
    failed: float = 0.0
    reads: float = 0.0
    read_seconds: float = 0.0
    writes: float = 0.0
    write_seconds: float = 0.0
    state: float = 0.0

    def plus(self, other: Row) -> Row:
        """Both together."""
        sums = Row(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))
        return sums._replace(state=max(self.state, other.state))


COLUMNS: Final = len(Row._fields)


class Ring:
    """The last `length` intervals of `step` seconds. Times are seconds since the epoch.

    An interval is numbered by how many there were since the epoch, and a slot knows which one it holds, so
    that gaps are known as such whatever the clock does.
    """

    def __init__(self, step: int, length: int) -> None:
        self.step = step
        self.length = length
        self._numbers = array("q", [_NEVER]) * length
        self._values = array("d", [0.0]) * (length * COLUMNS)

    def add(self, when: float, row: Row) -> None:
        """Count `row` in the interval that `when` lies in."""
        self.put(int(when // self.step), row)

    def put(self, number: int, row: Row) -> None:
        """Count `row` in an interval."""
        slot = number % self.length
        if self._numbers[slot] == number:
            row = self._row(slot).plus(row)
        self._numbers[slot] = number
        self._values[slot * COLUMNS : (slot + 1) * COLUMNS] = array("d", row)

    def rows(self, now: float) -> Iterator[Row | None]:
        """The whole intervals up to `now`, oldest first; None where nothing is known."""
        last = int(now // self.step)
        for number in range(last - self.length, last):
            slot = number % self.length
            yield self._row(slot) if self._numbers[slot] == number else None

    def known(self) -> Iterator[tuple[int, Row]]:
        """All intervals that something is known of, with their numbers."""
        for slot, number in enumerate(self._numbers):
            if number != _NEVER:
                yield number, self._row(slot)

    def _row(self, slot: int) -> Row:
        return Row(*self._values[slot * COLUMNS : (slot + 1) * COLUMNS])
