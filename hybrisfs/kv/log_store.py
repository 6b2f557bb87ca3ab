"""Containers in the log of the volume: their values are registers, which every device holds (Depot 3 and 4).

A write is, with those that other threads make in the same moment, a signed update: it takes place here at
once, also without clouds, and reaches the other devices as every update does. What each device sees is causal
(fork-join-causal consistency, Depot 3.1): a value is seen only together with all that its writer had seen;
two writes of one key that did not know of each other stand side by side, on all devices alike. The next write
by a device that has both takes their place.

Nothing is left on the clouds that has to be collected: values go the way of the log, and end with it.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.containers import ContainerStore, Key, KeyFacts, Source, Versioned
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerInUseError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.log_containers import (
    Found,
    all_names,
    first,
    found_in,
    keys_of,
    rank,
    read_name,
    several_in,
    writes_to,
)
from hybrisfs.kv.log_moves import LogMoves, MovedContainer, moved_containers
from hybrisfs.kv.log_writes import MOST_BYTES, LogWriter
from hybrisfs.kv.record import Condition, Timestamp, encode_key, is_usable
from hybrisfs.merge.signing import Signer
from hybrisfs.registers.entries import (
    MAX_ATTRIBUTES,
    MAX_ENTRY_KEY,
    MAX_ENTRY_VALUE,
    MAX_NUMBER,
    ContainerState,
    Entry,
)
from hybrisfs.stages import Signals
from hybrisfs.state.state import Transaction
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.relayer import Shipping
from sync.codec import DecodeError
from sync.update import Write
from sync.vector import VersionVector

__all__ = ["LogStore"]


class LogStore(ContainerStore):
    """The containers in the log of a volume. Thread-safe. Writes are on this disk when they return, and
    conditions hold as far as is known here.

    Methods raise HybrisError, also when this device may not write, and OSError when a write cannot be made
    durable; then it is not known whether it will be seen.
    """

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
        committer: Committer,
        signals: Signals,
        shipping: Shipping,
    ) -> None:
        self._fs = fs
        self._signals = signals
        self._writer = LogWriter(fs, signer, committer, signals)
        self.moves: Final = LogMoves(fs, self._writer, shipping)
        self._conflicts: tuple[VersionVector, Sequence[tuple[Key, int]]] | None = None  # as of that vector
        self._moved: tuple[VersionVector, Sequence[MovedContainer]] | None = None  # likewise
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
        seconds. Raises UsageError when that is not a session, HybrisError when the time is over.

        A program that goes from device to device with it reads its own writes, and nothing older than it has
        read (Terry et al., Session Guarantees). When a device forks, what it had in the session is never
        seen as such: the program begins another session.
        """
        try:
            wanted = VersionVector.decode(b64decode(session, altchars=b"-_", validate=True))
        except (ValueError, DecodeError) as error:
            raise UsageError("that is not a session", "", "hybrisfs kv session shows one.") from error

        def has_seen() -> bool:
            with self._fs.state.transaction() as tx:
                return tx.updates.state.vector.covers(wanted)

        self._signals.look_around()
        if not self._signals.wait_until(has_seen, self._monotonic() + patience):
            raise HybrisError(
                "this machine has not yet seen all that the session has",
                f"it has waited for {patience:g} seconds",
                "hybrisfs status shows which machines it hears of. Try again.",
            )

    # -- containers ------------------------------------------------------------------------------

    def containers(self) -> Sequence[str]:
        """The names of all containers, sorted, but for those that are being moved."""
        with self._fs.state.transaction() as tx:
            return sorted(one.name for one in all_names(tx) if is_usable(one.name) and one.is_there(tx))

    def has_container(self, name: str) -> bool:
        """Whether there is a container of that name."""
        with self._fs.state.transaction() as tx:
            return read_name(tx, name).is_there(tx)

    def create_container(self, name: str) -> None:
        """Raises ContainerExistsError."""

        def writes(tx: Transaction) -> list[Write]:
            named = read_name(tx, name)
            if named.is_there(tx):
                raise ContainerExistsError(name)
            return [named.writes(ContainerState.THERE, named.new_spaces)]

        self._writer.write(writes)

    def delete_container(self, name: str) -> None:
        """Raises NoSuchContainerError, and ContainerInUseError while it holds keys. It stays when another
        device has written to it without knowing of this."""

        def writes(tx: Transaction) -> list[Write]:
            spaces = self._spaces(tx, name)
            if any(one.live for _, found in keys_of(tx, spaces) for one in found):
                raise ContainerInUseError(name)
            return [read_name(tx, name).writes(ContainerState.DROPPED, spaces)]

        self._writer.write(writes)

    def _spaces(self, tx: Transaction, name: str) -> Sequence[bytes]:
        """Where the entries of a container are. Raises NoSuchContainerError."""
        named = read_name(tx, name)
        if not named.is_there(tx):
            raise NoSuchContainerError(name, self.containers())
        return named.spaces

    # -- writing ---------------------------------------------------------------------------------

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
        keys = {name: _encoded(name.key) for name in (*values, *needed)}

        def writes(tx: Transaction) -> list[Write]:
            spaces = {name: self._spaces(tx, name) for name in {one.container for one in (*values, *needed)}}
            for name, condition in needed.items():
                found = first(found_in(tx, spaces[name.container], keys[name]))
                if not condition.holds(found):
                    raise ConditionNotMetError("/".join(name), condition, found)
            written: list[Write] = []
            for name, value in contents.items():
                before = found_in(tx, spaces[name.container], keys[name])
                entries[name] = self._next(before, value, said.get(name, b""))
                written += writes_to(tx, spaces[name.container], keys[name], entries[name])
            return written

        size = sum(len(value or b"") for value in contents.values())
        self._writer.write(writes, {*values, *needed}, size)
        return [Timestamp(entry.sn, entry.write) for entry in entries.values()]

    def _next(self, before: Iterable[Found], value: bytes | None, attributes: bytes) -> Entry:
        sn = min(max((one.sn for one in before), default=0) + 1, MAX_NUMBER)
        write = int.from_bytes(self._random_bytes(8)) >> 1
        return Entry(sn, write, self._time_ns() // 1_000_000, value, attributes)

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
        return self.values(container, key)[0]

    def values(self, container: str, key: str) -> Sequence[KeyFacts]:
        return [_facts(key, one) for one in self._found(container, key)]

    @contextmanager
    def listing(
        self, container: str, prefix: str = "", *, after: str | None = None, most: int = 1000
    ) -> Iterator[Iterator[Sequence[KeyFacts]]]:
        above = None if after is None else after.encode()
        with self._fs.committed(lambda tx: self._spaces(tx, container)) as (spaces, database):
            keys = keys_of(database, spaces, prefix.encode(), above)
            yield _pages(keys, most)

    def conflicts(self) -> Sequence[tuple[Key, int]]:
        """The keys that have several values, and how many. Looks at all keys when there are updates since the
        last time."""
        with self._fs.state.transaction() as tx:
            vector = tx.updates.state.vector
            if self._conflicts is None or self._conflicts[0] != vector:
                names = [(name, read_name(tx, name).spaces) for name in self.containers()]
                found = [
                    (Key(name, key), count) for name, spaces in names for key, count in several_in(tx, spaces)
                ]
                self._conflicts = vector, found
            return self._conflicts[1]

    def moved(self) -> Sequence[MovedContainer]:
        """The containers that have left the log, and that a person should look at. Looks at all keys of these
        when there are updates since the last time."""
        with self._fs.state.transaction() as tx:
            vector = tx.updates.state.vector
            if self._moved is None or self._moved[0] != vector:
                self._moved = vector, moved_containers(tx)
            return self._moved[1]

    def _found(self, container: str, key: str) -> Sequence[Found]:
        """The values of a key, the first one first. Raises NoSuchKeyError."""
        with self._fs.state.transaction() as tx:
            latest = found_in(tx, self._spaces(tx, container), _encoded(key))
        live = sorted((one for one in latest if one.live), key=rank, reverse=True)
        if not live:
            raise NoSuchKeyError(container, key)
        return live


def _encoded(key: str) -> bytes:
    encoded = encode_key(key)
    if len(encoded) > MAX_ENTRY_KEY:
        raise UsageError(
            f"{key[:80]!r} cannot be a key here", f"in the log, keys have at most {MAX_ENTRY_KEY} bytes"
        )
    return encoded


def _pages(keys: Iterable[tuple[str, list[Found]]], most: int) -> Iterator[list[KeyFacts]]:
    firsts = ((key, first(found)) for key, found in keys)
    facts = (_facts(key, one) for key, one in firsts if one is not None and one.live)
    while page := list(islice(facts, most)):
        yield page


def _facts(key: str, found: Found) -> KeyFacts:
    return KeyFacts(key, found.size, found.timestamp, found.entry.written, found.entry.attributes)


def _require_room(values: Iterable[bytes | Source]) -> None:
    sizes = [len(value) if isinstance(value, bytes) else value.size for value in values]
    if any(size > MAX_ENTRY_VALUE for size in sizes):
        raise UsageError(
            "the value is too large",
            f"every machine holds all values of a container in the log, of at most {MAX_ENTRY_VALUE:,} bytes",
            "hybrisfs kv create --metadata device makes a container for larger ones.",
        )
    if sum(sizes) > MOST_BYTES:
        raise UsageError(
            "the transaction is too large", f"its values may have {MOST_BYTES:,} bytes together in the log"
        )
