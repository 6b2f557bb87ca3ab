"""Group commit: one thread commits, in one transaction, what many clients ask for at once.

Conditions are checked one client after the other, against what the clients before it have changed; what they
change is written in few statements at the end.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeAlias, TypeVar

from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    NoSuchContainerError,
)
from hybrisfs.kv.metadata import Change, Owed
from hybrisfs.kv.record import (
    TOMBSTONES,
    Condition,
    KeyMetadata,
    Place,
    RecentEntries,
    is_leaving,
    spell,
)
from hybrisfs.kv.repetition import Repetition

__all__ = ["Action", "GroupCommit", "Request", "Transaction"]

log = logging.getLogger(__name__)


class Transaction:
    """What the clients of one group commit do. Used by the thread that writes."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        recent: RecentEntries,
        containers: dict[str, int],
        owing: Mapping[int, int],
        environment: Environment,
    ) -> None:
        self._db = connection
        self._time = environment.time
        self._recent = recent
        self.containers = containers
        self._numbers = _writable(containers)
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

    def update(
        self, changes: Sequence[Change], conditions: Mapping[Place, Condition]
    ) -> Sequence[KeyMetadata] | None:
        """Make all changes if all conditions hold and no key has an entry that is newer, else none.

        Returns the entries as they are now; None when one of the changes is older than what is there. Raises
        ConditionNotMetError and NoSuchContainerError.
        """
        for place, condition in conditions.items():
            found = self._existing(place)
            if not condition.holds(found):
                raise ConditionNotMetError(self._spelled(place), condition, found)
        before = [self._existing(place) for place, _ in changes]
        after = []
        for (place, entry), old in zip(changes, before, strict=True):
            new = entry.after(old)
            if new is None:
                return None
            after.append(new.under(conditions.get(place)))
        for (place, _), old, new in zip(changes, before, after, strict=True):
            self._replace(place, old, new)
        return after

    def _existing(self, place: Place) -> KeyMetadata | None:
        if place[0] not in self._numbers:
            raise NoSuchContainerError(None, self.containers)
        return self.entry(place)

    def _spelled(self, place: Place) -> str:
        names = {number: name for name, number in self.containers.items()}
        return spell(names, place)

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
            "SELECT 1 FROM entry WHERE container = ? AND substr(record, 1, 1) NOT IN (?, ?, ?) LIMIT 1",
            (number, *TOMBSTONES),
        ).fetchone()
        if live is not None:
            raise ContainerInUseError(name)
        self._db.execute("DELETE FROM entry WHERE container = ?", (number,))
        self._db.execute("DELETE FROM container WHERE number = ?", (number,))
        self.containers = {key: value for key, value in self.containers.items() if key != name}
        self._numbers.discard(number)

    def rename_container(self, name: str, new: str) -> None:
        """Give a container another name. Raises NoSuchContainerError and ContainerExistsError."""
        if name not in self.containers:
            raise NoSuchContainerError(name, self.containers)
        if new in self.containers:
            raise ContainerExistsError(new)
        self._db.execute("UPDATE container SET name = ? WHERE name = ?", (new, name))
        self.containers = {new if one == name else one: number for one, number in self.containers.items()}
        self._numbers = _writable(self.containers)

    def discard(self, name: str, most: int) -> bool:
        """Make garbage of that many values of a container that nobody writes to; whether some are left. The
        container goes with the last ones."""
        number = self.containers.get(name)
        if number is None:
            return False
        rows = self._db.execute(
            "SELECT key, record FROM entry WHERE container = ? LIMIT ?", (number, most)
        ).fetchall()
        entries = [KeyMetadata.decode(record) for _, record in rows]
        for entry in entries:
            if entry.live:
                self._garbage[entry.objects] = entry.names
                self.held.subtract(entry.placement)
        self._db.executemany(
            "DELETE FROM entry WHERE container = ? AND key = ?", [(number, key) for key, _ in rows]
        )
        if not rows:
            self._db.execute("DELETE FROM container WHERE number = ?", (number,))
            self.containers = {one: value for one, value in self.containers.items() if one != name}
            self._numbers = _writable(self.containers)
        return bool(rows)

    def forget_garbage(
        self, writes: Sequence[int], owed: Sequence[Owed], again: Sequence[Repetition] = ()
    ) -> None:
        """All clouds have deleted these writes but those that owe it, and will do it again."""
        self._db.executemany("INSERT OR REPLACE INTO owed_deletion VALUES (?, ?, ?)", owed)
        self._db.executemany("DELETE FROM garbage WHERE write = ?", [(write,) for write in writes])
        for cloud in {one.cloud for one in owed} - self.owing.keys():
            self.owing[cloud] = int(self._time())
            self._db.execute("INSERT INTO owing VALUES (?, ?)", (cloud, self.owing[cloud]))
        self.repeat([], again)

    def forget_owed(self, deletions: Sequence[Owed], again: Sequence[Repetition] = ()) -> None:
        """These clouds have deleted now what they owed, and will do it again."""
        self._db.executemany(
            "DELETE FROM owed_deletion WHERE cloud = ? AND write = ?",
            [(one.cloud, one.write) for one in deletions],
        )
        for cloud in {one.cloud for one in deletions} & self.owing.keys():
            left = self._db.execute("SELECT 1 FROM owed_deletion WHERE cloud = ? LIMIT 1", (cloud,))
            if left.fetchone() is None:
                self._db.execute("DELETE FROM owing WHERE cloud = ?", (cloud,))
                del self.owing[cloud]
        self.repeat([], again)

    def repeat(self, done: Sequence[int], again: Sequence[Repetition]) -> None:
        """The repetitions with these numbers were carried out; others will be."""
        self._db.executemany("DELETE FROM repetition WHERE number = ?", [(number,) for number in done])
        self._db.executemany(
            "INSERT INTO repetition (cloud, due, times, writes) VALUES (?, ?, ?, ?)",
            [(one.cloud, one.due, one.times, one.writes) for one in again],
        )

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


