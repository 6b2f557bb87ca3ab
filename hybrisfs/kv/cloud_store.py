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
from contextlib import contextmanager
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

from blake3 import blake3

from hybrisfs.cloud_registers.conditional import KEPT_SECONDS, WRITE_SECONDS, write_if
from hybrisfs.cloud_registers.names import Names, Version
from hybrisfs.cloud_registers.register import Draft, Found, Part, Register
from hybrisfs.cloud_registers.rounds import Answer, Protocol, RoundFailedError
from hybrisfs.cloud_registers.runner import Runner
from hybrisfs.cloud_registers.snapshot import take_snapshot
from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.errors import CloudsUnavailable, DispersalError
from hybrisfs.environment import Environment
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.cloud_objects import Metadata, ObjectCodec
from hybrisfs.kv.cloud_place import CloudPlace
from hybrisfs.kv.containers import Authority, Key, KeyFacts, Source, Versioned, edited
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.record import ABSENT, PRESENT, Condition, Timestamp, encode_key
from hybrisfs.kv.rooms import Rooms, content_of, size_of
from hybrisfs.kv.seal import STORE_ID_SIZE, ValueSealer
from hybrisfs.registers.entries import MAX_ATTRIBUTES
from sync.seal import SealKeys

__all__ = ["CloudStore"]

log = logging.getLogger(__name__)

_REGISTRY: Final = ""  # the container of the names of containers
_KNOWN_SECONDS: Final = 60.0
_READ_SECONDS: Final = 60.0
_LIST_SECONDS: Final = 120.0
_LOOKS_AT_ONCE: Final = 16
_LISTS: Final = 4  # attempts
_CLEAR_SECONDS: Final = 10.0  # between two looks

_T = TypeVar("_T")


