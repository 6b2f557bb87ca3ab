"""Containers on the clouds themselves: no server, no metadata but the objects (PoWerStore, PASIS).

Which containers there are is in registers, as their keys are (`hybrisfs.kv.cloud_keys`): a name stands for a
random id, by which the objects of the container are named, and which stays when the container gets another
name.

A device looks at most once a minute whether a container is there. So a write may take place in one that
another device has dropped since; then this is there again, as a container that holds keys is not dropped. And
a container that is moved must not be written to by its former name: a move waits for `forgotten_seconds`, and
a write that may have ended later than that is acknowledged only if the container has its name still.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.errors import HybrisError
from hybrisfs.kv.cloud_keys import CloudKeys, InTransaction, Latest, facts_of, timestamp_of
from hybrisfs.kv.cloud_place import CloudPlace, is_on_clouds
from hybrisfs.kv.containers import Authority, ContainerStore, Entry, Key, KeyFacts, Source, Versioned
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    ContainerMovingError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.record import ABSENT, Condition, Timestamp, is_usable
from hybrisfs.kv.shared import Owner, Services
from hybrisfs.quorums.consensus import WRITE_SECONDS
from hybrisfs.quorums.register import Found, Part
from hybrisfs.quorums.rounds import ProtocolRunner
from hybrisfs.quorums.runner import Runner
from hybrisfs.quorums.snapshot import Survey
from sync.codec import DecodeError, Reader, Writer
from sync.seal import SealKeys

__all__ = ["CloudStore", "CloudStoreLimits", "CloudStores"]

_REGISTRY: Final = b""  # the id of the container whose keys are the names of containers
_ID_SIZE: Final = 16
_MARGIN: Final = 0.9  # so much of the time that a move waits is relied upon: clocks do not go alike


class CloudStoreLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    known_seconds: float = 60.0
    """For how long a device does not look again whether a container is there."""
    forgotten_seconds: float = (60.0 + WRITE_SECONDS) / _MARGIN
    """After that no device relies on the name that a container had before."""


class _Registered(NamedTuple):
    """What the registry has of the name of a container: u8, 1 for one in use and 0 for one that was dropped;
    and its id (16 bytes)."""

    in_use: bool
    id: bytes

    def encode(self) -> bytes:
        return Writer().u8(self.in_use).raw(self.id).getvalue()

    @staticmethod
    def decode(data: bytes) -> _Registered | None:
        """None: no correct device has written it."""
        try:
            reader = Reader(data)
            state, id_ = reader.u8(), reader.raw(_ID_SIZE)
            reader.end()
        except DecodeError:
            return None
        return _Registered(state == 1, id_) if state <= 1 else None


class _Known(NamedTuple):
    """The id of a container that was there at some moment (seconds, see `Environment.boot_time`)."""

    id: bytes
    moment: float


class CloudStore(ContainerStore):
    """The containers on one set of clouds. Thread-safe, see `ContainerStore`. Linearizable. Writes are on a
    quorum of the clouds when they return.

    Methods raise CloudsUnavailable when fewer clouds answer than are needed.
    """

    def __init__(
        self, place: CloudPlace, runner: ProtocolRunner, key: bytes, epochs: SealKeys, authority: Authority
    ) -> None:
        """See `CloudKeys`; *authority* is asked before anything is written."""
        environment = runner.environment
        self.place: Final = place
        self.keys: Final = CloudKeys(place, runner, key, epochs)
        self._authority = authority
        self._limits = environment.limits.of(CloudStoreLimits)
        self._boot_time = environment.boot_time
        self._sleep = environment.sleep
        self._random_bytes = environment.random_bytes
        self._known: dict[str, _Known] = {}

    # -- containers ------------------------------------------------------------------------------

    def containers(self) -> Sequence[str]:
        """The names of all containers, sorted, but for those that are being moved."""
        return sorted(filter(is_usable, self.names()))

    def has_container(self, name: str) -> bool:
        """Whether there is a container of that name: nobody looks twice within a minute after it was."""
        return self._find(name) is not None

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""
        self._authority.require_writer()
        moment = self._boot_time()
        entry, tag = self._registered(name)
        if entry is not None and entry.in_use:
            raise ContainerExistsError(name)
        id_ = self._random_bytes(_ID_SIZE) if entry is None else entry.id
        try:
            self._register(name, _Registered(True, id_), tag)
        except ConditionNotMetError:
            raise ContainerExistsError(name) from None
        self._known[name] = _Known(id_, moment)

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys."""
        self._authority.require_writer()
        entry, tag = self._in_use(name)
        if self.keys.listed(entry.id):
            raise ContainerInUseError(name)
        try:
            self._register(name, entry._replace(in_use=False), tag)
        except ConditionNotMetError:
            raise self._no_such(name) from None

    def _find(self, name: str) -> _Known | None:
        known = self._known.get(name)
        moment = self._boot_time()
        if known is not None and moment - known.moment < self._limits.known_seconds:
            return known
        entry, tag = self._registered(name)
        if entry is None:
            return None
        if not entry.in_use:  # perhaps it was dropped while another device wrote to it
            if not self.keys.listed(entry.id):
                return None
            with suppress(ConditionNotMetError):
                self._register(name, entry._replace(in_use=True), tag)
        self._known[name] = known = _Known(entry.id, moment)
        return known

    def _require(self, name: str) -> _Known:
        known = self._find(name)
        if known is None:
            raise self._no_such(name)
        return known

    def _in_use(self, name: str) -> tuple[_Registered, Timestamp | None]:
        """What the registry has now of a container that is there. Raises NoSuchContainerError."""
        entry, tag = self._registered(name)
        if entry is None or not entry.in_use:
            raise self._no_such(name)
        return entry, tag

    def _no_such(self, name: str) -> NoSuchContainerError:
        return NoSuchContainerError(name, self.containers())

    def _registered(self, name: str) -> tuple[_Registered | None, Timestamp | None]:
        """What the registry has of a name, and the tag of that."""
        found = self.keys.read(_REGISTRY, name, f"the container {name!r}", Part.VALUE)
        if found is None:
            return None, None
        value, _ = self.keys.codec.value(found.version, found.parts)
        return _Registered.decode(value), timestamp_of(found.version)

    def _register(self, name: str, entry: _Registered | None, tag: Timestamp | None) -> None:
        """Change what the registry has of a name, which had this tag; None: it had nothing. Raises
        ConditionNotMetError."""
        self._known.pop(name, None)
        condition = ABSENT if tag is None else Condition(tag=tag)
        value = None if entry is None else entry.encode()
        self.keys.write(_REGISTRY, name, f"the container {name!r}", value, condition, b"")

    # -- moving, see `hybrisfs.kv.migrate` -------------------------------------------------------

    def names(self) -> Sequence[str]:
        """The names of all containers. One that is about to get another name has its old one still."""
        entries = {
            one.metadata.key: _Registered.decode(one.metadata.value or b"")
            for one in self.keys.snapshot(_REGISTRY)
        }
        ids = {name: entry.id for name, entry in entries.items() if entry is not None and entry.in_use}
        usable = {id_ for name, id_ in ids.items() if is_usable(name)}
        return [name for name, id_ in ids.items() if is_usable(name) or id_ not in usable]

    def mark(self, name: str) -> str:
        """What tells a container from all others, wherever it is. Raises NoSuchContainerError."""
        return f"{self.keys.store_id.hex()}-{self._in_use(name)[0].id.hex()}"

    def rename(self, name: str, new: str) -> None:
        """Give a container another name. Raises NoSuchContainerError and ContainerExistsError.

        Other devices go by the former name for a while: see `wait_for_others`."""
        self._authority.require_writer()
        entry, tag = self._in_use(name)
        there, former = self._registered(new)
        if there is not None and there.in_use and there.id != entry.id:
            raise ContainerExistsError(new)
        try:
            if there != entry:
                self._register(new, entry, former)
            self._register(name, None, tag)
        except ConditionNotMetError:
            raise ContainerMovingError(name) from None

    def wait_for_others(self) -> None:
        """Let so much time pass that no device relies on a name that a container has no more. Raises
        HybrisError when the store is closed before."""
        until = self._boot_time() + self._limits.forgotten_seconds
        while (left := until - self._boot_time()) > 0:
            if self.keys.overwritten.is_closed:
                raise HybrisError("the container was not moved", "the volume is being closed")
            self._sleep(min(left, 1.0))

    def discard(self, name: str) -> None:
        """Remove a container that nobody uses, if it is there, with all that it holds. Raises
        CloudsUnavailable when a cloud that the volume still has does not delete it."""
        self._authority.require_writer()
        entry, tag = self._registered(name)
        if entry is not None:
            self.keys.erase(entry.id, f"the container {name!r}")
            with suppress(ConditionNotMetError):
                self._register(name, None, tag)

    @contextmanager
    def entries(self, name: str) -> Iterator[Iterator[Entry]]:
        """All keys of a container, also those that were deleted, in order; while others write to it, each as
        of a moment of its own."""
        found = [
            Entry(
                one.metadata.key,
                timestamp_of(one.version),
                one.version.live,
                one.metadata.written,
                one.metadata.size,
                one.is_only,
            )
            for one in self.keys.snapshot(self._require(name).id, for_a_move=True)
        ]
        yield iter(sorted(found, key=lambda one: one.key.encode()))

    def copy(
        self,
        container: str,
        key: str,
        value: bytes | None,
        facts: KeyFacts,
        before: Entry | None,
        *,
        is_only: bool,
    ) -> None:
        """See `migrate.Movable` and `CloudKeys.copy`, whatever was there *before*."""
        self._authority.require_writer()
        box, label = self._require(container).id, _label(container, key)
        self.keys.copy(box, key, label, value, facts, is_only=is_only)

    # -- writing ---------------------------------------------------------------------------------

    def edit(
        self, container: str, key: str, change: Callable[[bytes | None], bytes]
    ) -> tuple[Timestamp, int]:
        with self.keys.rooms.edit():
            return super().edit(container, key, change)

    def tput(
        self,
        values: Mapping[Key, bytes | Source | None],
        conditions: Mapping[Key, Condition] | None = None,
        attributes: Mapping[Key, bytes] | None = None,
    ) -> Sequence[Timestamp]:
        needed, given = conditions or {}, attributes or {}
        if not values:
            return []
        if len(values) == 1 and needed.keys() <= values.keys():
            ((name, value),) = values.items()
            return [self._write(*name, value, needed.get(name), given.get(name, b""))]
        names = list(dict.fromkeys([*values, *needed]))
        self._authority.require_writer()
        known = {container: self._require(container) for container in {one.container for one in names}}
        written = self.keys.write_together(
            [
                InTransaction(
                    known[one.container].id,
                    one.key,
                    _label(*one),
                    one in values,
                    values.get(one),
                    needed.get(one),
                    given.get(one, b""),
                )
                for one in names
            ]
        )
        for container, found in known.items():
            self._require_unmoved(container, found)
        return written

    def _write(
        self,
        container: str,
        key: str,
        value: bytes | Source | None,
        condition: Condition | None,
        attributes: bytes,
    ) -> Timestamp:
        self._authority.require_writer()
        known = self._require(container)
        written = self.keys.write(known.id, key, _label(container, key), value, condition, attributes)
        self._require_unmoved(container, known)
        return written

    def _require_unmoved(self, container: str, known: _Known) -> None:
        """Raise HybrisError when what was written may have come too late to be moved with the container."""
        # It may have waited for its turn, for a slow line, or for this machine, which slept.
        if self._boot_time() - known.moment > _MARGIN * self._limits.forgotten_seconds:
            entry, _ = self._registered(container)
            if entry is None or entry.id != known.id:
                raise HybrisError(
                    "it is not known whether this was written",
                    "the container was moved at the same time",
                    "Read the key to see.",
                )

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
        """Return the newest value, also to weaker reads. Raises NoSuchKeyError, and
        ConditionNotMetError when it has not *tag*."""
        found = self._read(container, key, Part.VALUE)
        value, metadata = self.keys.codec.value(found.version, found.parts)
        facts = facts_of(found.version, metadata)
        if tag not in (None, facts.timestamp):
            raise ConditionNotMetError(_label(container, key), Condition(tag=tag), _Present(facts))
        return Versioned(value, facts)

    def stat(self, container: str, key: str) -> KeyFacts:
        """What there is to know of a value. Raises NoSuchKeyError."""
        found = self._read(container, key, Part.METADATA)
        data = next(iter(found.parts.values()))
        return facts_of(found.version, self.keys.codec.metadata(found.version, data))

    def _read(self, container: str, key: str, part: Part) -> Found:
        found = self.keys.read(self._require(container).id, key, _label(container, key), part)
        if found is None:
            raise NoSuchKeyError(container, key)
        return found

    @contextmanager
    def listing(
        self, container: str, prefix: str = "", *, after: str | None = None, most: int = 1000
    ) -> Iterator[Iterator[Sequence[KeyFacts]]]:
        """See `ContainerStore`; the moment is one within the call.

        The keys are in the objects: this device gets one object for each that it has not lately seen.
        """
        found = iter(
            [
                one
                for one in self.keys.listed(self._require(container).id)
                if one.key.startswith(prefix) and (after is None or one.key.encode() > after.encode())
            ]
        )
        yield iter(lambda: list(islice(found, most)), [])

    def latest(self, container: str) -> Sequence[Latest]:
        """The keys with values of a container, each with its latest version, as of one moment."""
        return self.keys.snapshot(self._require(container).id)

    def surveys(self) -> Iterator[Survey]:
        """What each cloud lacks, container by container; of their names, too."""
        names = [name for name in self.names() if is_usable(name)]
        for id_ in [_REGISTRY, *(known.id for known in map(self._find, names) if known is not None)]:
            yield self.keys.survey(id_)

    def close(self) -> None:
        """End the background work. Idempotent."""
        self.keys.close()


