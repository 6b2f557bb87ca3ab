"""The registers of the tree as they were at a moment, read from a snapshot of the database.

A value counts when it had been written and not yet superseded at that moment. Where a register had only
values that have been dropped since, the last one before these stands for them: what is shown was there at the
moment or before, and nothing that came later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from hybrisfs.merge.names import Author
from hybrisfs.registers.tree import Attr, Place
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.registers import PLACES
from sync import VersionVector

__all__ = ["FOREVER", "Interval", "NothingUnsigned", "PastRegisters", "intervals", "prefix_end"]

FOREVER: Final = (1 << 63) - 1
"""Later than any moment."""
_MOMENT: Final = "ifnull((SELECT l.moment FROM log l WHERE l.branch = w.branch AND l.clock = r.clock), 0)"
_REGISTER: Final = (
    f"SELECT r.key, r.clock, w.branch, r.value, {_MOMENT}, {FOREVER} "
    "FROM register r JOIN writer w ON w.number = r.writer WHERE "
)
_PAST: Final = (
    "SELECT p.key, p.clock, w.branch, p.value, p.since, p.until "
    "FROM past p JOIN writer w ON w.number = p.writer WHERE "
)


class Interval(NamedTuple):
    """A value of a register and the moments from which and until which it was true; *until* None: still."""

    stamp: Stamp
    value: bytes | None
    since: int
    until: int | None

    @property
    def end(self) -> int:
        """`until`, `FOREVER` for what is still true."""
        return FOREVER if self.until is None else self.until


def prefix_end(prefix: bytes) -> bytes:
    """The least bytes above all that begin with *prefix*, which is not all 0xff."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,))


def intervals(
    db: sqlite3.Connection, condition: str, arguments: Iterable[Any]
) -> dict[bytes, list[Interval]]:
    """All values ever known of the registers that fulfil *condition* on `key` and `value`."""
    arguments = tuple(arguments)
    found: dict[bytes, list[Interval]] = {}
    for query in (_REGISTER, _PAST):
        for key, clock, branch, value, since, until in db.execute(query + condition, arguments):
            ends = None if until == FOREVER else until
            found.setdefault(key, []).append(Interval(Stamp(clock, branch), value, since, ends))
    return found


class NothingUnsigned:
    """The `resolver.Unsigned` of the past: all was signed."""

    def places(self, node: bytes, slots: Iterable[int], *, others: bool = True) -> dict[int, Place | None]:
        return {}

    def attr(self, node: bytes) -> Attr | None:
        return None

    def content(self, node: bytes) -> bool:
        return False

    def children(self, directory: bytes) -> bool:
        return False


class PastRegisters:
    """What registers held at *moment*, ns since the epoch. *db* is a snapshot."""

    def __init__(self, db: sqlite3.Connection, moment: int) -> None:
        self._db = db
        self._moment = moment

    def values(self, key: bytes) -> list[Value]:
        """The values of one register."""
        return self._then(intervals(self._db, "key = ?", (key,)).get(key, []))

    def with_prefix(self, prefix: bytes) -> dict[bytes, list[Value]]:
        """The registers whose keys begin with *prefix*."""
        found = intervals(self._db, "key >= ? AND key < ?", (prefix, prefix_end(prefix)))
        return {key: values for key, ends in found.items() if (values := self._then(ends))}

    def places_beginning(self, value: bytes) -> dict[bytes, list[Value]]:
        """Place registers that have had values which begin with *value* by then: these values, some of which
        may have been superseded."""
        if not value.rstrip(b"\xff"):
            found = intervals(self._db, f"{PLACES} AND value >= ?", (value,))
        else:
            found = intervals(self._db, f"{PLACES} AND value >= ? AND value < ?", (value, prefix_end(value)))
        then = {
            key: [Value(one.stamp, one.value) for one in ends if one.since <= self._moment]
            for key, ends in found.items()
        }
        return {key: values for key, values in then.items() if values}

    def _then(self, ends: Iterable[Interval]) -> list[Value]:
        begun = [one for one in ends if one.since <= self._moment]
        true = [one for one in begun if one.end > self._moment]
        if not true and begun:
            last = max(one.end for one in begun)
            true = [one for one in begun if one.end == last]
        return [Value(one.stamp, one.value) for one in true]

    def depends(self, later: Stamp, earlier: Stamp) -> bool:
        """Whether who wrote the one update had seen the other."""
        row = self._db.execute(
            "SELECT vector FROM log WHERE branch = ? AND clock = ?", (later.writer, later.clock)
        ).fetchone()
        return row is not None and VersionVector.decode(row[0])[earlier.writer] >= earlier.clock

    def author(self, stamp: Stamp) -> Author:
        """Who wrote an update, and when."""
        row = self._db.execute(
            "SELECT ifnull(m.name, ''), l.time, l.device FROM log l "
            "LEFT JOIN member m ON m.device = l.device WHERE l.branch = ? AND l.clock = ?",
            (stamp.writer, stamp.clock),
        ).fetchone()
        if row is None:
            return Author("?", 0)
        return Author(row[0] or row[2].hex()[:8], row[1])
