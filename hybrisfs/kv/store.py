"""The key-value store: Hybris PUT, GET, DELETE, LIST and TPUT over containers (Hybris 2.2 and 3).

A write puts its value on f+k clouds under names of its own, and then makes it the key's by a conditional
update of the metadata, which is the moment at which it takes place. A read takes the metadata and then the
value from k of these clouds, proven by the metadata. So operations are linearizable whatever the clouds do.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.values import Values
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.collect import Collector
from hybrisfs.kv.errors import NoSuchKeyError
from hybrisfs.kv.record import MAX_VALUE, KeyMetadata, Place, Timestamp, check_container, encode_key
from hybrisfs.kv.rmds import Garbage, MetadataStore
from hybrisfs.kv.seal import ValueSealer
from hybrisfs.kv.transaction import Change
from hybrisfs.kv.values import CachePolicy, Upload, Uploader, ValueCache, ValueFetcher

__all__ = ["Key", "KeyFacts", "KeyValueLimits", "KeyValueStore", "Session", "Suspects"]

_TRANSACTION_TRIES: Final = 64
_LARGE: Final = 1 << 20  # bytes; of larger values only a few are in memory at a time
_LARGE_AT_ONCE: Final = 4
_MOST_SUSPECTS: Final = 1000


@dataclass(frozen=True, slots=True)
class KeyValueLimits:
    """See `hybrisfs.environment.Limits`."""

    cache_bytes: int = 32 << 20
    """Values that are kept in memory."""
    cache_policy: CachePolicy = CachePolicy.BOTH
    """What puts a value there."""
    collect_seconds: float = 1.0
    """Between the end of a value and its removal from the clouds."""
    get_seconds: float = 60.0
    """That a read may take."""
    mend_seconds: float = 10.0
    """That a read of what is to be mended may take; it is tried again later."""


class Key(NamedTuple):
    """The full name of a value."""

    container: str
    key: str


class Versioned(NamedTuple):
    """A value and when it was written."""

    value: bytes
    timestamp: Timestamp


class KeyFacts(NamedTuple):
    """What a list tells of a key."""

    key: str
    size: int
    timestamp: Timestamp


class Suspects:
    """Keys of whose values something was found wrong: the few that `status` looks at, instead of all.

    A bounded set, kept in memory: what is wrong is found again. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: set[Place] = set()

    def add(self, place: Place) -> None:
        """A share of this key's value is wrong, or the value could not be read."""
        with self._lock:
            if len(self._places) < _MOST_SUSPECTS:
                self._places.add(place)

    def clear(self, place: Place) -> None:
        """Nothing is wrong with this key's value any more."""
        with self._lock:
            self._places.discard(place)

    def all(self) -> list[Place]:
        """The keys, in no particular order."""
        with self._lock:
            return list(self._places)


