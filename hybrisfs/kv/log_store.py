"""Containers in the log of the volume: their values are registers, which every device holds (Depot 3 and 4).

A write is, with those that other threads make in the same moment, a signed update: it takes place here at
once, also without clouds, and reaches the other devices as every update does. What each device sees is causal
(fork-join-causal consistency, Depot 3.1): a value is seen only together with all that its writer had seen;
two writes of one key that did not know of each other stand side by side, on all devices alike. The next write
by a device that has both takes their place.

Nothing is left on the clouds that has to be collected: values go the way of the log, and end with it.
"""

from __future__ import annotations

import threading
from base64 import b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, groupby, islice
from typing import Final, NamedTuple

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kinds import CONTAINER, ENTRY
from hybrisfs.kv.containers import Key, KeyFacts, Source, Versioned, edited
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.record import PRESENT, Condition, Timestamp, encode_key
from hybrisfs.merge.signing import Signer
from hybrisfs.registers.entries import (
    DROPPED,
    MAX_ATTRIBUTES,
    MAX_ENTRY_KEY,
    MAX_ENTRY_VALUE,
    MAX_NUMBER,
    THERE,
    Entry,
    container_key,
    entries_of,
    entry_key,
    key_of,
    name_of,
)
from hybrisfs.registers.values import Stamp
from hybrisfs.stages import Signals
from hybrisfs.state.database import Reader
from hybrisfs.state.registers import branches_by_number, keys_with_several, rows_beginning
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from sync.codec import DecodeError
from sync.update import Write
from sync.vector import VersionVector

__all__ = ["LogStore"]

_MOST_BYTES: Final = 4 << 20  # of an update; other devices take it in at once, while their programs wait


class _Found(NamedTuple):
    """One of the latest values of a key, and the update that wrote it."""

    entry: Entry
    stamp: Stamp

    @property
    def live(self) -> bool:
        return self.entry.value is not None

    @property
    def sn(self) -> int:
        return self.entry.sn

    @property
    def size(self) -> int:
        return len(self.entry.value or b"")

    @property
    def timestamp(self) -> Timestamp:
        return Timestamp(self.entry.sn, self.entry.write)


class _Request:
    """A write that a caller waits for."""

    def __init__(
        self, writes: Callable[[Transaction], list[Write]], keys: Collection[Key] = (), size: int = 0
    ) -> None:
        """*writes* returns what is to be written, and is called under the lock. *keys* are those that it
        reads or writes; none: it may be any. *size* is that of the values."""
        self.writes = writes
        self.keys = keys
        self.size = size
        self.served = False
        self.turn = threading.Semaphore(0)
        """It was served, or is to serve all that wait."""
        self.error: Exception | None = HybrisError(
            "it is not known whether this was written", "a write that took place with it failed"
        )


class _Group:
    """Requests whose writes one update makes: no key is of two of them."""

    def __init__(self) -> None:
        self.requests: list[_Request] = []
        self.writes: list[Write] = []
        self._keys: set[Key] = set()
        self._size = 0

    def takes(self, request: _Request) -> bool:
        """Whether it has room for another one."""
        return not self.requests or (
            bool(self._keys)
            and bool(request.keys)
            and self._size + request.size <= _MOST_BYTES
            and self._keys.isdisjoint(request.keys)
        )

    def add(self, request: _Request, writes: Iterable[Write]) -> None:
        """Take one more."""
        self.requests.append(request)
        self.writes += writes
        self._keys.update(request.keys)
        self._size += request.size