def _writable(containers: Mapping[str, int]) -> set[int]:
    return {number for name, number in containers.items() if not is_leaving(name)}


Action: TypeAlias = Callable[[Transaction], object]
"""What one client has done in a transaction. Raises `HybrisError` without having changed anything."""


# -- group commit: one thread commits, at once, what many clients ask for -------------------------------
# How many commits there can be is bounded by the disk, and how many clients by what it costs to wake them. So
#
# * a commit waits a moment for the clients that the one before it has served, most of which come back at
#   once, instead of going ahead with the few that are there already while the others are on their way;
# * the thread wakes one client only, which wakes the next one. Were all woken at the same time, they would
#   fight for the interpreter with each other and with the next commit.
#
# A client that is interrupted while it waits leaves a thread in its place, so that those behind it are woken.


A = TypeVar("A")

_MOST_AT_ONCE: Final = 1024  # clients whose requests one commit carries
_GATHERING: Final = 0.0005  # seconds that a commit waits at most for those who were served before
_LOOK_AGAIN: Final = 0.00005


class Request(Generic[A]):
    """The request of a client; the thread that commits sets `result` or `error`."""

    __slots__ = ("_after", "_served", "_turn", "action", "error", "result")

    def __init__(self, action: A) -> None:
        self.action = action
        self.result: object = None
        self.error: Exception | None = None
        self._after: Request[A] | None = None
        self._served = False
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> None:
        """Return when it was served, and let the next one go on."""
        try:
            self._turn.acquire()
            self._pass_on()
        except BaseException:
            if self._served:
                self._pass_on()
            else:
                threading.Thread(target=self.wait, name="kv-metadata-wait", daemon=True).start()
            raise

    def _pass_on(self) -> None:
        if self._after is not None:
            self._after.go()

    def go(self) -> None:
        """Let its client go on."""
        with suppress(RuntimeError):  # it was let go before, when its predecessor was interrupted
            self._turn.release()

    @staticmethod
    def served(requests: Sequence[Request[A]]) -> None:
        """All of them were committed, or have failed: let their clients go on."""
        for request, after in pairwise(requests):
            request._after = after
        for request in requests:
            request._served = True
        requests[0].go()


class GroupCommit(Generic[A]):
    """Calls *commit* in a thread of its own with all requests that are there. Thread-safe.

    What *commit* raises is the error of all of them.
    """

    def __init__(
        self, name: str, commit: Callable[[Sequence[Request[A]]], None], environment: Environment
    ) -> None:
        self._commit = commit
        self._monotonic = environment.monotonic
        self._sleep = environment.sleep
        self._requests: SimpleQueue[Request[A] | None] = SimpleQueue()
        self._sending = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, action: A) -> object:
        """Have an action committed; return its result, or raise its error."""
        request = Request(action)
        with self._sending:
            if self._closed:
                raise HybrisError("the key-value store is closed")
            self._requests.put(request)
        request.wait()
        if request.error is not None:
            raise request.error
        return request.result

    def close(self) -> None:
        """Finish what was asked for, and end the thread. Idempotent."""
        with self._sending:
            self._closed = True
            self._requests.put(None)
        self._thread.join()

    def _run(self) -> None:
        before = 0
        while (first := self._requests.get()) is not None:
            self._gather(before - 1)
            requests, ending = [first], False
            while len(requests) < _MOST_AT_ONCE and not ending:
                try:
                    request = self._requests.get_nowait()
                except Empty:
                    break
                if request is None:
                    ending = True
                else:
                    requests.append(request)
            self._serve(requests)
            before = len(requests)
            if ending:
                return

    def _gather(self, wanted: int) -> None:
        """Wait until so many requests are there, but not for long."""
        until = self._monotonic() + _GATHERING
        while self._requests.qsize() < wanted and self._monotonic() < until:
            self._sleep(_LOOK_AGAIN)

    def _serve(self, requests: Sequence[Request[A]]) -> None:
        try:
            self._commit(requests)
        except Exception as error:
            if not isinstance(error, OSError):
                log.exception("the key-value metadata could not be written")
            for request in requests:
                request.error = error
        Request.served(requests)