class _Present(NamedTuple):
    """A value that is there, for `ConditionNotMetError`."""

    facts: KeyFacts
    live: bool = True

    @property
    def sn(self) -> int:
        return self.facts.timestamp.sn

    @property
    def timestamp(self) -> Timestamp:
        return self.facts.timestamp

    @property
    def size(self) -> int:
        return self.facts.size


def _label(container: str, key: str) -> str:
    return f"{container}/{key}"


# -- the stores of a volume: one for each set of clouds that its log names ----------------------------


class CloudStores:
    """Opens a store when it is first asked for. Thread-safe."""

    def __init__(self, engine: Engine, owner: Owner, services: Services, authority: Authority) -> None:
        """*services* has the places, see `CloudPlace`. *authority*: see `CloudStore`."""
        self._engine = engine
        self._runner = Runner(engine.clouds, engine.environment)
        self._owner = owner
        self._services = services
        self._authority = authority
        self._lock = threading.Lock()
        self._stores: dict[str, CloudStore] = {}
        self._closed = False

    def urls(self) -> list[str]:
        """The places that the volume uses."""
        return [url for url in self._services.urls() if is_on_clouds(url)]

    def wished(self, wish: str) -> str:
        """The place that a person means, with the clouds of now. Raises UsageError."""
        return CloudPlace.wished(wish, self._engine.in_use, self._engine.f).url

    def at(self, url: str) -> CloudStore:
        """The store at a place. Raises HybrisError."""
        place = CloudPlace.parse(url)
        with self._lock:
            if self._closed:
                raise HybrisError("the volume is being closed")
            if url not in self._stores:
                self._stores[url] = CloudStore(
                    place, self._runner, self._owner.names, self._owner.epochs, self._authority
                )
            return self._stores[url]

    def use(self, url: str) -> CloudStore:
        """The store at a place, which the volume uses from now on. Raises HybrisError."""
        store = self.at(url)
        if url not in self._services.urls():
            self._services.add(url)
        return store

    def all(self) -> Iterator[tuple[str, CloudStore | HybrisError]]:
        """All stores with their places, or why they cannot be used."""
        for url in self.urls():
            try:
                yield url, self.at(url)
            except HybrisError as error:
                yield url, error

    def holding(self, container: str) -> CloudStore | None:
        """The store that has a container; None when none has it. Raises HybrisError when too few clouds
        answer, and none of the others has it."""
        trouble: Exception | None = None
        for _, store in self.all():
            try:
                if isinstance(store, HybrisError):
                    raise store
                if store.has_container(container):
                    return store
            except (HybrisError, CloudsUnavailable) as error:
                trouble = trouble or error
        if trouble is not None:
            raise trouble
        return None

    def keeping(self, cloud: int) -> list[str]:
        """The containers that keep their keys on a cloud, or have left them there in a move that has not
        ended. Raises HybrisError and CloudsUnavailable."""
        found: set[str] = set()
        for _, store in self.all():
            if isinstance(store, CloudStore) and cloud in store.place.clouds:
                found |= {name.partition("/")[0] for name in store.names()}
        return sorted(found)

    def close(self) -> None:
        """Close all stores. Idempotent."""
        with self._lock:
            self._closed = True
            stores = list(self._stores.values())
        for store in stores:
            store.close()
