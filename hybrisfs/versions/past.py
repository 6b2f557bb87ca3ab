"""The registers of the tree as they were at a moment, read from a snapshot of the database.

A value counts when it had been written and not yet superseded at that moment. Where a register had only
values that have been dropped since, the last one before these stands for them: what is shown was there at the
moment or before, and nothing that came later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from hybrisfs.merge.names import Author
from hybrisfs.registers.tree import Attr, Place
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.intervals import Interval, intervals_of, intervals_with_prefix, places_in_time
from hybrisfs.state.stored_log import signer_of, vector_of

__all__ = ["NothingUnsigned", "PastRegisters"]


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
        return self._then(intervals_of(self._db, key))

    def with_prefix(self, prefix: bytes) -> dict[bytes, list[Value]]:
        """The registers whose keys begin with *prefix*."""
        found = intervals_with_prefix(self._db, prefix)
        return {key: values for key, ends in found.items() if (values := self._then(ends))}

    def places_beginning(self, value: bytes) -> dict[bytes, list[Value]]:
        """Place registers that have had values which begin with *value* by then: these values, some of which
        may have been superseded."""
        found = places_in_time(self._db, value)
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
        vector = vector_of(self._db, later.writer, later.clock)
        return vector is not None and vector[earlier.writer] >= earlier.clock

    def author(self, stamp: Stamp) -> Author:
        """Who wrote an update, and when."""
        signer = signer_of(self._db, stamp.writer, stamp.clock)
        return Author("?", 0) if signer is None else Author(signer.shown_name, signer.time_ns)
