"""One transaction of the metadata store, which carries the changes of many clients (group commit).

Conditions are checked one client after the other, against what the clients before it have changed; what they
change is written in few statements at the end.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from hybrisfs.kv.errors import ContainerExistsError, ContainerInUseError, NoSuchContainerError
from hybrisfs.kv.recent import Place, RecentEntries
from hybrisfs.kv.record import TOMBSTONE_TAG, KeyMetadata

__all__ = ["Action", "Change", "Owed", "Transaction"]


class Change(NamedTuple):
    """A new entry of a key, to be made when its timestamp is higher than that of the one there."""

    place: Place
    entry: KeyMetadata


class Owed(NamedTuple):
    """A write that a cloud has yet to delete, and how many names its objects have."""

    cloud: int
    write: int
    names: int


class Transaction:
    """What the clients of one group commit do. Used by the thread that writes."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        recent: RecentEntries,
        containers: dict[str, int],
        owing: Mapping[int, int],
    ) -> None:
        self._db = connection
        self._recent = recent
        self.containers = containers
        self._numbers = set(containers.values())
        self.owing = dict(owing)
        self.entries: dict[Place, KeyMetadata] = {}
        self._unwritten: dict[Place, KeyMetadata] = {}
        self.highest_write = 0  # of those that it records
        self._garbage: dict[int, int] = {}
        self._not_garbage: list[tuple[int]] = []
        self.held = Counter[int]()  # by how much the number of records that name a cloud changes

    def entry(self, place: Place) -> KeyMetadata | None:
        """The entry as this transaction has it so far."""
        entry = self.entries.get(place)
        if entry is not None:
            return entry
        try:
            return self._recent.find(place)
        except KeyError:
            row = self._db.execute(
                "SELECT record FROM entry WHERE container = ? AND key = ?", place
            ).fetchone()
            return None if row is None else KeyMetadata.decode(row[0])

    def intend(self, writes: Sequence[tuple[int, int]]) -> None:
        """Objects of these writes, each with its number of names, are about to go to the clouds."""
        self._garbage.update(writes)
        self.highest_write = max(self.highest_write, *(write for write, _ in writes))

    def skip_to(self, write: int) -> None:
        """Record that all numbers up to this one are in use."""
        self.highest_write = max(self.highest_write, write)

    def update(self, changes: Sequence[Change]) -> bool:
        """Make all changes if each has a higher timestamp than what is there, else none.

        Returns whether they were made. Raises NoSuchContainerError.
        """
        before = []
        for place, entry in changes:
            if place[0] not in self._numbers:
                raise NoSuchContainerError(None, self.containers)
            before.append(self.entry(place))
            if not entry.newer_than(before[-1]):
                return False
        for (place, entry), old in zip(changes, before, strict=True):
            self._replace(place, old, entry)
        return True

    def move(self, place: Place, old: KeyMetadata, new: KeyMetadata) -> bool:
        """Have a key name other objects with the same value, if its entry is *old* still; whether it was."""
        if place[0] not in self._numbers or self.entry(place) != old:
            return False
        self._replace(place, old, new)
        return True

    def _replace(self, place: Place, old: KeyMetadata | None, new: KeyMetadata) -> None:
        self.entries[place] = self._unwritten[place] = new
        self.highest_write = max(self.highest_write, new.objects)
        if new.live:
            self._not_garbage.append((new.objects,))
            self._garbage.pop(new.objects, None)
        if old is not None and old.live:
            self._garbage[old.objects] = old.names
        before = old.placement if old is not None else ()
        if new.placement != before:
            self.held.update(new.placement)
            self.held.subtract(before)

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""
        if name in self.containers:
            raise ContainerExistsError(name)
        number = self._db.execute("INSERT INTO container (name) VALUES (?)", (name,)).lastrowid
        assert number is not None
        self.containers = {**self.containers, name: number}
        self._numbers.add(number)

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys."""
        number = self.containers.get(name)
        if number is None:
            raise NoSuchContainerError(name, self.containers)
        self.write_out()
        live = self._db.execute(
            "SELECT 1 FROM entry WHERE container = ? AND substr(record, 1, 1) <> ? LIMIT 1",
            (number, bytes((TOMBSTONE_TAG,))),
        ).fetchone()
        if live is not None:
            raise ContainerInUseError(name)
        self._db.execute("DELETE FROM entry WHERE container = ?", (number,))
        self._db.execute("DELETE FROM container WHERE number = ?", (number,))
        self.containers = {key: value for key, value in self.containers.items() if key != name}
        self._numbers.discard(number)

    def forget_garbage(self, writes: Sequence[int], owed: Sequence[Owed]) -> None:
        """All clouds have deleted these writes but those that owe it."""
        self._db.executemany("INSERT OR REPLACE INTO owed_deletion VALUES (?, ?, ?)", owed)
        self._db.executemany("DELETE FROM garbage WHERE write = ?", [(write,) for write in writes])
        for cloud in {one.cloud for one in owed} - self.owing.keys():
            self.owing[cloud] = int(time.time())
            self._db.execute("INSERT INTO owing VALUES (?, ?)", (cloud, self.owing[cloud]))

    def forget_owed(self, deletions: Sequence[Owed]) -> None:
        """These clouds have deleted now what they owed."""
        self._db.executemany(
            "DELETE FROM owed_deletion WHERE cloud = ? AND write = ?",
            [(one.cloud, one.write) for one in deletions],
        )
        for cloud in {one.cloud for one in deletions} & self.owing.keys():
            left = self._db.execute("SELECT 1 FROM owed_deletion WHERE cloud = ? LIMIT 1", (cloud,))
            if left.fetchone() is None:
                self._db.execute("DELETE FROM owing WHERE cloud = ?", (cloud,))
                del self.owing[cloud]

    def write_out(self) -> None:
        """Bring everything into SQLite's transaction."""
        if self._not_garbage:
            self._db.executemany("DELETE FROM garbage WHERE write = ?", self._not_garbage)
            self._not_garbage.clear()
        if self._garbage:
            self._db.executemany("INSERT OR REPLACE INTO garbage VALUES (?, ?)", self._garbage.items())
            self._garbage.clear()
        if self._unwritten:
            self._db.executemany(
                "INSERT INTO entry VALUES (?, ?, ?) "
                "ON CONFLICT (container, key) DO UPDATE SET record = excluded.record",
                [(*place, entry.encode()) for place, entry in self._unwritten.items()],
            )
            self._unwritten.clear()


Action: TypeAlias = Callable[[Transaction], object]
"""What one client has done in a transaction. Raises `HybrisError` without having changed anything."""
