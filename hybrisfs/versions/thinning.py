"""Dropping versions that the retention rule keeps no longer, and the oldest when they take too much room.

The *time of the rule* says which these are. It is not the time of the clock: a clock that is set years ahead
would drop everything at once. It is never after the last update's moment by more than a day, nor does it
advance by more than six hours from one look to the next (there is one an hour). So a clock that is ahead
costs at most the versions that were superseded within the last day, and only after some hours, in which
`status` warns of it; versions at rungs stay. A clock that is behind drops nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from msgspec import Struct

from hybrisfs.registers.tree import attr_key, content_key
from hybrisfs.state.database import Snapshot
from hybrisfs.state.file_chunks import bytes_of_versions_alone
from hybrisfs.state.registers import some_latest_value
from hybrisfs.state.state import Transaction
from hybrisfs.state.stored_log import latest_moment
from hybrisfs.state.versions import (
    Outlived,
    OutlivedVersion,
    Removal,
    contents_by_end,
    count_versions,
    forget_outlived,
    intervals_of,
    removals,
    spans_of_versions,
)
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.versions.contents import ChunkLists, gather_kept, size_of
from hybrisfs.versions.retention import DAY_NS, RetentionRule

__all__ = ["Room", "Thinner", "removed_since"]

_ROWS: Final = 5000
_STEP: Final = DAY_NS // 4
_THINNED_UNTIL: Final = "ladder"  # the key of `meta`


class Room(Struct, frozen=True):
    """What is kept for the sake of versions alone: how many values of registers, and bytes of chunks."""

    values: int = 0
    bytes: int = 0


class Thinner:
    """Thins out the versions of one volume. One caller at a time, without the volume's lock."""

    def __init__(self, fs: FileSystem, rule: RetentionRule, lists: ChunkLists) -> None:
        self._fs = fs
        self.rule = rule
        self._lists = lists
        self.room = Room()

    def thin(self, now: int) -> int:
        """Let go of what is kept no longer at *now*, ns since the epoch by this device's clock; how many
        values of registers went. Raises ChunkUnavailable, OSError."""
        with self._fs.state.transaction() as tx:
            time = self._advance(tx, now)
        with self._fs.state.snapshot() as db:
            gone = self._drop(_outlived(db, self.rule, time))
        with self._fs.state.snapshot() as db:
            self.room = self._measure(db)
            excess = 0 if self.rule.room is None else self.room.bytes - self.rule.room
            if excess > 0:
                gone += self._drop(_oldest(db, excess))
        return gone

    def _advance(self, tx: Transaction, now: int) -> int:
        """The time of the rule from now on."""
        before: int = tx.meta(_THINNED_UNTIL)
        last = latest_moment(tx)
        bounded = min(now, last + DAY_NS)
        after = min(bounded, before + _STEP) if before else min(bounded, last)
        if after > before:
            tx.set_meta(_THINNED_UNTIL, after)
        return int(max(before, after))

    def _drop(self, outlived: Iterator[Outlived]) -> int:
        """Forget these, except those that have got another end since."""
        gone = 0
        while batch := list(islice(outlived, _ROWS)):
            with self._fs.state.transaction() as tx:
                forget_outlived(tx, batch)
            gone += len(batch)
        return gone

    def _measure(self, db: Snapshot) -> Room:
        gather_kept(db, self._lists)
        return Room(count_versions(db), bytes_of_versions_alone(db))


def _outlived(db: Snapshot, rule: RetentionRule, time: int) -> Iterator[Outlived]:
    """The versions that the rule keeps no longer."""
    for number, since, until in spans_of_versions(db):
        if rule.kept_until(since, until) <= time:
            yield OutlivedVersion(number, until)
    for removal in removals(db):
        node, moment = removal
        if rule.kept_until(removed_since(db, node, moment), moment) <= time:
            yield removal


def removed_since(db: Snapshot, node: bytes, moment: int) -> int:
    """Since when a node that was removed at *moment* had been as it was then: the content of a file, the
    attributes of what has none."""
    for key in (content_key(node), attr_key(node)):
        last = [one for one in intervals_of(db, key) if one.until is None]
        if last:
            return min(one.since for one in last)
    return moment


def _oldest(db: Snapshot, excess: int) -> Iterator[Outlived]:
    """The contents that were superseded or removed longest ago, of *excess* bytes at least if there is as
    much. Bytes that several of them share are counted for each, so that it takes some looks to get there."""
    left = excess
    for outlived, value in contents_by_end(db):
        if left <= 0:
            return
        if isinstance(outlived, Removal):
            value = some_latest_value(db, content_key(outlived.node))
        left -= size_of(value)
        yield outlived
