"""The key-value store: Hybris PUT, GET, DELETE, LIST and TPUT over containers (Hybris 2.2 and 3).

A write puts its value on f+k clouds under names of its own, and then makes it the key's by a conditional
update of the metadata, which is the moment at which it takes place. A read takes the metadata and then the
value from k of these clouds, proven by the metadata. So operations are linearizable whatever the clouds do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.dispersal.values import Values
from hybrisfs.environment import Environment
from hybrisfs.errors import UsageError
from hybrisfs.kv.collect import Collector
from hybrisfs.kv.containers import ANYBODY, Authority, ContainerStore, Key, KeyFacts, Source, Versioned
from hybrisfs.kv.errors import ConditionNotMetError, NoSuchKeyError
from hybrisfs.kv.metadata import Change, Garbage, MetadataStore
from hybrisfs.kv.record import (
    Condition,
    KeyMetadata,
    Place,
    Timestamp,
    check_container,
    encode_key,
    is_usable,
)
from hybrisfs.kv.rooms import PLACES, Rooms, content_of, size_of
from hybrisfs.kv.seal import ValueSealer
from hybrisfs.kv.values import Upload, Uploader, ValueCache, ValueFetcher
from hybrisfs.registers.entries import MAX_ATTRIBUTES

__all__ = ["KeyValueLimits", "KeyValueStore", "Suspects"]

log = logging.getLogger(__name__)

_MOST_SUSPECTS: Final = 1000


class KeyValueLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    cache_bytes: int = 32 << 20
    """Values that are kept in memory, those that were written or read last."""
    collect_seconds: float = 1.0
    """Between the end of a value and its removal from the clouds."""
    get_seconds: float = 60.0
    """That a read may take."""
    mend_seconds: float = 10.0
    """That a read of what is to be mended may take; it is tried again later."""


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


class KeyValueStore(ContainerStore):
    """A store that is open. Thread-safe; every caller is a client of its own in the sense of Hybris.

    Methods raise HybrisError, CloudsUnavailable when too few clouds answer, and OSError when the metadata
    cannot be written. A write that raises CloudsUnavailable has not taken place.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        values: Values,
        sealer: ValueSealer,
        redundancy: Redundancy,
        *,
        environment: Environment,
        authority: Authority = ANYBODY,
    ) -> None:
        """*metadata* are closed with the store. *authority* is asked before anything is
        written."""
        self.limits = limits = environment.limits.of(KeyValueLimits)
        self.metadata = metadata
        self.sealer = sealer
        self._cache = ValueCache(limits.cache_bytes, self.metadata)
        self.uploader = Uploader(values, sealer, redundancy)
        self.fetcher = ValueFetcher(metadata, values, sealer, environment)
        self.collector = Collector(self.metadata, values, self.uploader, limits.collect_seconds, environment)
        self.suspects = Suspects()
        self._authority = authority
        self._get_timeout = limits.get_seconds
        self._clock = environment.monotonic
        self._time_ns = environment.time_ns
        self._rooms = Rooms()
        self._readers = ThreadPoolExecutor(PLACES, "kv-read")
        self._thread = threading.Thread(target=self.collector.run, name="kv-collect", daemon=True)
        self._thread.start()

    # -- containers ------------------------------------------------------------------------------

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""
        self._authority.require_writer()
        self.metadata.create_container(check_container(name))

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys."""
        self._authority.require_writer()
        self.metadata.delete_container(name)

    def containers(self) -> Sequence[str]:
        """The names of all containers, sorted, but for those that are being moved."""
        return list(filter(is_usable, self.metadata.containers()))

    # -- writing ---------------------------------------------------------------------------------

    def put(
        self,
        container: str,
        key: str,
        value: bytes | Source,
        condition: Condition | None = None,
        attributes: bytes = b"",
    ) -> Timestamp:
        """Write a value, on f+k clouds when it returns; return when it was written.

        *attributes* are kept in the metadata: a get, a stat and a list return them. Raises
        ConditionNotMetError when the key is not as *condition* says.
        """
        name, forced = Key(container, key), condition is not None
        conditions = {name: condition} if condition is not None else {}
        return self._write({name: value}, conditions, forced=forced, attributes={name: attributes})[0]

    def edit(
        self, container: str, key: str, change: Callable[[bytes | None], bytes]
    ) -> tuple[Timestamp, int]:
        with self._rooms.edit():
            return super().edit(container, key, change)

    def delete(self, container: str, key: str, condition: Condition | None = None) -> Timestamp | None:
        """See `ContainerStore`: when there is no such key, nothing is written."""
        if condition is None and not _is_live(self.metadata.read(self._place(container, key))):
            return None
        return super().delete(container, key, condition)

    def tput(
        self,
        values: Mapping[Key, bytes | Source | None],
        conditions: Mapping[Key, Condition] | None = None,
        attributes: Mapping[Key, bytes] | None = None,
    ) -> Sequence[Timestamp]:
        """Write several values, and delete the keys whose value is None: all of it at one moment, or nothing.

        *attributes* are those of some of the values, see `put`. Raises ConditionNotMetError when at that
        moment a key, also one that is not written, is not as *conditions* say.
        """
        if not values:
            return []
        return self._write(values, conditions or {}, forced=True, attributes=attributes or {})

    def _write(
        self,
        values: Mapping[Key, bytes | Source | None],
        conditions: Mapping[Key, Condition],
        *,
        forced: bool,
        attributes: Mapping[Key, bytes] = MappingProxyType({}),
    ) -> Sequence[Timestamp]:
        """Upload the values and make them those of their keys.

        A write that is not *forced*, of one key, may find a higher timestamp there: one that began later has
        overtaken it. Then it took place just before that one (Hybris 4.1), and is said to have the version
        that was there before it: no later value has that. Others follow whatever is there.
        """
        self._authority.require_writer()
        places = {name: self._place(*name) for name in values}
        needed = {self._place(*name): condition for name, condition in conditions.items()}
        sizes = [size_of(value) for value in values.values()]
        if any(len(some) > MAX_ATTRIBUTES for some in attributes.values()):
            raise UsageError("the attributes are too large", f"they have at most {MAX_ATTRIBUTES:,} bytes")
        with self._rooms.taken(sizes):
            reading = None if forced else self._begin_reading(*places.values())
            moment = self._clock()
            for place, condition in needed.items():
                self._check(place, condition)
            numbers = self.collector.draw(len(values))
            try:
                # Planned only now, so that a thread that changes f and k knows which writes may be stored
                # as before.
                uploads = [
                    self.uploader.plan(
                        self.metadata.spelled(places[name]),
                        number,
                        content_of(value),
                        attributes.get(name, b""),
                    )
                    for number, (name, value) in zip(numbers, values.items(), strict=True)
                ]
                stored = self._store(uploads)
                written = self._time_ns() // 1_000_000
                number = 0 if reading is None else _next(reading())
                changes = [
                    Change(place, entry._replace(sn=number, written=written))
                    for place, entry in zip(places.values(), stored, strict=True)
                ]
                made = self.metadata.update(changes, needed)
            finally:
                # Of a commit that failed nobody knows whether a crash would show it done: keep what it names.
                if not self.metadata.failed:
                    self.collector.end(numbers)
            entries = made or [change.entry._replace(sn=change.entry.sn - 1) for change in changes]
            for place, upload, entry in zip(places.values(), uploads, entries, strict=True):
                self._cache.written(place, upload.value, entry, moment)
        return [entry.timestamp for entry in entries]

    def copy(
        self, container: str, key: str, value: bytes | None, facts: KeyFacts, condition: Condition
    ) -> None:
        """Write a value with the version, the time and the attributes that it has elsewhere; None: delete it.

        Raises ConditionNotMetError.
        """
        self._authority.require_writer()
        place = self._place(container, key)
        with self._rooms.taken([len(value or b"")]):
            numbers = self.collector.draw(1)
            try:
                upload = self.uploader.plan(self.metadata.spelled(place), numbers[0], value, facts.attributes)
                (stored,) = self._store([upload])
                entry = stored._replace(sn=facts.timestamp.sn, written=facts.written)
                self.metadata.update([Change(place, entry)], {place: condition})
            finally:
                if not self.metadata.failed:
                    self.collector.end(numbers)

    def _begin_reading(self, place: Place) -> Callable[[], KeyMetadata | None]:
        """Read the entry of a key; return what waits for it."""
        if not self.metadata.is_shared:
            entry = self.metadata.read(place)
            return lambda: entry
        return self._readers.submit(self.metadata.read, place).result

    def _check(self, place: Place, condition: Condition) -> None:
        """Raise ConditionNotMetError before anything is uploaded, if it does not hold now."""
        found = self.metadata.read(place)
        if not condition.holds(found):
            raise ConditionNotMetError(self.metadata.spelled(place), condition, found)

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
        tag: Timestamp | None = None,
    ) -> Versioned:
        """Return the value of a key. Raises NoSuchKeyError, and ConditionNotMetError when it has not *tag*.

        Without further arguments the newest. Weaker reads, which the cache may answer (Hybris 3.10):
        *max_age* allows a value that was the newest at most so many seconds ago, *max_versions* one that at
        most so many newer ones follow, *at_least* any that was written then or later.
        """
        place = self._place(container, key)
        if tag is not None:
            self._check(place, Condition(tag=tag))
        copy = self._cache.find(place)
        if copy is not None and (
            (max_age is not None and self._clock() - copy.fresh_at <= max_age)
            or (max_versions is not None and not self.metadata.is_shared and copy.behind <= max_versions)
            or (at_least is not None and copy.entry.timestamp >= at_least)
        ):
            return Versioned(copy.value, _facts(key, copy.entry))
        moment = self._clock()
        entry = self.metadata.read(place)
        if entry is not None and entry.live:
            if copy is not None and max_versions is not None and entry.sn - copy.entry.sn <= max_versions:
                return Versioned(copy.value, _facts(key, copy.entry))
            cached = self._cache.confirm(place, entry.timestamp, moment)
            if cached is not None:
                return Versioned(cached, _facts(key, entry))
            fetched = self._fetch(place, entry)
            if fetched is not None:
                value, entry = fetched
                self._cache.read(place, value, entry, moment)
                return Versioned(value, _facts(key, entry))
        raise NoSuchKeyError(container, key)

    def stat(self, container: str, key: str) -> KeyFacts:
        """What the metadata tells of a key. Raises NoSuchKeyError."""
        entry = self.metadata.read(self._place(container, key))
        if entry is None or not entry.live:
            raise NoSuchKeyError(container, key)
        return _facts(key, entry)

    @contextmanager
    def listing(
        self, container: str, prefix: str = "", *, after: str | None = None, most: int = 1000
    ) -> Iterator[Iterator[Sequence[KeyFacts]]]:
        """See `ContainerStore`. kv.db grows on the disk until the context ends."""
        number = self.metadata.container(container)
        start = None if after is None else after.encode()
        with self.metadata.listing(number, prefix.encode(), start, most) as pages:
            yield ([_facts(key.decode(), entry) for key, entry in page] for page in pages)

    def close(self) -> None:
        """End the background work and close the metadata. Idempotent.

        Close the clouds' engine first: otherwise this waits for a cloud that does not answer a deletion.
        """
        self.collector.stop()
        self._thread.join()
        self._readers.shutdown()
        self.metadata.close()

    def _fetch(self, place: Place, entry: KeyMetadata) -> tuple[bytes, KeyMetadata] | None:
        try:
            with self._rooms.taken([entry.size]):
                # The time that it waited is nobody's fault.
                return self.fetcher.fetch(place, entry, self._get_timeout)
        except CloudsUnavailable:
            self.suspects.add(place)
            raise

    # -- helpers ---------------------------------------------------------------------------------

    def _place(self, container: str, key: str) -> Place:
        return self.metadata.container(container), encode_key(key)


def _facts(key: str, entry: KeyMetadata) -> KeyFacts:
    return KeyFacts(key, entry.size, entry.timestamp, entry.written, entry.attributes)


def _next(entry: KeyMetadata | None) -> int:
    return 1 if entry is None else entry.sn + 1


def _is_live(entry: KeyMetadata | None) -> bool:
    return entry is not None and entry.live