class _RefusedError(Exception):
    """The latest version is not as a condition says."""

    def __init__(self, found: Version | None) -> None:
        super().__init__()
        self.found = found


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
        self._names = Names(key, store_id)
        self.codec: Final = ObjectCodec(self._names, ValueSealer(key, store_id, epochs), environment)
        self._runner = Runner(engine.clouds, environment)
        self._authority = authority
        self._time_ns = environment.time_ns
        self._monotonic = environment.monotonic
        self._rooms = Rooms()
        self._known: dict[str, float] = {}  # containers that were there, and when
        self._overwritten = _Overwritten(environment, self._clear)

    # -- containers ------------------------------------------------------------------------------

    def containers(self) -> Sequence[str]:
        """The names of all containers, sorted."""
        return [one.key for one in self._listed(_REGISTRY)]

    def has_container(self, name: str) -> bool:
        """Whether there is a container of that name: nobody looks twice within a minute after it was."""
        known = self._known.get(name)
        if known is not None and self._monotonic() - known < _KNOWN_SECONDS:
            return True
        return self._look_for(name)

    def _look_for(self, name: str) -> bool:
        register = self._register(_REGISTRY, name)
        found = self.run(f"the container {name!r} was not found", register.read(Part.NOTHING), _READ_SECONDS)
        there = found is not None and found.version.live
        if not there and found is not None:  # it was dropped while another device wrote to it
            there = bool(self._listed(name))
        if there:
            self._known[name] = self._monotonic()
        else:
            self._known.pop(name, None)
        return there

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""
        self._authority.require_writer()
        try:
            self._write(Key(_REGISTRY, name), b"", ABSENT, b"")
        except ConditionNotMetError:
            raise ContainerExistsError(name) from None
        self._known[name] = self._monotonic()

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys."""
        self._authority.require_writer()
        if not self._look_for(name):
            raise NoSuchContainerError(name, self.containers())
        if self._listed(name):
            raise ContainerInUseError(name)
        self._known.pop(name, None)
        try:
            self._write(Key(_REGISTRY, name), None, PRESENT, b"")
        except ConditionNotMetError:
            raise NoSuchContainerError(name, self.containers()) from None

    def _require_container(self, name: str) -> None:
        if not self.has_container(name):
            raise NoSuchContainerError(name, self.containers())

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
        self._require_container(container)
        return self._write(Key(container, key), value, condition, attributes)

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
        self._require_container(container)
        try:
            return self._write(Key(container, key), None, condition or PRESENT, b"")
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
        self._require_container(name.container)
        return [self._write(name, None, needed.get(name), b"")]

    def _write(
        self, name: Key, value: bytes | Source | None, condition: Condition | None, attributes: bytes
    ) -> Timestamp:
        if condition is not None and condition.version:
            raise UsageError(
                "a version is no condition here",
                "on the clouds, two values written at the same time may have one version",
                "kv put --if-match TAG names one value; kv list shows its tag.",
            )
        if len(attributes) > MAX_ATTRIBUTES:
            raise UsageError("the attributes are too large", f"they have at most {MAX_ATTRIBUTES:,} bytes")
        thresholds = self.place.thresholds
        with self._rooms.taken([size_of(value)]):
            register = self._register(*name, size=size_of(value) // thresholds.k)
            draft = self.codec.draft(
                name.key,
                content_of(value),
                attributes,
                self._time_ns() // 1_000_000,
                thresholds.k,
                self.place.clouds,
            )
            version = self._carry_out(name, register, draft, condition)
        self._overwritten.add(register.names.prefix, version)
        return _timestamp(version)

    def _carry_out(self, name: Key, register: Register, draft: Draft, condition: Condition | None) -> Version:
        def check(found: Version | None) -> None:
            if condition is not None and not condition.holds(_current(found)):
                raise _RefusedError(found)

        protocol = register.write(draft) if condition is None else write_if(register, draft, check)
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
        found = self._read(container, key, Part.VALUE)
        if tag is not None and _timestamp(found.version) != tag:
            raise ConditionNotMetError(f"{container}/{key}", Condition(tag=tag), _current(found.version))
        value, metadata = self.codec.value(found.version, found.parts)
        return Versioned(value, _facts(key, found.version, metadata))

    def stat(self, container: str, key: str) -> KeyFacts:
        """What there is to know of a value. Raises NoSuchKeyError."""
        found = self._read(container, key, Part.METADATA)
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
        self._require_container(container)
        found = iter(
            [
                one
                for one in self._listed(container)
                if one.key.startswith(prefix) and (after is None or one.key.encode() > after.encode())
            ]
        )
        yield iter(lambda: list(islice(found, most)), [])

    def latest(self, container: str) -> Iterator[tuple[str, Register, Version]]:
        """The keys with values of a container, each with its latest version, as of one moment."""
        for prefix, version, metadata in self._snapshot(container):
            yield metadata.key, self._register_at(prefix), version

    def run(self, what: str, protocol: Protocol[_T], seconds: float) -> _T:
        """See `Runner.run`."""
        return self._runner.run(what, protocol, seconds)

    def close(self) -> None:
        """End the background work. Idempotent."""
        self._overwritten.close()

    # -- helpers ---------------------------------------------------------------------------------

    def _register(self, container: str, key: str, size: int = 0) -> Register:
        return self._register_at(self._names.of_register(container, encode_key(key)).prefix, size)

    def _register_at(self, prefix: str, size: int = 0) -> Register:
        order = self._runner.order(self.place.clouds, size)
        return Register(self._names.at(prefix), order, self.place.thresholds, self.codec)

    def _read(self, container: str, key: str, part: Part) -> Found:
        register = self._register(container, key)
        what = f"{container}/{key} cannot be read"
        with self._rooms.taken([0]):
            found = self.run(what, register.read(part), _READ_SECONDS)
        if found is None or not found.version.live:
            self._require_container(container)
            raise NoSuchKeyError(container, key)
        return found

    def _listed(self, container: str) -> Sequence[KeyFacts]:
        """All keys of a container with values, in order, as of one moment."""
        found = [_facts(one.key, version, one) for _, version, one in self._snapshot(container)]
        return sorted(found, key=lambda one: one.key.encode())

    def _snapshot(self, container: str) -> Sequence[tuple[str, Version, Metadata]]:
        """The prefixes of the registers of a container that have values, with these, as of one moment."""
        prefix = self._names.of_container(container)
        what = f"the keys of the container {container!r} cannot be listed"
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, "kv-list") as pool:
            for _ in range(_LISTS):
                snapshot = take_snapshot(self._register_at, prefix, lambda one: self._divide(container, one))
                found, crowded = self.run(what, snapshot, _LIST_SECONDS)
                for name, version in crowded.items():
                    self._overwritten.add(name, version)
                live = [(name, version) for name, version in found.items() if version.live]
                looks = pool.map(lambda one: self._look(self._register_at(one[0]), one[1]), live)
                known = [
                    (name, version, metadata)
                    for (name, version), metadata in zip(live, looks, strict=True)
                    if metadata is not None
                ]
                if len(known) == len(live):
                    return known
        raise HybrisError(what, "others write to it all the time", "Try again.")

    def _divide(self, container: str, answer: Answer) -> dict[str, Answer]:
        registers = self._names.registers(container, answer.names)
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
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, prefix: str, version: Version) -> None:
        """The version is complete now."""
        with self._changed:
            if self._closed:
                return
            self._waiting.append((self._clock() + KEPT_SECONDS, prefix, version))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kv-overwritten", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            due: dict[str, Version] = {}
            with self._changed:
                self._wait(self._changed, lambda: self._closed, _CLEAR_SECONDS)
                if self._closed:
                    return
                while self._waiting and self._waiting[0][0] <= self._clock():
                    _, prefix, version = self._waiting.popleft()
                    due[prefix] = version
            for prefix, version in due.items():
                self._clear(prefix, version)
                if self._closed:
                    return

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self._changed:
            self._closed = True
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
