"""The reliable metadata store (RMDS) of Hybris, on SQLite: conditional updates, linearizable reads, watches.

One thread writes. What clients ask for while it commits goes together into its next commit, so that many
share one sync of the disk. Reads come from memory, or from the database when it is not there.
"""

from __future__ import annotations

import errno
import itertools
import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, cast

from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.values import Values
from hybrisfs.environment import Environment
from hybrisfs.errors import DamagedError, HybrisError
from hybrisfs.kv.containers import ANYBODY, Authority
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.errors import DAMAGE_ADVICE, NoSuchContainerError
from hybrisfs.kv.metadata import Change, Found, Garbage, Listed, Owed
from hybrisfs.kv.record import (
    TOMBSTONES,
    Condition,
    KeyMetadata,
    Place,
    RecentEntries,
    is_leaving,
    leaving,
    spell,
)
from hybrisfs.kv.repetition import Repetition
from hybrisfs.kv.seal import STORE_ID_SIZE, ValueSealer
from hybrisfs.kv.store import KeyValueStore
from hybrisfs.kv.transaction import Action, GroupCommit, Request, Transaction
from hybrisfs.state.registers import after as above_all
from sync.codec import DecodeError

__all__ = ["DeviceMetadata", "DeviceStore"]

log = logging.getLogger(__name__)

_ROWS: Final = 1000
_SKIPPED: Final = 1 << 32  # numbers of writes; a random one more, as a backup may be restored twice