class KeyValueStore:
    """A store that is open. Thread-safe; every caller is a client of its own in the sense of Hybris.

    Methods raise HybrisError, CloudsUnavailable when too few clouds answer, and OSError when the metadata
    cannot be written. A write that raises CloudsUnavailable has not taken place.
    """

    def __init__(
        self,
        path: Path,
        values: Values,
        key: bytes,
        redundancy: Redundancy,
        *,
        environment: Environment = SYSTEM,
        permit: Callable[[], None] = lambda: None,
    ) -> None:
        """*path* is the metadata database, *key* the 32 bytes that everything is sealed with. *permit* is
        asked before anything is written: it raises HybrisError when that may not be."""
        self.limits = limits = environment.limits.of(KeyValueLimits)
        self.metadata = MetadataStore(path)
        self.sealer = ValueSealer(key, self.metadata.store_id)
        self._cache = ValueCache(limits.cache_bytes, limits.cache_policy, self.metadata)
        self.uploader = Uploader(values, self.sealer, redundancy)
        self.fetcher = ValueFetcher(self.metadata, values, self.sealer)
        self.collector = Collector(self.metadata, values, self.uploader, limits.collect_seconds)
        self.suspects = Suspects()
        self._permit = permit
        self._get_timeout = limits.get_seconds
        self._clock = environment.monotonic
        self._large = threading.BoundedSemaphore(_LARGE_AT_ONCE)
        self._thread = threading.Thread(target=self.collector.run, name="kv-collect", daemon=True)
        self._thread.start()

    # -- containers ------------------------------------------------------------------------------

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""
        self._permit()
        self.metadata.create_container(check_container(name))

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys."""
        self._permit()
        self.metadata.delete_container(name)

    def containers(self) -> Sequence[str]:
        """The names of all containers, sorted."""
        return self.metadata.containers()

    # -- writing ---------------------------------------------------------------------------------

    def put(self, container: str, key: str, value: bytes) -> Timestamp:
        """Write a value, on f+k clouds when it returns; return when it was written."""
        return self._write({Key(container, key): value}, forced=False)[0]

    def delete(self, container: str, key: str) -> Timestamp | None:
        """Delete a key; returns when, or None for a key that was not there anyway."""
        entry = self.metadata.read(self._place(container, key))
        if entry is None or not entry.live:
            return None
        return self._write({Key(container, key): None}, forced=False)[0]

    def tput(self, values: Mapping[Key, bytes | None]) -> Sequence[Timestamp]:
        """Write several values, and delete the keys whose value is None: all of it at one moment, or nothing.

        Raises HybrisError when others write these keys again and again at the same time.
        """
        return self._write(values, forced=True) if values else []

    def _write(self, values: Mapping[Key, bytes | None], *, forced: bool) -> Sequence[Timestamp]:
        """Upload the values and make them those of their keys.

        A write that is not *forced*, of one key, may find a higher timestamp there: one that began later has
        overtaken it. Then it took place just before that one (Hybris 4.1). A transaction tries again, with
        higher timestamps for what is on the clouds already.
        """
        self._permit()
        places = {name: self._place(*name) for name in values}
        size = sum(len(value) for value in values.values() if value is not None)
        if any(value is not None and len(value) > MAX_VALUE for value in values.values()):
            raise UsageError("the value is too large", f"a value has at most {MAX_VALUE:,} bytes")
        before = [self.metadata.read(place) for place in places.values()]
        moment = self._clock()
        numbers = self.collector.draw(len(values))
        try:
            # Planned only now, so that a thread that changes f and k knows which writes may be stored
            # as before.
            uploads = [
                self.uploader.plan(self.metadata.spelled(places[name]), number, value)
                for number, (name, value) in zip(numbers, values.items(), strict=True)
            ]
            with self._room_for(size):
                stored = self._store(uploads)
            for _ in range(_TRANSACTION_TRIES):
                changes = [
                    Change(place, entry._replace(sn=old.sn + 1 if old else 1))
                    for place, entry, old in zip(places.values(), stored, before, strict=True)
                ]
                done = self.metadata.update(changes)
                if done or not forced:
                    break
                moment = self._clock()
                before = [self.metadata.read(place) for place in places.values()]
            else:
                raise HybrisError(
                    "the transaction was not carried out", "others write the same keys", "Try again."
                )
        finally:
            # Of a commit that failed nobody knows whether a crash would show it done: keep what it names.
            if not self.metadata.failed:
                self.collector.end(numbers)
        for change, upload in zip(changes, uploads, strict=True):
            self._cache.written(change.place, upload.value, change.entry.timestamp, moment)
        return [change.entry.timestamp for change in changes]

    def _store(self, uploads: Sequence[Upload]) -> Sequence[KeyMetadata]:
        """Bring the values to the clouds; return their entries, without the sequence numbers."""
        intended = [Garbage(one.write, one.names) for one in uploads if one.value is not None]
        if intended:
            self.metadata.intend(intended)
        return self.uploader.upload(uploads)

    # -- reading ---------------------------------------------------------------------------------

    def get(
        self,
        container: str,
        key: str,
        *,
        max_age: float | None = None,
        max_versions: int | None = None,
        at_least: Timestamp | None = None,
    ) -> Versioned:
        """Return the value of a key. Raises NoSuchKeyError.

        Without further arguments the newest. Weaker reads, which the cache may answer (Hybris 3.10):
        *max_age* allows a value that was the newest at most so many seconds ago, *max_versions* one that at
        most so many newer ones follow, *at_least* any that was written then or later.
        """
        place = self._place(container, key)
        copy = self._cache.find(place)
        if copy is not None and (
            (max_age is not None and self._clock() - copy.fresh_at <= max_age)
            or (max_versions is not None and copy.behind <= max_versions)
            or (at_least is not None and copy.timestamp >= at_least)
        ):
            return Versioned(copy.value, copy.timestamp)
        deadline = time.monotonic() + self._get_timeout
        moment = self._clock()
        entry = self.metadata.read(place)
        if entry is not None and entry.live:
            cached = self._cache.confirm(place, entry.timestamp, moment)
            if cached is not None:
                return Versioned(cached, entry.timestamp)
            fetched = self._fetch(place, entry, deadline)
            if fetched is not None:
                value, entry = fetched
                self._cache.read(place, value, entry.timestamp, moment)
                return Versioned(value, entry.timestamp)
        raise NoSuchKeyError(container, key)

    def stat(self, container: str, key: str) -> KeyFacts:
        """What the metadata tells of a key. Raises NoSuchKeyError."""
        entry = self.metadata.read(self._place(container, key))
        if entry is None or not entry.live:
            raise NoSuchKeyError(container, key)
        return KeyFacts(key, entry.size, entry.timestamp)

    def list(
        self, container: str, prefix: str = "", *, after: str | None = None, limit: int = 1000
    ) -> Sequence[KeyFacts]:
        """The first keys that begin with *prefix* and follow *after*, in the order of their UTF-8 bytes.

        From the metadata alone, as of one moment.
        """
        found = self.metadata.list_keys(
            self.metadata.container(container),
            prefix.encode(),
            None if after is None else after.encode(),
            limit,
        )
        return [KeyFacts(key.decode(), entry.size, entry.timestamp) for key, entry in found]

    def close(self) -> None:
        """End the background work and close the metadata. Idempotent.

        Close the clouds' engine first: otherwise this waits for a cloud that does not answer a deletion.
        """
        self.collector.stop()
        self._thread.join()
        self.metadata.close()

    def _fetch(self, place: Place, entry: KeyMetadata, deadline: float) -> tuple[bytes, KeyMetadata] | None:
        try:
            with self._room_for(entry.size):
                return self.fetcher.fetch(place, entry, deadline)
        except CloudsUnavailable:
            self.suspects.add(place)
            raise

    # -- helpers ---------------------------------------------------------------------------------

    def _place(self, container: str, key: str) -> Place:
        return self.metadata.container(container), encode_key(key)

    @contextmanager
    def _room_for(self, size: int) -> Iterator[None]:
        with self._large if size > _LARGE else nullcontext():
            yield


# -- a client whose reads show at least what it has written itself: read-my-writes (Hybris 3.10) --------


_REMEMBERED: Final = 4096  # own writes; older ones are read like those of others


class Session:
    """Writes like the store itself; the cache may answer reads of what it has written. Thread-safe."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._written: OrderedDict[Key, Timestamp] = OrderedDict()

    def put(self, container: str, key: str, value: bytes) -> Timestamp:
        """See `KeyValueStore.put`."""
        timestamp = self._store.put(container, key, value)
        self._remember(Key(container, key), timestamp)
        return timestamp

    def delete(self, container: str, key: str) -> Timestamp | None:
        """See `KeyValueStore.delete`."""
        timestamp = self._store.delete(container, key)
        with self._lock:
            self._written.pop(Key(container, key), None)  # the metadata know it best
        return timestamp

    def tput(self, values: Mapping[Key, bytes | None]) -> None:
        """See `KeyValueStore.tput`."""
        for (name, value), timestamp in zip(values.items(), self._store.tput(values), strict=True):
            if value is not None:
                self._remember(name, timestamp)
            else:
                with self._lock:
                    self._written.pop(name, None)

    def get(self, container: str, key: str) -> Versioned:
        """Return what this session wrote last under the key, or what was written later."""
        with self._lock:
            own = self._written.get(Key(container, key))
        return self._store.get(container, key, at_least=own)

    def _remember(self, name: Key, timestamp: Timestamp) -> None:
        with self._lock:
            self._written[name] = max(timestamp, self._written.get(name, timestamp))
            self._written.move_to_end(name)
            if len(self._written) > _REMEMBERED:
                self._written.popitem(last=False)
