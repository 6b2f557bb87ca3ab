"""Containers on the clouds themselves: no server, no metadata but the objects (PoWerStore, PASIS).

Each key is a register (`hybrisfs.cloud_registers`). Which containers there are is in registers, too: the keys
of a container without a name. A key that was deleted leaves a version that says so, for ever: without it, a
cloud that was away could bring back an earlier value.

A write looks whether its container is there at the most every minute. So it may take place in a container
that another device has dropped since; then this is there again, as a container that holds keys is not
dropped.

What is overwritten stays for `conditional.KEPT_SECONDS`, then the device that has overwritten it deletes it.
If that device does not get to it, the next write of the key or the next list of the container does.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

from blake3 import blake3

from hybrisfs.cloud_registers.conditional import KEPT_SECONDS, WRITE_SECONDS, write_if
from hybrisfs.cloud_registers.names import Names, Version
from hybrisfs.cloud_registers.register import Draft, Found, Part, Register
from hybrisfs.cloud_registers.rounds import Answer, Protocol, RoundFailedError
from hybrisfs.cloud_registers.runner import Runner
from hybrisfs.cloud_registers.snapshot import erase, take_snapshot
from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.errors import CloudsUnavailable, DispersalError
from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.cloud_objects import Metadata, ObjectCodec
from hybrisfs.kv.cloud_place import CloudPlace
from hybrisfs.kv.containers import Authority, Entry, Key, KeyFacts, Source, Versioned, edited
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    ContainerMovingError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.record import ABSENT, PRESENT, Condition, Timestamp, encode_key, is_usable
from hybrisfs.kv.rooms import Rooms, content_of, size_of
from hybrisfs.kv.seal import STORE_ID_SIZE, ValueSealer
from hybrisfs.registers.entries import MAX_ATTRIBUTES
from sync.codec import DecodeError, Reader, Writer
from sync.seal import SealKeys

__all__ = ["CloudStore", "CloudStoreLimits"]

log = logging.getLogger(__name__)

_REGISTRY: Final = b""  # stands for the container of the names of containers
_INNER_SIZE: Final = 16
_READ_SECONDS: Final = 60.0
_LIST_SECONDS: Final = 120.0
_LOOKS_AT_ONCE: Final = 16
_LISTS: Final = 4  # attempts
_CLEAR_SECONDS: Final = 10.0  # between two looks

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CloudStoreLimits:
    """See `hybrisfs.environment.Limits`."""

    known_seconds: float = 60.0
    """For how long a device does not look again whether a container is there."""
    forgotten_seconds: float = 60.0 + WRITE_SECONDS + 5.0
    """After that no write is under way to a container by a name that it had before."""


class _RefusedError(Exception):
    """The latest version is not as a condition says."""

    def __init__(self, found: Version | None) -> None:
        super().__init__()
        self.found = found


class _Registered(NamedTuple):
    """What the registry has of the name of a container: 1 for one in use and 0 for one that was dropped (u8),
    and what its objects are named by, which is random and stays when it gets another name (16 bytes)."""

    in_use: bool
    inner: bytes

    def encode(self) -> bytes:
        return Writer().u8(self.in_use).raw(self.inner).getvalue()

    @staticmethod
    def decode(data: bytes) -> _Registered:
        """Raises HybrisError: no correct device has written it."""
        try:
            reader = Reader(data)
            state, inner = reader.u8(), reader.raw(_INNER_SIZE)
            reader.end()
        except DecodeError as error:
            raise HybrisError(
                "a container cannot be used", f"what its name stands for is damaged: {error}"
            ) from error
        return _Registered(state == 1, inner)


class _Current(NamedTuple):
    """What a condition looks at, see `record.Current`."""

    sn: int
    timestamp: Timestamp
    live: bool
    size: int


class CloudStore:
    """The containers in one set of clouds. Thread-safe, see `ContainerStore`. Linearizable.

    Methods raise CloudsUnavailable when fewer clouds answer than are needed.
    """

    def __init__(
        self, place: CloudPlace, engine: Engine, key: bytes, epochs: SealKeys, authority: Authority
    ) -> None:
        """*key* names objects and proves that a member has made them, *epochs* has the keys that seal
        them."""
        store = blake3(place.url.encode(), key=blake3(b"hybrisfs cloud stores", key=key).digest())
        store_id = store.digest(STORE_ID_SIZE)
        environment = engine.environment
        self.place: Final = place
        self._store_id = store_id
        self._names = Names(key, store_id)
        self.codec: Final = ObjectCodec(self._names, ValueSealer(key, store_id, epochs), environment)
        self._clouds = engine.clouds
        self._runner = Runner(engine.clouds, environment)
        self._authority = authority
        self._time_ns = environment.time_ns
        self._limits = environment.limits.of(CloudStoreLimits)
        self._boot_time = environment.boot_time
        self._sleep = environment.sleep
        self._random_bytes = environment.random_bytes
        self._rooms = Rooms()
        self._known: dict[str, tuple[bytes, float]] = {}  # containers that were there, and when
        self._overwritten = _Overwritten(environment, self._clear)

    # -- containers ------------------------------------------------------------------------------

    def containers(self) -> Sequence[str]:
        """The names of all containers, sorted, but for those that are being moved."""
        return sorted(filter(is_usable, self.names()))

    def has_container(self, name: str) -> bool:
        """Whether there is a container of that name: nobody looks twice within a minute after it was."""
        return self._inner(name) is not None

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""
        self._authority.require_writer()
        entry, tag = self._registered(name)
        if entry is not None and entry.in_use:
            raise ContainerExistsError(name)
        inner = self._random_bytes(_INNER_SIZE) if entry is None else entry.inner
        try:
            self._register_as(name, _Registered(True, inner), tag)
        except ConditionNotMetError:
            raise ContainerExistsError(name) from None
        self._known[name] = inner, self._boot_time()

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys."""
        self._authority.require_writer()
        entry, tag = self._registered(name)
        if entry is None or not entry.in_use:
            raise self._no_such(name)
        if self._listed(entry.inner):
            raise ContainerInUseError(name)
        try:
            self._register_as(name, _Registered(False, entry.inner), tag)
        except ConditionNotMetError:
            raise self._no_such(name) from None

    def _inner(self, name: str) -> bytes | None:
        """What the objects of a container are named by; None when there is no such container."""
        known = self._known.get(name)
        if known is not None and self._boot_time() - known[1] < self._limits.known_seconds:
            return known[0]
        entry, tag = self._registered(name)
        if entry is None:
            return None
        if not entry.in_use:  # perhaps it was dropped while another device wrote to it
            if not self._listed(entry.inner):
                return None
            with suppress(ConditionNotMetError):
                self._register_as(name, entry._replace(in_use=True), tag)
        self._known[name] = entry.inner, self._boot_time()
        return entry.inner

    def _require_container(self, name: str) -> bytes:
        inner = self._inner(name)
        if inner is None:
            raise self._no_such(name)
        return inner

    def _no_such(self, name: str) -> NoSuchContainerError:
        return NoSuchContainerError(name, self.containers())

    def _registered(self, name: str) -> tuple[_Registered | None, Timestamp | None]:
        """What the registry has of a name, and the tag of that."""
        try:
            found = self._read(_REGISTRY, name, Part.VALUE)
        except NoSuchKeyError:
            return None, None
        value, _ = self.codec.value(found.version, found.parts)
        return _Registered.decode(value), _timestamp(found.version)

    def _register_as(self, name: str, entry: _Registered | None, tag: Timestamp | None) -> None:
        """Change what the registry has of a name, which had this tag: None, there was nothing. Raises
        ConditionNotMetError."""
        self._known.pop(name, None)
        condition = ABSENT if tag is None else Condition(tag=tag)
        self._write(_REGISTRY, Key("", name), None if entry is None else entry.encode(), condition, b"")

    # -- moving, see `hybrisfs.kv.migrate` -------------------------------------------------------

    def names(self) -> Sequence[str]:
        """The names of all containers. One that is about to get another name has its old one still."""
        found = {
            metadata.key: _Registered.decode(metadata.value or b"")
            for _, _, metadata in self._snapshot(_REGISTRY)
        }
        in_use = {one.inner for name, one in found.items() if one.in_use and is_usable(name)}
        return [
            name for name, one in found.items() if one.in_use and (is_usable(name) or one.inner not in in_use)
        ]

    def mark(self, name: str) -> str:
        """What tells a container from all others, wherever it is. Raises NoSuchContainerError."""
        entry, _ = self._registered(name)
        if entry is None or not entry.in_use:
            raise self._no_such(name)
        return f"{self._store_id.hex()}-{entry.inner.hex()}"

    def rename(self, name: str, new: str) -> None:
        """Give a container another name. Raises NoSuchContainerError and ContainerExistsError.

        Other devices go by the former name for a while: see `wait_for_others`."""
        self._authority.require_writer()
        entry, tag = self._registered(name)
        if entry is None or not entry.in_use:
            raise self._no_such(name)
        there, former = self._registered(new)
        if there is not None and there.in_use and there.inner != entry.inner:
            raise ContainerExistsError(new)
        try:
            if there != entry:
                self._register_as(new, entry, former)
            self._register_as(name, None, tag)
        except ConditionNotMetError:
            raise ContainerMovingError(name) from None

    def wait_for_others(self) -> None:
        """Let so much time pass that no device writes to a container by a name that it has no more. Raises
        HybrisError when the store is closed before."""
        until = self._boot_time() + self._limits.forgotten_seconds
        while (left := until - self._boot_time()) > 0:
            if self._overwritten.is_closed:
                raise HybrisError("the container was not moved", "the volume is being closed")
            self._sleep(min(left, 1.0))

    def discard(self, name: str) -> None:
        """Remove a container that nobody uses, if it is there, with all that it holds. Raises
        CloudsUnavailable when a cloud that the volume still has does not delete it."""
        self._authority.require_writer()
        entry, tag = self._registered(name)
        if entry is None:
            return
        prefix = self._names.of_container(entry.inner.hex())
        for cloud in self.place.clouds:
            if cloud in self._clouds:
                self.run(f"{name!r} was not deleted", erase(prefix, cloud), _LIST_SECONDS)
        with suppress(ConditionNotMetError):
            self._register_as(name, None, tag)

    @contextmanager
    def entries(self, name: str) -> Iterator[Iterator[Entry]]:
        """All keys of a container, also those that were deleted, in order; while others write to it, each as
        of a moment of its own."""
        found = [
            Entry(metadata.key, _timestamp(version), version.live, metadata.written)
            for _, version, metadata in self._snapshot(self._require_container(name), for_a_move=True)
        ]
        yield iter(sorted(found, key=lambda one: one.key.encode()))

    def copy(
        self, container: str, key: str, value: bytes | None, facts: KeyFacts, before: Entry | None
    ) -> None:
        """Write a value with the version, the time and the attributes that it has elsewhere; None: delete it.
        What a later one has been written to stays."""
        self._authority.require_writer()
        inner = self._require_container(container)
        with self._rooms.taken([len(value or b"")]):
            register = self._register(inner, key)
            draft = self._draft(key, value, facts.attributes, facts.written)
            what = f"the value of {container}/{key} was not copied"
            self.run(what, register.write(draft, facts.timestamp.sn), WRITE_SECONDS)

    # -- writing ---------------------------------------------------------------------------------

    def put(
        self,
        container: str,
        key: str,
        value: bytes | Source,
        condition: Condition | None = None,
        attributes: bytes = b"",
    ) -> Timestamp:
        """Write a value, on a quorum of the clouds when it returns; return when it was written. Raises
        ConditionNotMetError when the key is not as *condition* says."""
        self._authority.require_writer()
        inner = self._require_container(container)
        return self._write(inner, Key(container, key), value, condition, attributes)

    def edit(
        self, container: str, key: str, change: Callable[[bytes | None], bytes]
    ) -> tuple[Timestamp, int]:
        """See `edited`."""
        with self._rooms.edit():
            return edited(self, container, key, change)

    def delete(self, container: str, key: str, condition: Condition | None = None) -> Timestamp | None:
        """Delete a key. Return the time of the deletion, or None: there was no such key. Raises
        ConditionNotMetError."""
        self._authority.require_writer()
        inner = self._require_container(container)
        try:
            return self._write(inner, Key(container, key), None, condition or PRESENT, b"")
        except ConditionNotMetError:
            if condition is not None:
                raise
            return None

    def tput(
        self,
        values: Mapping[Key, bytes | Source | None],
        conditions: Mapping[Key, Condition] | None = None,
        attributes: Mapping[Key, bytes] | None = None,
    ) -> Sequence[Timestamp]:
        """Write the value of one key, or delete it. Raises ConditionNotMetError, and UsageError for several
        keys: registers of their own have no common moment at which they change."""
        if not values:
            return []
        needed = conditions or {}
        if len(values) > 1 or not needed.keys() <= values.keys():
            raise UsageError(
                "a transaction of several keys is not possible here",
                "each key of a container on the clouds is for itself",
                "hybrisfs kv create --metadata device, log or etcd://... makes a container for it.",
            )
        ((name, value),) = values.items()
        if value is not None:
            return [self.put(*name, value, needed.get(name), (attributes or {}).get(name, b""))]
        self._authority.require_writer()
        inner = self._require_container(name.container)
        return [self._write(inner, name, None, needed.get(name), b"")]

    def _write(
        self,
        inner: bytes,
        name: Key,
        value: bytes | Source | None,
        condition: Condition | None,
        attributes: bytes,
    ) -> Timestamp:
        if condition is not None and condition.version:
            raise UsageError(
                "a version is no condition here",
                "on the clouds, two values written at the same time may have one version",
                "kv put --if-match TAG names one value; kv list shows its tag.",
            )
        if len(attributes) > MAX_ATTRIBUTES:
            raise UsageError("the attributes are too large", f"they have at most {MAX_ATTRIBUTES:,} bytes")
        with self._rooms.taken([size_of(value)]):
            register = self._register(inner, name.key, size_of(value) // self.place.thresholds.k)
            written = self._time_ns() // 1_000_000
            draft = self._draft(name.key, content_of(value), attributes, written)
            version = self._carry_out(name, register, draft, condition)
        self._overwritten.add(register.names.prefix, version)
        return _timestamp(version)

    def _draft(self, key: str, value: bytes | None, attributes: bytes, written: int) -> Draft:
        return self.codec.draft(key, value, attributes, written, self.place.thresholds.k, self.place.clouds)

    def _carry_out(self, name: Key, register: Register, draft: Draft, condition: Condition | None) -> Version:
        def check(found: Version | None) -> None:
            if condition is not None and not condition.holds(_current(found)):
                raise _RefusedError(found)

        protocol = register.write(draft) if condition is None else write_if(register, draft, check)
        what = f"the container {name.key!r} was not registered"
        if name.container:
            what = f"the value of {'/'.join(name)} was not written"
        try:
            return self.run(what, protocol, WRITE_SECONDS)
        except CloudsUnavailable as error:
            if draft.exposed:
                raise HybrisError(
                    "it is not known whether this was written", str(error), "Read the key to see."
                ) from error
            raise
        except _RefusedError as refused:
            current = _current(refused.found)
            if refused.found is not None and current is not None and condition is not None:
                current = current._replace(size=self._size(register, refused.found))
            raise ConditionNotMetError("/".join(name), condition or PRESENT, current) from None

    def _size(self, register: Register, version: Version) -> int:
        """The size of a value that is in the way; 0 when it was overwritten since."""
        if not version.live:
            return 0
        metadata = self._look(register, version)
        return 0 if metadata is None else metadata.size

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
        """Return the newest value, which does for all weaker reads, too. Raises NoSuchKeyError, and
        ConditionNotMetError when it has not *tag*."""
        found = self._read(self._require_container(container), key, Part.VALUE, container)
        if tag is not None and _timestamp(found.version) != tag:
            raise ConditionNotMetError(f"{container}/{key}", Condition(tag=tag), _current(found.version))
        value, metadata = self.codec.value(found.version, found.parts)
        return Versioned(value, _facts(key, found.version, metadata))

    def stat(self, container: str, key: str) -> KeyFacts:
        """What there is to know of a value. Raises NoSuchKeyError."""
        found = self._read(self._require_container(container), key, Part.METADATA, container)
        return _facts(
            key, found.version, self.codec.metadata(found.version, next(iter(found.parts.values())))
        )

    def values(self, container: str, key: str) -> Sequence[KeyFacts]:
        """The value of a key, which is never more than one. Raises NoSuchKeyError."""
        return [self.stat(container, key)]

    def list(
        self, container: str, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Sequence[KeyFacts]:
        """All keys that begin with *prefix* and follow *after*, or the first *limit* of them, in the order of
        their UTF-8 bytes, as of one moment."""
        with self.listing(container, prefix, after=after) as pages:
            return list(islice(chain.from_iterable(pages), limit))

    @contextmanager
    def listing(
        self, container: str, prefix: str = "", *, after: str | None = None, most: int = 1000
    ) -> Iterator[Iterator[Sequence[KeyFacts]]]:
        """The same in pages of at most *most* keys, all of one moment within the call.

        The keys are in the objects: this device gets one object for each that it has not lately seen.
        """
        inner = self._require_container(container)
        found = iter(
            [
                one
                for one in self._listed(inner)
                if one.key.startswith(prefix) and (after is None or one.key.encode() > after.encode())
            ]
        )
        yield iter(lambda: list(islice(found, most)), [])

    def latest(self, container: str) -> Iterator[tuple[str, Register, Version]]:
        """The keys with values of a container, each with its latest version, as of one moment."""
        for prefix, version, metadata in self._snapshot(self._require_container(container)):
            yield metadata.key, self._register_at(prefix), version

    def run(self, what: str, protocol: Protocol[_T], seconds: float) -> _T:
        """See `Runner.run`."""
        return self._runner.run(what, protocol, seconds)

    def close(self) -> None:
        """End the background work. Idempotent."""
        self._overwritten.close()

    # -- helpers ---------------------------------------------------------------------------------

    def _register(self, inner: bytes, key: str, size: int = 0) -> Register:
        return self._register_at(self._names.of_register(inner.hex(), encode_key(key)).prefix, size)

    def _register_at(self, prefix: str, size: int = 0) -> Register:
        order = self._runner.order(self.place.clouds, size)
        return Register(self._names.at(prefix), order, self.place.thresholds, self.codec)

    def _read(self, inner: bytes, key: str, part: Part, container: str = "") -> Found:
        """The value of a key. Raises NoSuchKeyError."""
        register = self._register(inner, key)
        what = f"{container}/{key} cannot be read" if container else f"the container {key!r} was not found"
        with self._rooms.taken([0]):
            found = self.run(what, register.read(part), _READ_SECONDS)
        if found is None or not found.version.live:
            raise NoSuchKeyError(container, key)
        return found

    def _listed(self, inner: bytes) -> Sequence[KeyFacts]:
        """All keys of a container with values, in order, as of one moment."""
        found = [_facts(one.key, version, one) for _, version, one in self._snapshot(inner)]
        return sorted(found, key=lambda one: one.key.encode())

    def _snapshot(self, inner: bytes, *, for_a_move: bool = False) -> Sequence[tuple[str, Version, Metadata]]:
        """The prefixes of the registers of a container that have values, with these, as of one moment; with
        *for_a_move* those that have none any more, too, and each as of a moment of its own."""
        prefix = self._names.of_container(inner.hex())
        what = "the keys of a container cannot be listed"
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, "kv-list") as pool:
            for _ in range(_LISTS):
                snapshot = take_snapshot(
                    self._register_at, prefix, lambda one: self._divide(inner, one), steady=not for_a_move
                )
                found, crowded = self.run(what, snapshot, _LIST_SECONDS)
                for name, version in crowded.items():
                    self._overwritten.add(name, version)
                live = [(name, version) for name, version in found.items() if version.live or for_a_move]
                looks = pool.map(lambda one: self._look(self._register_at(one[0]), one[1]), live)
                known = [
                    (name, version, metadata)
                    for (name, version), metadata in zip(live, looks, strict=True)
                    if metadata is not None
                ]
                if len(known) == len(live):
                    return known
        raise HybrisError(what, "others write to it all the time", "Try again.")

    def _divide(self, inner: bytes, answer: Answer) -> dict[str, Answer]:
        registers = self._names.registers(inner.hex(), answer.names)
        return {prefix: Answer(tuple(names)) for prefix, names in registers.items()}

    def _look(self, register: Register, version: Version) -> Metadata | None:
        """What a version says of itself; None when it was overwritten and deleted since."""
        known = self.codec.known(version)
        if known is not None:
            return known
        try:
            parts = self.run("a key cannot be read", register.look(version), _READ_SECONDS)
        except RoundFailedError:
            return None
        return self.codec.metadata(version, next(iter(parts.values())))

    def _clear(self, prefix: str, version: Version) -> None:
        for cloud in self.place.clouds:
            protocol = self._register_at(prefix).clear(version, cloud)
            try:
                self.run("what was overwritten was not deleted", protocol, _READ_SECONDS)
            except (HybrisError, DispersalError) as error:
                log.info("it stays until the next write: %s", error)


class _Overwritten:
    """Deletes what is before versions that have been complete for long enough, in a thread of its own."""

    def __init__(self, environment: Environment, clear: Callable[[str, Version], None]) -> None:
        """*clear* deletes what is before a version of the register with this prefix."""
        self._clock = environment.boot_time
        self._wait = environment.wait
        self._clear = clear
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, str, Version]] = deque()
        self.is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, prefix: str, version: Version) -> None:
        """The version is complete now."""
        with self._changed:
            if self.is_closed:
                return
            self._waiting.append((self._clock() + KEPT_SECONDS, prefix, version))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kv-overwritten", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            due: dict[str, Version] = {}
            with self._changed:
                self._wait(self._changed, lambda: self.is_closed, _CLEAR_SECONDS)
                if self.is_closed:
                    return
                while self._waiting and self._waiting[0][0] <= self._clock():
                    _, prefix, version = self._waiting.popleft()
                    due[prefix] = version
            for prefix, version in due.items():
                self._clear(prefix, version)
                if self.is_closed:
                    return

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()


def _timestamp(version: Version) -> Timestamp:
    return Timestamp(version.time.version, version.write)


def _current(version: Version | None) -> _Current | None:
    """What a condition looks at."""
    if version is None:
        return None
    return _Current(version.time.version, _timestamp(version), version.live, 0)


def _facts(key: str, version: Version, metadata: Metadata) -> KeyFacts:
    return KeyFacts(key, metadata.size, _timestamp(version), metadata.written, metadata.attributes)