class LogStore:
    """The containers in the log of a volume. Thread-safe.

    Methods raise HybrisError, also when this device may not write, and OSError when a write cannot be made
    durable; then it is not known whether it will be seen.
    """

    def __init__(self, fs: FileSystem, signer: Signer, committer: Committer, signals: Signals) -> None:
        self._fs = fs
        self._signer = signer
        self._committer = committer
        self._signals = signals
        self._guard = threading.Lock()  # for the next two
        self._waiting = deque[_Request]()
        self._serving = False
        self._conflicts: tuple[VersionVector, Sequence[tuple[Key, int]]] | None = None  # as of that vector
        self._random_bytes = fs.environment.random_bytes
        self._time_ns = fs.environment.time_ns
        self._monotonic = fs.environment.monotonic

    # -- sessions --------------------------------------------------------------------------------

    def is_shared(self) -> bool:
        """Whether the volume has other devices."""
        with self._fs.state.transaction() as tx:
            return len(tx.members.devices()) > 1

    def session(self) -> str:
        """What this device has seen, as a text for programs: a version vector."""
        with self._fs.state.transaction() as tx:
            return urlsafe_b64encode(tx.updates.state.vector.encode()).decode()

    def catch_up(self, session: str, patience: float) -> None:
        """Wait until this device has seen all that another one had when it gave out a session, so many
        seconds. Raises UsageError when that is no session, HybrisError when the time is over.

        A program that goes from device to device with it reads its own writes, and nothing older than it has
        read (Terry et al., Session Guarantees). When a device forks, what it had in the session is never
        seen as such: the program begins another session.
        """
        try:
            wanted = VersionVector.decode(b64decode(session, altchars=b"-_", validate=True))
        except (ValueError, DecodeError) as error:
            raise UsageError("that is no session", "", "hybrisfs kv session shows one.") from error

        def has_seen() -> bool:
            with self._fs.state.transaction() as tx:
                return tx.updates.state.vector.covers(wanted)

        self._signals.look_around()
        if not self._signals.wait_until(has_seen, self._monotonic() + patience):
            raise HybrisError(
                "this device has not yet seen all that the session has",
                f"it has waited for {patience:g} seconds",
                "hybrisfs status shows which devices it hears of. Try again.",
            )

    # -- containers ------------------------------------------------------------------------------

    def containers(self) -> Sequence[str]:
        """The names of all containers, sorted."""
        with self._fs.state.transaction() as tx:
            names = map(name_of, tx.registers.with_prefix(CONTAINER.prefix))
            return sorted(name for name in names if name is not None and self._is_there(tx, name))

    def has_container(self, name: str) -> bool:
        """Whether there is a container of that name."""
        with self._fs.state.transaction() as tx:
            return self._is_there(tx, name)

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""

        def writes(tx: Transaction) -> list[Write]:
            if self._is_there(tx, name):
                raise ContainerExistsError(name)
            return [(container_key(name), THERE)]

        self._write(_Request(writes))

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys. It stays when another
        device has written to it without knowing of this."""

        def writes(tx: Transaction) -> list[Write]:
            self._require_container(tx, name)
            if self._has_values(tx, name):
                raise ContainerInUseError(name)
            return [(container_key(name), DROPPED)]

        self._write(_Request(writes))

    def _is_there(self, tx: Transaction, name: str) -> bool:
        values = tx.registers.values(container_key(name))
        return bool(values) and (any(one.value == THERE for one in values) or self._has_values(tx, name))

    def _has_values(self, tx: Transaction, name: str) -> bool:
        entries = (_decoded(value) for _, _, _, value in rows_beginning(tx, entries_of(name), b""))
        return any(entry is not None and entry.value is not None for entry in entries)

    def _require_container(self, tx: Transaction, name: str) -> None:
        if not self._is_there(tx, name):
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
        """Write a value, on this disk when it returns; return when it was written. Raises
        ConditionNotMetError when the key is not as *condition* says, as far as is known here."""
        name = Key(container, key)
        conditions = {} if condition is None else {name: condition}
        return self.tput({name: value}, conditions, {name: attributes})[0]

    def edit(
        self, container: str, key: str, change: Callable[[bytes | None], bytes]
    ) -> tuple[Timestamp, int]:
        """See `edited`: no write of this device comes between."""
        return edited(self, container, key, change)

    def delete(self, container: str, key: str, condition: Condition | None = None) -> Timestamp | None:
        """Delete a key. Return the time of the deletion, or None: there is no such key here. Raises
        ConditionNotMetError."""
        name = Key(container, key)
        try:
            return self.tput({name: None}, {name: condition or PRESENT})[0]
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
        """Write several values, and delete the keys whose value is None, in one update, which every device
        sees whole. Raises ConditionNotMetError."""
        if not values:
            return []
        said, needed = attributes or {}, conditions or {}
        _require_room(value for value in values.values() if value is not None)
        contents = {
            name: value if value is None or isinstance(value, bytes) else value.read()
            for name, value in values.items()
        }
        _require_room(value for value in contents.values() if value is not None)
        if any(len(some) > MAX_ATTRIBUTES for some in said.values()):
            raise UsageError("the attributes are too large", f"they have at most {MAX_ATTRIBUTES:,} bytes")
        entries: dict[Key, Entry] = {}

        def writes(tx: Transaction) -> list[Write]:
            for container in {name.container for name in (*values, *needed)}:
                self._require_container(tx, container)
            for name, condition in needed.items():
                found = _first(self._latest(tx, name))
                if not condition.holds(found):
                    raise ConditionNotMetError("/".join(name), condition, found)
            for name, value in contents.items():
                entries[name] = self._next(self._latest(tx, name), value, said.get(name, b""))
            return [(_register(name), entry.encode()) for name, entry in entries.items()]

        size = sum(len(value or b"") for value in contents.values())
        self._write(_Request(writes, {*values, *needed}, size))
        return [Timestamp(entry.sn, entry.write) for entry in entries.values()]

    def _next(self, before: Iterable[_Found], value: bytes | None, attributes: bytes) -> Entry:
        sn = min(max((one.sn for one in before), default=0) + 1, MAX_NUMBER)
        write = int.from_bytes(self._random_bytes(8)) >> 1
        return Entry(sn, write, self._time_ns() // 1_000_000, value, attributes)

    def _write(self, request: _Request) -> None:
        """Sign the writes of a request, with those of all that wait, and make them durable."""
        with self._guard:
            self._waiting.append(request)
            first, self._serving = not self._serving, True
        if not first:
            request.turn.acquire()
        if not request.served:
            try:
                self._serve()
            finally:
                self._pass_on(request)
        if request.error is not None:
            raise request.error

    def _pass_on(self, request: _Request) -> None:
        """Have the first of those that wait serve them, after this one has tried to."""
        with self._guard:
            if not request.served:
                self._waiting.remove(request)
            self._serving = bool(self._waiting)
            if self._serving:
                self._waiting[0].turn.release()

    def _serve(self) -> None:
        requests: list[_Request] = []
        try:
            with self._fs.state.log_transaction() as tx:
                requests += (self._waiting.popleft() for _ in range(len(self._waiting)))
                signed = self._sign_all(tx, requests)
            self._committer.commit_now()
            self._signals.update_made()
            for request in signed:
                request.error = None
        except OSError as error:
            for request in requests:
                request.error = error
        finally:
            for request in requests:
                request.served = True
                request.turn.release()

    def _sign_all(self, tx: Transaction, requests: Iterable[_Request]) -> Sequence[_Request]:
        """Sign the writes of requests in as few updates as possible; return those that were signed."""
        signed: list[_Request] = []
        group = _Group()
        for request in requests:
            if not group.takes(request):
                signed += self._sign(tx, group)
                group = _Group()
            try:
                self._signer.require_writer(tx)
                group.add(request, request.writes(tx))
            except HybrisError as error:
                request.error = error
        return [*signed, *self._sign(tx, group)]

    def _sign(self, tx: Transaction, group: _Group) -> Sequence[_Request]:
        if group.requests:
            try:
                self._signer.sign(tx, group.writes, 0)
            except HybrisError as error:
                for request in group.requests:
                    request.error = error
                return []
        return group.requests

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
        """Return the first of `values`, or the one with this *tag*. Raises NoSuchKeyError, and
        ConditionNotMetError: no value has the tag.

        No weaker read is quicker than this one. *at_least* is refused: a value with a higher version may be
        concurrent with the one that is meant.
        """
        if at_least is not None:
            raise UsageError(
                "a container in the log has no reads of at least a tag",
                "every machine reads what it has written itself, and all that it has heard",
            )
        found = self._found(container, key)
        chosen = next((one for one in found if tag in (None, one.timestamp)), None)
        if chosen is None:
            raise ConditionNotMetError(f"{container}/{key}", Condition(tag=tag), found[0])
        return Versioned(chosen.entry.value or b"", _facts(key, chosen))

    def stat(self, container: str, key: str) -> KeyFacts:
        """What there is to know of the value that `get` returns. Raises NoSuchKeyError."""
        return self.values(container, key)[0]

    def values(self, container: str, key: str) -> Sequence[KeyFacts]:
        """All values of the key: several when machines have written without knowing of each other. Raises
        NoSuchKeyError."""
        return [_facts(key, one) for one in self._found(container, key)]

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
        """The same in pages of at most *most* keys, all of the moment at which the context is entered."""
        beginning = entry_key(container, prefix.encode())
        above = b"" if after is None else entry_key(container, after.encode())
        with self._fs.committed(lambda tx: self._require_container(tx, container)) as (_, database):
            yield _pages(database, beginning, above, most)

    def conflicts(self) -> Sequence[tuple[Key, int]]:
        """The keys that have several values, and how many. Looks at all keys when there are updates since the
        last time."""
        with self._fs.state.transaction() as tx:
            vector = tx.updates.state.vector
            if self._conflicts is None or self._conflicts[0] != vector:
                self._conflicts = vector, self._look_for_conflicts(tx)
            return self._conflicts[1]

    def _look_for_conflicts(self, tx: Transaction) -> Sequence[tuple[Key, int]]:
        found: list[tuple[Key, int]] = []
        names = {entries_of(name): name for name in self.containers()}
        for register in keys_with_several(tx, ENTRY) if names else ():
            container, key = names.get(register[: ENTRY.size]), key_of(register)
            if container is not None and key is not None:
                count = sum(one.live for one in self._latest(tx, Key(container, key)))
                if count > 1:
                    found.append((Key(container, key), count))
        return found

    def _found(self, container: str, key: str) -> Sequence[_Found]:
        """The values of a key, the first one first. Raises NoSuchKeyError."""
        with self._fs.state.transaction() as tx:
            self._require_container(tx, container)
            latest = self._latest(tx, Key(container, key))
        live = sorted((one for one in latest if one.live), key=_rank, reverse=True)
        if not live:
            raise NoSuchKeyError(container, key)
        return live

    def _latest(self, tx: Transaction, name: Key) -> Sequence[_Found]:
        values = tx.registers.values(_register(name))
        found = [(_decoded(one.value), one.stamp) for one in values if one.value is not None]
        return [_Found(entry, stamp) for entry, stamp in found if entry is not None]


def _register(name: Key) -> bytes:
    key = encode_key(name.key)
    if len(key) > MAX_ENTRY_KEY:
        raise UsageError(
            f"{name.key[:80]!r} cannot be a key here", f"in the log, keys have at most {MAX_ENTRY_KEY} bytes"
        )
    return entry_key(name.container, key)


def _decoded(value: bytes) -> Entry | None:
    """None: no correct device has written it; an earlier version, which knows no entries, has kept it."""
    try:
        return Entry.decode(value)
    except DecodeError:
        return None


def _rank(one: _Found) -> tuple[bool, Stamp]:
    """What comes first has the greatest."""
    return one.live, one.stamp


def _first(latest: Iterable[_Found]) -> _Found | None:
    return max(latest, key=_rank, default=None)


def _pages(database: Reader, beginning: bytes, above: bytes, most: int) -> Iterator[list[KeyFacts]]:
    branches = branches_by_number(database)

    def entries() -> Iterator[tuple[bytes, _Found]]:
        for register, clock, writer, value in rows_beginning(database, beginning, above):
            entry = _decoded(value)
            if entry is not None:
                yield register, _Found(entry, Stamp(clock, branches[writer]))

    firsts = (
        (key_of(register), _first(one for _, one in rows))
        for register, rows in groupby(entries(), key=lambda row: row[0])
    )
    found = (
        _facts(key, first) for key, first in firsts if key is not None and first is not None and first.live
    )
    while page := list(islice(found, most)):
        yield page


def _facts(key: str, found: _Found) -> KeyFacts:
    return KeyFacts(key, found.size, found.timestamp, found.entry.written, found.entry.attributes)


def _require_room(values: Iterable[bytes | Source]) -> None:
    sizes = [len(value) if isinstance(value, bytes) else value.size for value in values]
    if any(size > MAX_ENTRY_VALUE for size in sizes):
        raise UsageError(
            "the value is too large",
            f"every machine holds all values of a container in the log, of at most {MAX_ENTRY_VALUE:,} bytes",
            "hybrisfs kv create --metadata device makes a container for larger ones.",
        )
    if sum(sizes) > _MOST_BYTES:
        raise UsageError(
            "the transaction is too large", f"its values may have {_MOST_BYTES:,} bytes together in the log"
        )
