"""The keys of containers on one set of clouds: each is a register (`hybrisfs.quorums`).

A key that was deleted leaves a version that says so, for ever: without it, a cloud that was away could bring
back an earlier value. What is overwritten stays for `conditional.KEPT_SECONDS`; then the device that has
overwritten it deletes it. If that device does not get to it, the next write of the key or the next list of
the container does.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from blake3 import blake3

from hybrisfs.dispersal.errors import CloudsUnavailable, DispersalError, IntegrityError, UnreadableHereError
from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.cloud_objects import Metadata, ObjectCodec
from hybrisfs.kv.cloud_place import CloudPlace
from hybrisfs.kv.containers import KeyFacts, Source
from hybrisfs.kv.errors import AmbiguousVersionError, ConditionNotMetError
from hybrisfs.kv.record import Condition, Timestamp, encode_key
from hybrisfs.kv.rooms import Rooms, content_of, size_of
from hybrisfs.kv.seal import STORE_ID_SIZE, ValueSealer
from hybrisfs.quorums.consensus import KEPT_SECONDS
from hybrisfs.quorums.names import Names, Version
from hybrisfs.quorums.reading import collect, is_latest, read
from hybrisfs.quorums.register import Draft, Found, Part, Register
from hybrisfs.quorums.rounds import Answer, Protocol, ProtocolRunner, RoundFailedError
from hybrisfs.quorums.snapshot import Holds, Snapshot, Survey, erase, survey, take_snapshot
from hybrisfs.quorums.transaction import Member, Transaction, tidy, write_if
from hybrisfs.registers.entries import MAX_ATTRIBUTES
from sync.seal import SealKeys

__all__ = ["CloudKeys", "InTransaction", "Latest", "facts_of", "timestamp_of"]

log = logging.getLogger(__name__)

_LISTS: Final = 4  # attempts
_CLEAR_SECONDS: Final = 10.0  # between two looks

T = TypeVar("T")

Over: TypeAlias = Version | bytes
"""A version that is complete, or the commitment of a transaction that was decided."""


class Latest(NamedTuple):
    """The latest version of a key, and what its objects say."""

    register: Register
    version: Version
    metadata: Metadata
    is_only: bool
    """See `Found.is_only`."""


class InTransaction(NamedTuple):
    """A key of a transaction. If it is not written, the transaction depends on it."""

    container: bytes
    key: str
    label: str
    """What people call it."""
    is_written: bool
    value: bytes | Source | None
    condition: Condition | None
    attributes: bytes


class _RefusedError(Exception):
    """The latest version of a key, which people call *label*, is not as a condition says."""

    def __init__(self, register: Register, label: str, condition: Condition, found: Version | None) -> None:
        super().__init__()
        self.register = register
        self.label = label
        self.condition = condition
        self.found = found


class _Current(NamedTuple):
    """What a condition looks at, see `record.Current`."""

    sn: int
    timestamp: Timestamp
    live: bool
    size: int


class CloudKeys:
    """The keys on one set of clouds, by the ids of their containers. Thread-safe. Linearizable.

    Methods raise CloudsUnavailable when fewer clouds answer than are needed.
    """

    def __init__(self, place: CloudPlace, runner: ProtocolRunner, key: bytes, epochs: SealKeys) -> None:
        """*key* names objects and proves that a member has made them, *epochs* has the keys that seal
        them."""
        environment = runner.environment
        store = blake3(place.url.encode(), key=blake3(b"hybrisfs cloud stores", key=key).digest())
        self.store_id: Final = store.digest(STORE_ID_SIZE)
        self.place: Final = place
        self.names: Final = Names(key, self.store_id)
        self.codec: Final = ObjectCodec(self.names, ValueSealer(key, self.store_id, epochs), environment)
        self.rooms: Final = Rooms()
        self.overwritten: Final = Overwritten(runner, self._clear)
        self._runner = runner
        self._time_ns = environment.time_ns
        self._random_bytes = environment.random_bytes
        self._environment = environment
        self._holds: dict[bytes, Holds] = {}  # by container

    # -- writing ---------------------------------------------------------------------------------

    def write(
        self,
        container: bytes,
        key: str,
        label: str,
        value: bytes | Source | None,
        condition: Condition | None,
        attributes: bytes,
    ) -> Timestamp:
        """Write a value, None: delete the key, which people call *label*. Raises ConditionNotMetError, and
        UsageError."""
        _require_small(attributes)
        with self.rooms.taken([size_of(value)]):
            register = self._register(container, key, size_of(value) // self.place.thresholds.k)
            draft = self._draft(key, content_of(value), attributes, self._time_ns() // 1_000_000)
            if condition is None:
                protocol = register.write(draft)
            else:
                protocol = write_if(register, draft, partial(_check, register, label, condition))
            protocol = self._holds_of(container).waiting(protocol)
            version = self._carry_out(f"{label} was not written", draft, protocol)
        self.overwritten.add(register.names.prefix, version)
        return timestamp_of(version)

    def write_together(self, keys: Sequence[InTransaction]) -> Sequence[Timestamp]:
        """Write several keys at one moment, or none; see `write`."""
        for one in keys:
            _require_small(one.attributes)
        moment = self._time_ns() // 1_000_000
        with self.rooms.taken([size_of(one.value) for one in keys if one.is_written]):
            members = [self._member(one, moment) for one in keys]
            transaction = Transaction(members)
            protocol = transaction.write()
            for container in {one.container for one in keys if one.is_written}:
                protocol = self._holds_of(container).waiting(protocol)
            try:
                versions = self._carry_out("nothing was written", transaction, protocol)
            finally:
                for commitment in transaction.ended:
                    names = members[0].register.names.of_transaction(commitment)
                    self.overwritten.add(names.prefix, commitment)
        written = [one.register for one in members if one.draft is not None]
        for register, version in zip(written, versions, strict=True):
            self.overwritten.add(register.names.prefix, version)
        return [timestamp_of(version) for version in versions]

    def _member(self, one: InTransaction, moment: int) -> Member:
        register, draft = self._register(one.container, one.key), None
        if one.is_written:
            draft = self._draft(one.key, content_of(one.value), one.attributes, moment)
        return Member(register, draft, partial(_check, register, one.label, one.condition))

    def copy(
        self, container: bytes, key: str, label: str, value: bytes | None, facts: KeyFacts, *, is_only: bool
    ) -> None:
        """Write a value with the version, the time and the attributes that it has elsewhere; None: delete it.
        If it *is_only*, nothing is written where that version, or a later one, is there already."""
        with self.rooms.taken([len(value or b"")]):
            draft = self._draft(key, value, facts.attributes, facts.written)
            protocol = self._register(container, key).copy(draft, facts.timestamp.sn, is_only=is_only)
            self.run(f"{label} was not copied", protocol)

    def _draft(self, key: str, value: bytes | None, attributes: bytes, written: int) -> Draft:
        return self.codec.draft(key, value, attributes, written, self.place.thresholds.k, self.place.clouds)

    def _carry_out(self, what: str, write: Draft | Transaction, protocol: Protocol[T]) -> T:
        """Carry out a write, which may take place as soon as it is `exposed`."""
        try:
            return self.run(what, protocol)
        except CloudsUnavailable as error:
            if write.exposed:
                raise HybrisError(
                    "it is not known whether this was written", str(error), "Read the key to see."
                ) from error
            raise
        except _RefusedError as refused:
            current = _current(refused.found)
            if refused.found is not None and current is not None:
                current = current._replace(size=self._size(refused.register, refused.found))
            raise ConditionNotMetError(refused.label, refused.condition, current) from None

    def _size(self, register: Register, version: Version) -> int:
        """The size of a value that is in the way; 0 when it was overwritten since."""
        try:
            return self._look(register, version).size if version.live else 0
        except RoundFailedError:
            return 0

    # -- reading ---------------------------------------------------------------------------------

    def read(self, container: bytes, key: str, label: str, part: Part) -> Found | None:
        """The latest version of a key; None when it has no value."""
        register, what = self._register(container, key), f"{label} cannot be read"
        with self.rooms.taken([0]):
            lists = self.run(what, collect(register))
        latest = register.latest(lists)
        if latest is None:
            return None
        with self.rooms.taken([latest.size * latest.needed if part is Part.VALUE else 0]):
            found = self.run(what, read(register, part, lists))
        return found if found is not None and found.version.live else None

    def listed(self, container: bytes) -> Sequence[KeyFacts]:
        """All keys of a container with values, in order, as of one moment."""
        found = [facts_of(one.version, one.metadata) for one in self.snapshot(container)]
        return sorted(found, key=lambda one: one.key.encode())

    def snapshot(self, container: bytes, *, for_a_move: bool = False) -> Sequence[Latest]:
        """The keys of a container that have values, as of one moment; with *for_a_move* those that have none
        any more, too, and each as of a moment of its own."""
        what = "the keys of a container cannot be listed"
        for _ in range(_LISTS):
            found = self.run(what, self._list(container, steady=not for_a_move))
            for name, version in found.crowded.items():
                self.overwritten.add(name, version)
            wanted = [
                (self._register_at(name), version, name not in found.shared)
                for name, version in found.latest.items()
                if version.live or for_a_move
            ]
            looks = self._runner.each(lambda one: self._look_safely(one[0], one[1]), wanted)
            if None not in looks:
                return [
                    Latest(register, version, metadata, is_only)
                    for (register, version, is_only), metadata in zip(wanted, looks, strict=True)
                    if isinstance(metadata, Metadata)
                ]
        raise HybrisError(what, "others write to it all the time", "Try again.")

    def survey(self, container: bytes) -> Survey:
        """Which clouds lack something of the keys of a container, by what they list."""
        prefix = self.names.of_container(container.hex())
        what = "the clouds that keep a container cannot be looked at"
        return self.run(what, survey(self._register_at, prefix, lambda one: self._divide(container, one)))

    def _list(self, container: bytes, *, steady: bool = True) -> Protocol[Snapshot]:
        return take_snapshot(
            self._register_at,
            self.names.of_container(container.hex()),
            lambda one: self._divide(container, one),
            self._holds_of(container),
            int.from_bytes(self._random_bytes(8)),
            steady=steady,
        )

    def _divide(self, container: bytes, answer: Answer) -> dict[str, Answer]:
        registers = self.names.registers(container.hex(), answer.names)
        return {prefix: Answer(tuple(names)) for prefix, names in registers.items()}

    def _look_safely(self, register: Register, version: Version) -> Metadata | DispersalError | None:
        """See `_look`; None when it was overwritten and deleted since. What no correct device has written is
        left out of lists, so that a member that lies hides one key and not all of them."""
        try:
            return self._look(register, version)
        except UnreadableHereError:
            raise
        except RoundFailedError as error:
            denied = error.denials > self.place.thresholds.denials
            if not denied or not self.run("a key cannot be read", is_latest(register, version)):
                return None
            damage: DispersalError = error
        except IntegrityError as error:
            damage = error
        log.warning("a key is left out of a list: what a member has written there is damaged: %s", damage)
        return damage

    def _look(self, register: Register, version: Version) -> Metadata:
        """What a version says of itself. Raises RoundFailedError."""
        known = self.codec.known(version)
        if known is not None:
            return known
        parts = self.run("a key cannot be read", register.look(version))
        return self.codec.metadata(version, next(iter(parts.values())))

    def run(self, what: str, protocol: Protocol[T]) -> T:
        """See `ProtocolRunner.run`."""
        return self._runner.run(what, protocol)

    # -- the end of keys -------------------------------------------------------------------------

    def erase(self, container: bytes, label: str) -> None:
        """Delete all that a container holds from the clouds that the volume still has."""
        prefixes = self.names.of_container(container.hex()), self.names.of_holds(container.hex()).prefix
        for cloud in filter(self._runner.has, self.place.clouds):
            for prefix in prefixes:
                self.run(f"{label} was not deleted", erase(prefix, cloud))

    def _clear(self, prefix: str, over: Over) -> None:
        for cloud in self.place.clouds:
            register = self._register_at(prefix)
            if isinstance(over, Version):
                protocol = register.clear(over, cloud)
            else:
                protocol = tidy(register, over, cloud)
            try:
                self.run("what was overwritten was not deleted", protocol)
            except (HybrisError, DispersalError) as error:
                log.info("it stays until the next write: %s", error)

    def close(self) -> None:
        """End the background work. Idempotent."""
        self.overwritten.close()

    # -- registers -------------------------------------------------------------------------------

    def _holds_of(self, container: bytes) -> Holds:
        found = self._holds.get(container)
        if found is None:
            names = self.names.of_holds(container.hex())
            found = Holds(names, self.place.clouds, self.place.thresholds, self._environment)
        return self._holds.setdefault(container, found)

    def _register(self, container: bytes, key: str, size: int = 0) -> Register:
        return self._register_at(self.names.of_register(container.hex(), encode_key(key)).prefix, size)

    def _register_at(self, prefix: str, size: int = 0) -> Register:
        order = self._runner.order(self.place.clouds, size)
        return Register(self.names.at(prefix), order, self.place.thresholds, self.codec)


class Overwritten:
    """Deletes what is before versions that have been complete for long enough, and what has led to the end of
    transactions. Thread-safe."""

    def __init__(self, runner: ProtocolRunner, clear: Callable[[str, Over], None]) -> None:
        """*clear* does that for the register with this prefix."""
        self._clock = runner.environment.boot_time
        self._wait = runner.environment.wait
        self._start = runner.start
        self._clear = clear
        self._changed = threading.Condition()
        self._waiting: deque[tuple[float, str, Over]] = deque()
        self._known: set[tuple[str, Over]] = set()  # those that wait
        self.is_closed = False
        self._join: Callable[[], object] | None = None

    def add(self, prefix: str, over: Over) -> None:
        """The version is complete now, or the transaction was decided."""
        with self._changed:
            if self.is_closed or (prefix, over) in self._known:
                return
            self._known.add((prefix, over))
            self._waiting.append((self._clock() + KEPT_SECONDS, prefix, over))
            if self._join is None:
                self._join = self._start("kv-overwritten", self._run)

    def _run(self) -> None:
        while not self.is_closed:
            with self._changed:
                self._wait(self._changed, lambda: self.is_closed, _CLEAR_SECONDS)
            self.clear_due()

    def clear_due(self) -> None:
        """Delete what it is time for."""
        due: dict[str, Over] = {}
        with self._changed:
            while self._waiting and self._waiting[0][0] <= self._clock():
                _, prefix, over = self._waiting.popleft()
                self._known.discard((prefix, over))
                due[prefix] = over
        for prefix, over in due.items():
            if self.is_closed:
                return
            self._clear(prefix, over)

    def close(self) -> None:
        """End the work. Idempotent."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        if self._join is not None:
            self._join()


def timestamp_of(version: Version) -> Timestamp:
    """What people and programs call a version by."""
    return Timestamp(version.time.version, version.write)


def _check(register: Register, label: str, condition: Condition | None, found: Found | None) -> None:
    """Raise _RefusedError when a condition does not hold, and AmbiguousVersionError."""
    if condition is None:
        return
    version = None if found is None else found.version
    if not condition.holds(_current(version)):
        raise _RefusedError(register, label, condition, version)
    if condition.version and found is not None and not found.is_only:
        raise AmbiguousVersionError(label, condition.version)


def _require_small(attributes: bytes) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise UsageError("the attributes are too large", f"they have at most {MAX_ATTRIBUTES:,} bytes")


def _current(version: Version | None) -> _Current | None:
    """What a condition looks at."""
    if version is None:
        return None
    return _Current(version.time.version, timestamp_of(version), version.live, 0)


def facts_of(version: Version, metadata: Metadata) -> KeyFacts:
    """What there is to know of a version."""
    return KeyFacts(metadata.key, metadata.size, timestamp_of(version), metadata.written, metadata.attributes)