class DeviceMetadata:
    """A `MetadataStore` for one device; what has no text here is explained there. Thread-safe; a change is
    durable when its method returns.

    Methods raise OSError when the database cannot be written: with a full disk nothing has been changed;
    after any other failure it may have been, and nothing is written until the store is opened again.
    """

    def __init__(self, path: Path, environment: Environment) -> None:
        self._environment = environment
        self._chance = environment.chance()
        self._database = MetadataDatabase(path, environment)
        self._recent = RecentEntries()
        self._watches = _Watches()
        self._failure: OSError | None = None
        try:
            meta = dict(self._database.writer.execute("SELECT key, value FROM meta").fetchall())
            self.store_id: bytes = meta["store"]
            self._highest_write: int = meta["write"]
            if len(self.store_id) != STORE_ID_SIZE or self._highest_write < 0:
                raise ValueError("the store's identity is malformed")
            self._held: Mapping[int, int] = dict(
                self._database.writer.execute("SELECT cloud, count FROM held").fetchall()
            )
            self._owing: Mapping[int, int] = dict(
                self._database.writer.execute("SELECT cloud, since FROM owing").fetchall()
            )
            self._containers: dict[str, int] = dict(
                self._database.writer.execute("SELECT name, number FROM container").fetchall()
            )
        except (sqlite3.DatabaseError, KeyError, ValueError, TypeError) as error:
            self._database.close()
            raise DamagedError(f"the database {path} is damaged", str(error), DAMAGE_ADVICE) from error
        self._names = {number: name for name, number in self._containers.items()}
        self._writes: Iterator[int] = itertools.count(self._highest_write + 1)
        self._writer = GroupCommit[Action]("kv-metadata", self._commit, environment)
        self._do = self._writer.do

    is_shared: Final = False

    @property
    def failed(self) -> bool:
        return self._failure is not None

    # -- reading ---------------------------------------------------------------------------------

    def read(self, place: Place) -> KeyMetadata | None:
        """The entry of a key, a tombstone included. Linearizable. Raises DamagedError, and
        NoSuchContainerError when the container has been moved away."""
        entry = self._read(place)
        if entry is None and is_leaving(self._names.get(place[0], leaving(""))):
            raise NoSuchContainerError(None, self._containers)
        return entry

    def _read(self, place: Place) -> KeyMetadata | None:
        try:
            return self._recent.find(place)
        except KeyError:
            moment = self._recent.moment
        with self._database.reader() as connection:
            row = connection.execute(
                "SELECT record FROM entry WHERE container = ? AND key = ?", place
            ).fetchone()
        entry = None if row is None else self._decode(row[0])
        self._recent.learn(moment, place, entry)
        return entry

    def container(self, name: str) -> int:
        try:
            return self._containers[name]
        except KeyError:
            raise NoSuchContainerError(name, self._containers) from None

    def has_container(self, name: str) -> bool:
        """Whether there is a container of that name. Does not wait."""
        return name in self._containers

    def spelled(self, place: Place) -> str:
        return spell(self._names, place)

    def containers(self) -> list[str]:
        return sorted(self._containers)

    @contextmanager
    def listing(
        self,
        container: int,
        prefix: bytes,
        after: bytes | None = None,
        most: int = _ROWS,
        *,
        deleted: bool = False,
    ) -> Iterator[Iterator[list[Listed]]]:
        """See `MetadataStore`: the moment is that at which the context is entered, and SQLite's log grows
        until it ends. A page raises DamagedError when a record cannot be read."""
        start, sign = (prefix, ">=") if after is None or after < prefix else (after, ">")
        query = f"SELECT key, record FROM entry WHERE container = ? AND key {sign} ?"
        bounds: list[object] = [container, start]
        end = above_all(prefix)
        if end is not None:
            query += " AND key < ?"
            bounds.append(end)
        if not deleted:
            query += " AND substr(record, 1, 1) NOT IN (?, ?, ?)"
            bounds += TOMBSTONES
        with self._database.snapshot(f"{query} ORDER BY key", bounds, most) as parts:
            yield ([Listed(key, self._decode(record)) for key, record in rows] for rows in parts)

    def values(self) -> Iterator[Found]:
        after: Place = (-1, b"")
        while True:
            with self._database.reader() as connection:
                rows = connection.execute(
                    "SELECT container, key, record FROM entry "
                    "WHERE (container, key) > (?, ?) ORDER BY container, key LIMIT ?",
                    (*after, _ROWS),
                ).fetchall()
            if not rows:
                return
            for container, key, record in rows:
                after = container, key
                try:
                    entry = KeyMetadata.decode(record)
                except DecodeError:
                    yield Found(after, None)
                    continue
                if entry.live:
                    yield Found(after, entry)

    def _rows(self, query: str, parameters: Sequence[object] = ()) -> list[Any]:
        with self._database.reader() as connection:
            return connection.execute(query, parameters).fetchall()

    def count(self) -> int:
        with self._database.reader() as connection:
            (count,) = connection.execute("SELECT count(*) FROM entry").fetchone()
        return int(count)

    def held(self, cloud: int) -> int:
        """How many values a cloud should hold. Does not wait."""
        return self._held.get(cloud, 0)

    def problems(self) -> list[str]:
        """What SQLite finds wrong with the database, in its words."""
        with self._database.reader() as connection:
            try:
                rows = connection.execute("PRAGMA integrity_check").fetchall()
            except sqlite3.DatabaseError as error:
                return [str(error)]
        return [row[0] for row in rows if row[0] != "ok"]

    def watch(self, place: Place, callback: Callable[[], None]) -> AbstractContextManager[None]:
        return self._watches.subscribed(place, callback)

    def gather_garbage(self) -> None:
        """Nothing is to be done: it is all in the database."""

    def garbage(self, after: int, limit: int) -> list[Garbage]:
        rows = self._rows(
            "SELECT write, names FROM garbage WHERE write > ? ORDER BY write LIMIT ?", (after, limit)
        )
        return [Garbage(*row) for row in rows]

    def owed(self, cloud: int, limit: int) -> list[Owed]:
        rows = self._rows(
            "SELECT cloud, write, names FROM owed_deletion WHERE cloud = ? LIMIT ?", (cloud, limit)
        )
        return [Owed(*row) for row in rows]

    def repetitions(self, cloud: int, start: int, end: int, limit: int) -> list[Repetition]:
        rows = self._rows(
            "SELECT cloud, due, times, writes, number FROM repetition WHERE cloud = ?1 AND due < ?2 "
            "UNION ALL "
            "SELECT cloud, due, times, writes, number FROM repetition WHERE cloud = ?1 AND due > ?3 "
            "ORDER BY due LIMIT ?4",
            (cloud, start, end, limit),
        )
        return [Repetition(*row) for row in rows]

    def first_repetitions(self) -> dict[int, int]:
        found: dict[int, int] = {}
        with self._database.reader() as connection:
            query = "SELECT cloud, due FROM repetition WHERE cloud > ? ORDER BY cloud, due LIMIT 1"
            cloud = -1
            while (row := connection.execute(query, (cloud,)).fetchone()) is not None:
                cloud, found[cloud] = row[0], row[1]
        return found

    def repeated(self, after: int, limit: int) -> list[Repetition]:
        """What is to be deleted again, by number, those above *after*."""
        rows = self._rows(
            "SELECT cloud, due, times, writes, number FROM repetition "
            "WHERE number > ? ORDER BY number LIMIT ?",
            (after, limit),
        )
        return [Repetition(*row) for row in rows]

    def owed_writes(self) -> list[int]:
        """The writes of which some cloud has yet to delete something."""
        rows = self._rows("SELECT DISTINCT write FROM owed_deletion")
        return [row[0] for row in rows]

    def counts(self) -> tuple[int, int]:
        """How many writes wait for their deletion, and how many deletions single clouds owe."""
        with self._database.reader() as connection:
            (garbage,) = connection.execute("SELECT count(*) FROM garbage").fetchone()
            (owed,) = connection.execute("SELECT count(*) FROM owed_deletion").fetchone()
        return garbage, owed

    def owing(self) -> Mapping[int, int]:
        return self._owing

    # -- writing ---------------------------------------------------------------------------------

    def new_write(self, above: int = 0) -> int:
        """A number that no other write has; it is recorded by whatever is written next."""
        return next(self._writes)

    def skip_writes(self) -> None:
        """Begin to number writes again, far above all numbers that any backup of this database may have led
        to: none of these is used again."""
        highest = self._highest_write + _SKIPPED + self._chance.randrange(_SKIPPED)
        self._do(lambda transaction: transaction.skip_to(highest))
        self._writes = itertools.count(highest + 1)

    def intend(self, writes: Sequence[Garbage]) -> None:
        self._do(lambda transaction: transaction.intend(writes))

    def ended(self, writes: Sequence[int]) -> None:
        """Nothing is to be done: what is under way is known in this process."""

    def update(
        self, changes: Sequence[Change], conditions: Mapping[Place, Condition] | None = None
    ) -> Sequence[KeyMetadata] | None:
        made = self._do(lambda transaction: transaction.update(changes, conditions or {}))
        return cast("Sequence[KeyMetadata] | None", made)

    def move(self, place: Place, old: KeyMetadata, new: KeyMetadata) -> bool:
        return bool(self._do(lambda transaction: transaction.move(place, old, new)))

    def create_container(self, name: str) -> None:
        self._do(lambda transaction: transaction.create_container(name))

    def delete_container(self, name: str) -> None:
        self._do(lambda transaction: transaction.delete_container(name))

    def rename_container(self, name: str, new: str) -> None:
        self._do(lambda transaction: transaction.rename_container(name, new))

    def discard_container(self, name: str) -> None:
        while self._do(lambda transaction: transaction.discard(name, _ROWS)):
            pass

    def forget_garbage(
        self, writes: Sequence[int], owed: Sequence[Owed], again: Sequence[Repetition] = ()
    ) -> None:
        self._do(lambda transaction: transaction.forget_garbage(writes, owed, again))

    def forget_owed(self, deletions: Sequence[Owed], again: Sequence[Repetition] = ()) -> None:
        self._do(lambda transaction: transaction.forget_owed(deletions, again))

    def repeat(self, done: Sequence[int], again: Sequence[Repetition]) -> None:
        self._do(lambda transaction: transaction.repeat(done, again))

    def close(self) -> None:
        """Finish what was asked for, and close the database. Idempotent."""
        self._writer.close()
        self._database.close()

    # -- the thread that writes ------------------------------------------------------------------

    def _commit(self, requests: Sequence[Request[Action]]) -> None:
        if self._failure is not None:
            raise self._failure
        connection = self._database.writer
        transaction = Transaction(connection, self._recent, self._containers, self._owing, self._environment)
        begun = False
        try:
            connection.execute("BEGIN IMMEDIATE")
            for request in requests:
                try:
                    request.result = request.action(transaction)
                except HybrisError as error:
                    request.error = error
                except DecodeError as error:
                    request.error = self._damaged(error)
            highest = max(self._highest_write, transaction.highest_write)
            if highest != self._highest_write:
                connection.execute("UPDATE meta SET value = ? WHERE key = 'write'", (highest,))
            transaction.write_out()
            held = Counter(self._held)
            held.update(transaction.held)
            connection.executemany(
                "INSERT OR REPLACE INTO held VALUES (?, ?)", [(one, held[one]) for one in transaction.held]
            )
            begun = True
            self._recent.begin(transaction.entries)
            connection.execute("COMMIT")
        except BaseException as error:
            if begun:
                self._recent.end({})
            self._roll_back(error)
            if isinstance(error, sqlite3.Error):
                raise self._explained(error) from error
            raise
        self._highest_write = highest
        self._held = held
        if transaction.containers is not self._containers:
            self._containers = transaction.containers
            self._names = {number: name for name, number in self._containers.items()}
        self._owing = transaction.owing
        self._recent.end(transaction.entries)
        self._watches.tell(transaction.entries)

    def _roll_back(self, error: BaseException) -> None:
        try:
            if self._database.writer.in_transaction:
                self._database.writer.execute("ROLLBACK")
        except sqlite3.Error as second:
            self._failure = OSError(errno.EIO, f"{self._database.path} cannot be written ({second})")
            self._failure.__cause__ = error

    def _explained(self, error: sqlite3.Error) -> OSError:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            return OSError(errno.ENOSPC, f"no space left for {self._database.path}; nothing was changed")
        # A commit that could not be synced may or may not be there after a crash.
        self._failure = OSError(
            errno.EIO, f"{self._database.path} cannot be written ({error}); open the volume again"
        )
        return self._failure

    def _decode(self, record: bytes) -> KeyMetadata:
        try:
            return KeyMetadata.decode(record)
        except DecodeError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: DecodeError) -> DamagedError:
        return DamagedError(f"the database {self._database.path} is damaged", str(error), DAMAGE_ADVICE)


