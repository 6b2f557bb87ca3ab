"""All values that registers of the tree have, or had once, with the moments between which each was true.

They come from `register` and `past` together: a value that a register still has ends at no moment.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from hybrisfs.registers.values import Stamp
from hybrisfs.state.registers import PLACES, after

__all__ = [
    "FOREVER",
    "Interval",
    "intervals_of",
    "intervals_of_all",
    "intervals_with_prefix",
    "places_in_time",
]

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


def intervals_of(db: sqlite3.Connection, key: bytes) -> list[Interval]:
    """Those of one register."""
    return _intervals(db, "key = ?", (key,)).get(key, [])


def intervals_of_all(db: sqlite3.Connection, keys: Sequence[bytes]) -> dict[bytes, list[Interval]]:
    """Those of some hundred registers, by key; those without any left out."""
    return _intervals(db, f"key IN ({', '.join('?' * len(keys))})", keys)


def intervals_with_prefix(db: sqlite3.Connection, prefix: bytes) -> dict[bytes, list[Interval]]:
    """Those of the registers whose keys begin so, by key."""
    return _intervals(db, "key >= ? AND key < ?", (prefix, after(prefix)))


def places_in_time(db: sqlite3.Connection, beginning: bytes) -> dict[bytes, list[Interval]]:
    """Of place registers, by key, those whose values begin so."""
    end = after(beginning)
    if end is None:
        return _intervals(db, f"{PLACES} AND value >= ?", (beginning,))
    return _intervals(db, f"{PLACES} AND value >= ? AND value < ?", (beginning, end))


def _intervals(
    db: sqlite3.Connection, condition: str, arguments: Iterable[Any]
) -> dict[bytes, list[Interval]]:
    arguments = tuple(arguments)
    found: dict[bytes, list[Interval]] = {}
    for query in (_REGISTER, _PAST):
        for key, clock, branch, value, since, until in db.execute(query + condition, arguments):
            ends = None if until == FOREVER else until
            found.setdefault(key, []).append(Interval(Stamp(clock, branch), value, since, ends))
    return found
