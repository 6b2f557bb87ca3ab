"""The log as `hybrisfs.kv.migrate` sees it: containers that come to it, and that leave it.

A change of names is one update. Some machines know it sooner than others, so three things are as in no other
store.

**A machine writes to a container that has left**, as it does not know that yet. Its value is in the same
spaces, where every machine finds it: it is *late*. A move replaces each entry that it has copied with one of
kind 4, which names the update that had written the value. A late write stands beside that. Therefore
`hand_over` can be called at any time, and again, and does this for each key:

===============================================  ============================================================
in the log, besides what was taken               where the container is now
===============================================  ============================================================
nothing                                          nothing is done
a write by a machine that had seen the value     it is made there, too, if the key is still as it was copied
which was taken
a value, and there is none under that key there  it is put there
a value that is already there                    nothing is done
any other value                                  it is put beside, under a key of its own
===============================================  ============================================================

Then all of it counts as taken. So no value is lost, and none takes the place of one that its writer has not
seen. A late deletion leaves nothing in the last case: a value goes before a deletion, as everywhere in the
log. Nobody has to wait until all machines know of the move.

Before anything was taken, a value there was copied, or is late. It was copied if it is the only value, and
the update that gave the container its name *leaving* knows it: the machine that copies does so after that
update, and knows all that this one does.

**Two machines move a container without knowing of each other.** Each makes a copy of its own, which has the
values that this machine had seen, and gives the leaving container a name of its own. When a machine learns of
the other move before its own has ended, it gives up, unless its update has the higher stamp and the other
move has not ended. When both have ended, the register of the former name has two values, and
`moved_containers` names the container until one of the two is dropped. Both have all values.

**A name is used again.** The new container has spaces of its own. Late values stay apart from it, until
`rejoin` makes the spaces one container.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Final, NamedTuple

from blake3 import blake3

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.kv.containers import ContainerStore, Entry, KeyFacts, Room, Versioned, name_keys
from hybrisfs.kv.errors import (
    ConditionNotMetError,
    ContainerExistsError,
    ContainerMovingError,
    NoSuchContainerError,
    NoSuchKeyError,
)
from hybrisfs.kv.log_containers import (
    Found,
    Named,
    all_names,
    first,
    found_in,
    is_late,
    keys_of,
    read_name,
    several_in,
    writes_to,
)
from hybrisfs.kv.log_writes import LogWriter
from hybrisfs.kv.record import ABSENT, Condition, Timestamp, container_of, is_leaving, is_usable, leaving
from hybrisfs.registers.entries import MAX_ENTRY_KEY, MAX_ENTRY_VALUE, ContainerState
from hybrisfs.registers.entries import Entry as LogEntry
from hybrisfs.registers.values import Stamp
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.relayer import Shipping
from sync import DEVICE_ID_SIZE, VersionVector
from sync.update import Write

__all__ = ["LogMoves", "MovedContainer", "moved_containers"]

_AT_ONCE: Final = 256  # keys whose entries one update changes
_SHIPPED_WITHIN: Final = 60.0  # seconds
_UNKNOWN: Final = Stamp(0, bytes(DEVICE_ID_SIZE))


class MovedContainer(NamedTuple):
    """A container that has left the log, and that a person should look at."""

    container: str
    late: int
    """How many keys were written since by machines that did not know of the move."""
    twice: bool
    """Whether two machines have moved it without knowing of each other."""


class _Settled(NamedTuple):
    """A key whose values have been brought to where the container is now."""

    key: str
    stamps: Collection[Stamp]
    """Of these values."""
    entry: LogEntry
    """What takes their place."""


class LogMoves:
    """See `hybrisfs.kv.migrate.Movable`. Thread-safe. Methods raise HybrisError and OSError."""

    def __init__(self, fs: FileSystem, writer: LogWriter, shipping: Shipping) -> None:
        self._fs = fs
        self._writer = writer
        self._shipping = shipping
        self._random_bytes = fs.environment.random_bytes
        self.room: Final = Room(MAX_ENTRY_KEY, MAX_ENTRY_VALUE)

    def names(self) -> Sequence[str]:
        """The names of all containers, also of those on their way; not of copies that have their final names
        already as far as other machines say."""
        with self._fs.state.transaction() as tx:
            return _listed(tx)

    def mark(self, name: str) -> str:
        """What tells the spaces of a container from all others. Raises NoSuchContainerError."""
        with self._fs.state.transaction() as tx:
            return f"log-{blake3(b''.join(_spaces(tx, name))).digest(8).hex()}"

    def origin(self, name: str) -> str:
        """See `mark`; each machine has one of its own."""
        with self._fs.state.transaction() as tx:
            device = tx.updates.device.hex()
        return f"{self.mark(name)}-{device}"

    def create_container(self, name: str) -> None:
        """Make an empty container. Raises ContainerExistsError."""

        def writes(tx: Transaction) -> list[Write]:
            named = read_name(tx, name)
            if named.made:
                raise ContainerExistsError(name)
            return [named.writes(ContainerState.THERE, named.new_spaces)]

        self._writer.write(writes)

    def rename(self, name: str, new: str) -> None:
        """Give a container another name. Raises NoSuchContainerError, ContainerExistsError,
        ContainerMovingError, and UsageError when keys of one that is to leave have several values."""

        def writes(tx: Transaction) -> list[Write]:
            spaces = _spaces(tx, name)
            if is_leaving(name) and not _is_listed(tx, name):
                raise ContainerMovingError(container_of(name))
            there = read_name(tx, new)
            if there.is_there(tx) and there.spaces != spaces:
                raise ContainerExistsError(new)
            if is_usable(name):
                require_one_value(tx, name, spaces)
            changes = {name: (ContainerState.RENAMED, new), new: (ContainerState.THERE, "")}
            if is_leaving(name) and is_leaving(new):
                changes |= _former(tx, new)
            return [read_name(tx, one).writes(state, spaces, to) for one, (state, to) in changes.items()]

        self._writer.write(writes)

    def require_one_value(self, name: str) -> None:
        with self._fs.state.transaction() as tx:
            require_one_value(tx, name, _spaces(tx, name))

    def wait_for_others(self) -> None:
        """What others write late is found."""

    def wait_until_safe(self, container: str) -> None:
        """Wait until the clouds have the log. Raises HybrisError when that takes too long."""
        if not self._shipping.wait(_SHIPPED_WITHIN):
            raise HybrisError(
                f"{container!r} is in the log, and its former values are still where they were",
                "the clouds have yet to get the log",
                "hybrisfs sync --wait shows why. The same command removes the values then.",
            )

    def is_late(self, name: str) -> bool:
        with self._fs.state.transaction() as tx:
            return not read_name(tx, name).made

    def withdraw(self, name: str) -> None:

        def writes(tx: Transaction) -> list[Write]:
            spaces = read_name(tx, name).spaces
            winner = _best(read_name(tx, name), all_names(tx))
            if winner is None or winner == name:
                return []
            changes = {name: (ContainerState.RENAMED, winner)} | _former(tx, winner)
            return [read_name(tx, one).writes(state, spaces, to) for one, (state, to) in changes.items()]

        self._writer.write(writes)

    def settle(self, container: str) -> None:
        """Tell of a container no longer that two machines have moved it."""

        def writes(tx: Transaction) -> list[Write]:
            former = read_name(tx, container)
            news = _places(former)
            if len(news) < 2:
                return []
            spaces = tuple(sorted({space for one in former.said for space in one.record.spaces}))
            return [former.writes(ContainerState.RENAMED, spaces, max(news))]

        self._writer.write(writes)

    def rejoin(self, container: str) -> bool:
        """Make what was written late to former containers of a name part of the one that has the name now,
        in the log, if one has it; whether there was anything. Values of one key then stand side by
        side."""
        with self._fs.state.transaction() as tx:
            if not read_name(tx, container).made or not _late(tx, container):
                return False

        def writes(tx: Transaction) -> list[Write]:
            named = read_name(tx, container)
            parts = {name: read_name(tx, name).spaces for name in _late(tx, container)}
            if not named.made or not parts:
                return []
            spaces = tuple(sorted({*named.spaces, *chain.from_iterable(parts.values())}))
            return [
                named.writes(ContainerState.THERE, spaces),
                *(
                    read_name(tx, one).writes(ContainerState.RENAMED, old, container)
                    for one, old in parts.items()
                ),
            ]

        self._writer.write(writes)
        return True

    # -- entries ---------------------------------------------------------------------------------

    @contextmanager
    def entries(self, name: str) -> Iterator[Iterator[Entry]]:
        """All keys of a container, also those that were deleted, in order, as of one moment."""
        with self._fs.committed(lambda tx: (_spaces(tx, name), _known_to(tx, name))) as (known, database):
            spaces, known_to = known
            chosen = ((key, found, _chosen(found, known_to)) for key, found in keys_of(database, spaces))
            yield (
                Entry(key, Timestamp(_version(found), one.entry.write), one.live, one.entry.written, one.size)
                for key, found, one in chosen
                if one is not None
            )

    def get(self, container: str, key: str) -> Versioned:
        """The value of a key that is copied, with the highest known version. Raises NoSuchKeyError."""
        with self._fs.state.transaction() as tx:
            found = found_in(tx, _spaces(tx, container), key.encode())
            one = _chosen(found, _known_to(tx, container))
        if one is None or one.entry.value is None:
            raise NoSuchKeyError(container, key)
        version = Timestamp(_version(found), one.entry.write)
        return Versioned(
            one.entry.value, KeyFacts(key, one.size, version, one.entry.written, one.entry.attributes)
        )

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
        """See `hybrisfs.kv.migrate.Movable`. That a key was deleted which cannot be one here says nothing."""
        encoded = key.encode()
        if len(encoded) > MAX_ENTRY_KEY and value is None:
            return
        if len(encoded) > MAX_ENTRY_KEY or len(value or b"") > MAX_ENTRY_VALUE:
            raise self.room.refusal(container_of(container), [key])
        write = int.from_bytes(self._random_bytes(8)) >> 1
        entry = LogEntry(facts.timestamp.sn, write, facts.written, value, facts.attributes, came=True)

        def writes(tx: Transaction) -> list[Write]:
            spaces = _spaces(tx, container)
            now = first(found_in(tx, spaces, encoded))
            if now is not None and (now.sn > entry.sn or (now.sn == entry.sn and is_only)):
                wanted = 0 if before is None else before.timestamp.sn
                raise ConditionNotMetError(f"{container}/{key}", Condition(version=wanted), now)
            return writes_to(tx, spaces, encoded, entry)

        self._writer.write(writes, size=len(value or b""))

    def discard(self, name: str) -> None:
        """Throw away a copy that was not finished. Its versions count for nothing."""
        with self._fs.state.transaction() as tx:
            if not _is_listed(tx, name):
                return
            spaces = _spaces(tx, name)
        gone = LogEntry(0, 0, 0, None, came=True)
        with self._fs.committed(lambda tx: None) as (_, database):
            found = (
                (key, values) for key, values in keys_of(database, spaces) if any(one.live for one in values)
            )
            self._replace(
                name, spaces, (_Settled(key, {one.stamp for one in values}, gone) for key, values in found)
            )
        self._writer.write(lambda tx: [read_name(tx, name).writes(ContainerState.DROPPED, spaces)])

    def _replace(self, name: str, spaces: Sequence[bytes], settled: Iterator[_Settled]) -> None:
        """Give keys other entries, those whose values are as they were when somebody looked."""
        part: list[_Settled] = []

        def writes(tx: Transaction) -> list[Write]:
            if not _is_listed(tx, name):
                raise NoSuchContainerError(None, [])
            found: list[Write] = []
            for one in part:
                key = one.key.encode()
                if {now.stamp for now in found_in(tx, spaces, key)} == one.stamps:
                    found += writes_to(tx, spaces, key, one.entry)
            return found

        for one in settled:
            part.append(one)
            if len(part) == _AT_ONCE:
                self._writer.write(writes)
                part.clear()
        if part:
            self._writer.write(writes)

    # -- what is left, when the copy has the name ------------------------------------------------

    def hand_over(self, name: str, container: str, target: ContainerStore) -> Sequence[str]:
        """Take from a container that has left what was copied, and bring what is late to where it is now.
        Returns the keys of the values that were put beside others. Raises CloudsUnavailable."""
        beside: list[str] = []

        def settled() -> Iterator[_Settled]:
            for key, found in keys_of(database, spaces):
                entry = self._settled(container, key, found, known_to, target, beside)
                if entry is not None:
                    yield _Settled(key, {one.stamp for one in found}, entry)

        with self._fs.committed(lambda tx: (_spaces(tx, name), _known_to(tx, name))) as (known, database):
            spaces, known_to = known
            self._replace(name, spaces, settled())

        def writes(tx: Transaction) -> list[Write]:
            changes = {name: (ContainerState.DROPPED, "")}
            if _places(read_name(tx, container)) == {name}:  # a machine that moves it elsewhere meets this
                changes |= _former(tx, name)
            return [read_name(tx, one).writes(state, spaces, to) for one, (state, to) in changes.items()]

        self._writer.write(writes)
        return beside

    def _settled(
        self,
        container: str,
        key: str,
        found: Sequence[Found],
        known_to: Callable[[Stamp], bool],
        target: ContainerStore,
        beside: list[str],
    ) -> LogEntry | None:
        """What takes the place of the values of a key, once they are where the container is now; None: there
        is nothing to be done."""
        taken = [one for one in found if one.entry.went is not None]
        others = [one for one in found if one.entry.went is None]
        if not others:
            return None
        live = [one for one in others if one.live]
        if not taken and not live:
            return None
        if not taken and len(live) == 1 and all(known_to(one.stamp) for one in others):
            return self._taken(_version(others), live[0])
        while True:
            try:
                sn, last, more = self._bring(container, key, taken, others, target)
            except ConditionNotMetError:
                continue  # a program was quicker
            break
        for one in more:
            name = f"{key} (late {one.timestamp.tag})"
            with suppress(ConditionNotMetError):  # put there before this was cut short
                target.put(container, name, one.entry.value or b"", ABSENT, one.entry.attributes)
            beside.append(name)
        if last is None:
            return max(taken, key=lambda one: one.sn).entry if taken else self._taken(0, None)
        return self._taken(sn, last)

    def _bring(
        self,
        container: str,
        key: str,
        taken: Sequence[Found],
        others: Sequence[Found],
        target: ContainerStore,
    ) -> tuple[int, Found | None, Sequence[Found]]:
        """Make a late write of a key, if it may be made. Returns the version that the key has now, the write
        that made it, None: none of these, and the values that are still to be put beside. Raises
        ConditionNotMetError when the key has changed since this looked at it."""
        live = sorted((one for one in others if one.live), key=lambda one: one.stamp, reverse=True)
        try:
            now = target.get(container, key)
        except NoSuchKeyError:
            if not live:
                return 0, None, []
            best, *more = live
            put = target.put(container, key, best.entry.value or b"", ABSENT, best.entry.attributes)
            return put.sn, best, more
        same = [
            one
            for one in live
            if (one.entry.value, one.entry.attributes) == (now.value, now.facts.attributes)
        ]
        more = [one for one in live if one not in same]
        if same:
            return now.timestamp.sn, same[0], more
        base = [one.entry.went for one in taken if one.sn == now.timestamp.sn]
        following = [one for one in live or others if any(was and self._has_seen(one, was) for was in base)]
        if not following:
            return now.timestamp.sn, None, more
        best = following[0]
        condition = Condition(tag=now.timestamp)
        if best.entry.value is None:
            deleted = target.delete(container, key, condition)
            return now.timestamp.sn + 1 if deleted is None else deleted.sn, best, []
        put = target.put(container, key, best.entry.value, condition, best.entry.attributes)
        return put.sn, best, [one for one in more if one is not best]

    def _taken(self, sn: int, one: Found | None) -> LogEntry:
        if one is None:
            return LogEntry(sn, 0, 0, None, went=_UNKNOWN)
        return LogEntry(sn, one.entry.write, one.entry.written, None, went=one.stamp)

    def _has_seen(self, one: Found, other: Stamp) -> bool:
        """Whether the device that wrote a value had seen an update then."""
        with self._fs.state.transaction() as tx:
            vector = tx.updates.vector_of(one.stamp.branch, one.stamp.clock)
        return vector is not None and other != _UNKNOWN and vector[other.branch] >= other.clock


def require_one_value(tx: Transaction, name: str, spaces: Sequence[bytes]) -> None:
    """Raise UsageError when keys of a container have several values: elsewhere a key has one."""
    several = [key for key, _ in several_in(tx, spaces)]
    if several:
        raise UsageError(
            f"the container {name!r} cannot be moved",
            f"these keys have several values: {name_keys(name, several)}",
            "hybrisfs kv get --all shows them; the next kv put takes their place. Then try again.",
        )


def moved_containers(tx: Transaction) -> Sequence[MovedContainer]:
    """The containers that have left, and that a person should look at, by name."""
    names = all_names(tx)
    twice = {one.name for one in names if len(_places(one)) > 1}
    late: dict[str, int] = dict.fromkeys(twice, 0)
    for name in _listed(tx):
        named = read_name(tx, name)
        if is_leaving(name) and not named.made:
            count = sum(is_late(found) for _, found in keys_of(tx, named.spaces))
            late[container_of(name)] = late.get(container_of(name), 0) + count
    return [MovedContainer(name, count, name in twice) for name, count in sorted(late.items())]


def _places(former: Named) -> set[str]:
    """The names by which a container has left that nobody has moved knowing of the other moves."""
    return set() if former.made else {one.record.new for one in former.those(ContainerState.RENAMED)}


def _spaces(tx: Transaction, name: str) -> tuple[bytes, ...]:
    """Raises NoSuchContainerError."""
    named = read_name(tx, name)
    if not named.is_there(tx):
        raise NoSuchContainerError(None, [])
    return named.spaces


def _former(tx: Transaction, new: str) -> dict[str, tuple[ContainerState, str]]:
    """What is to be said of the name that a container had before it left as *new*; nothing when another one
    has that name."""
    former = read_name(tx, container_of(new))
    renamed = former.those(ContainerState.RENAMED)
    return {former.name: (ContainerState.RENAMED, new)} if len(renamed) == len(former.said) else {}


def _late(tx: Transaction, container: str) -> list[str]:
    """The names by which containers have left of which something is late."""
    names = [name for name in _listed(tx) if name.startswith(leaving(container))]
    return [name for name in names if not read_name(tx, name).made]


def _listed(tx: Transaction) -> list[str]:
    names = all_names(tx)
    return [one.name for one in names if _is_seen(tx, one, names)]


def _is_listed(tx: Transaction, name: str) -> bool:
    return _is_seen(tx, read_name(tx, name), all_names(tx))


def _is_seen(tx: Transaction, one: Named, names: Sequence[Named]) -> bool:
    """Whether this is the name that counts of all that a container has."""
    if not one.spaces or (is_leaving(one.name) and _best(one, names) != one.name) or not one.is_there(tx):
        return False
    return is_usable(one.name) or not any(
        is_usable(other.name) and not set(one.spaces).isdisjoint(other.spaces) and other.is_there(tx)
        for other in names
    )


def _best(one: Named, names: Iterable[Named]) -> str | None:
    """Of the names by which machines have a container leave, that of the machine which is not to give up."""
    leave = [
        other for other in names if is_leaving(other.name) and not set(one.spaces).isdisjoint(other.spaces)
    ]
    best = max(
        leave, key=lambda other: (not other.made, max(said.stamp for said in other.said)), default=None
    )
    return None if best is None else best.name


def _known_to(tx: Transaction, name: str) -> Callable[[Stamp], bool]:
    """Whether an update was known to the machine that had a container leave by this name."""
    stamps = (
        [one.stamp for one in read_name(tx, name).those(ContainerState.THERE)] if is_leaving(name) else []
    )
    found = [tx.updates.vector_of(stamp.branch, stamp.clock) for stamp in stamps]
    vectors: list[VersionVector] = [vector for vector in found if vector is not None]
    if not stamps or len(vectors) < len(stamps):
        return lambda stamp: False
    return lambda stamp: all(vector[stamp.branch] >= stamp.clock for vector in vectors)


def _version(found: Sequence[Found]) -> int:
    return max(one.sn for one in found)


def _chosen(found: Sequence[Found], known_to: Callable[[Stamp], bool]) -> Found | None:
    """The value of a key that is copied, or else its deletion."""
    return max(found, key=lambda one: (one.live, known_to(one.stamp), one.stamp), default=None)