class DeviceStore(KeyValueStore):
    """A store that only this device uses."""

    metadata: DeviceMetadata

    def __init__(
        self,
        path: Path,
        values: Values,
        key: bytes,
        redundancy: Redundancy,
        *,
        environment: Environment,
        authority: Authority = ANYBODY,
    ) -> None:
        """*path* is the metadata database, *key* the 32 bytes that everything is sealed with.
        *authority*: see `KeyValueStore`."""
        metadata = DeviceMetadata(path, environment)
        sealer = ValueSealer(key, metadata.store_id)
        super().__init__(metadata, values, sealer, redundancy, environment=environment, authority=authority)


class _Watches:
    """Subscriptions to changes of the metadata of single keys (Hybris 3.5). Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[Place, list[Callable[[], None]]] = {}

    @contextmanager
    def subscribed(self, place: Place, callback: Callable[[], None]) -> Iterator[None]:
        """Have `callback`, which must be quick, called after each change of the key until the end."""
        with self._lock:
            self._callbacks.setdefault(place, []).append(callback)
        try:
            yield
        finally:
            with self._lock:
                callbacks = self._callbacks[place]
                callbacks.remove(callback)
                if not callbacks:
                    del self._callbacks[place]

    def tell(self, places: Iterable[Place]) -> None:
        """Call everybody who wants to hear of these."""
        if not self._callbacks:
            return
        with self._lock:
            concerned = [callback for place in places for callback in self._callbacks.get(place, ())]
        for callback in concerned:
            callback()
