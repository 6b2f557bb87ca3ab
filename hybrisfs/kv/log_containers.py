"""What the registers in the log say of containers and their entries (`hybrisfs.registers.entries`).

A container is a set of spaces: one, or more when machines have made a container of one name in ways that do
not agree, for instance one by `kv create` and another one by a move. Then it holds what is in any of them. A
write goes to the first space and takes the place of what its machine saw in all.

**What a move has copied to here** (kinds 2 and 3) is the history of one container in which one value follows
another, in a space that no other container ever has. So of several copies of a key the one with the highest
version counts: machines that went on with the same move without knowing of each other have copied different
stages. And none counts beside another entry: programs write to the space only when the copy is complete, so
they have seen the last version, whatever copies of older ones are still on their way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from blake3 import blake3

from hybrisfs.errors import HybrisError
from hybrisfs.kinds import CONTAINER, ENTRY
from hybrisfs.kv.record import Timestamp, is_leaving
from hybrisfs.registers.entries import (
    MAX_SPACES,
    SPACE_SIZE,
    ContainerRecord,
    ContainerState,
    Entry,
    container_key,
    entries_of,
    entry_key,
    key_of,
    name_of,
    space_of,
)
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import Reader
from hybrisfs.state.registers import branches_by_number, keys_with_several, rows_beginning
from hybrisfs.state.state import Transaction
from sync.codec import DecodeError
from sync.update import Write

__all__ = [
    "Found",
    "Named",
    "all_names",
    "first",
    "found_in",
    "is_late",
    "keys_of",
    "rank",
    "read_name",
    "several_in",
    "writes_to",
]


class Found(NamedTuple):
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


def rank(one: Found) -> tuple[bool, Stamp]:
    """What comes first has the greatest."""
    return one.live, one.stamp


def first(found: Iterable[Found]) -> Found | None:
    """The value that readers get of these, or else the last deletion."""
    return max(found, key=rank, default=None)


def is_late(found: Sequence[Found]) -> bool:
    """Whether something was written to a key after a move had taken its value, without knowing of that."""
    took = any(one.entry.went is not None for one in found)
    return any(one.live or (took and one.entry.went is None) for one in found)


# -- names ---------------------------------------------------------------------------------------------


class Said(NamedTuple):
    """A value of the register of a container."""

    record: ContainerRecord
    stamp: Stamp


class Named(NamedTuple):
    """A name, and all that its register says."""

    name: str
    said: tuple[Said, ...]

    def those(self, state: ContainerState) -> list[Said]:
        """The values with this state."""
        return [one for one in self.said if one.record.state is state]

    @property
    def made(self) -> bool:
        """Whether somebody says that the container is there."""
        return bool(self.those(ContainerState.THERE))

    @property
    def spaces(self) -> tuple[bytes, ...]:
        """Where its entries are; empty when there is no such container, and never was since it had another
        name. One that a machine has renamed and another one has dropped has the other name."""
        there, renamed = self.those(ContainerState.THERE), self.those(ContainerState.RENAMED)
        return self._spaces(*there, *([] if renamed else self.those(ContainerState.DROPPED)))

    @property
    def new_spaces(self) -> tuple[bytes, ...]:
        """Where those of one that is made now are to be: not where a container was that has another name now,
        as there some machine may still write. Machines that make one choose alike."""
        if self.spaces:
            return self.spaces
        former = self._spaces(*self.those(ContainerState.RENAMED))
        return (blake3(b"".join(former)).digest(SPACE_SIZE),) if former else (space_of(self.name),)

    def _spaces(self, *said: Said) -> tuple[bytes, ...]:
        named = {space for one in said for space in one.record.spaces or (space_of(self.name),)}
        return tuple(sorted(named))

    def writes(self, state: ContainerState, spaces: Sequence[bytes], new: str = "") -> Write:
        """What says this of the name, in place of all that is known of it. Raises HybrisError."""
        if len(spaces) > MAX_SPACES:
            raise HybrisError(
                f"the container {self.name!r} cannot be changed",
                f"more than {MAX_SPACES} machines have made it without knowing of each other",
                "Make another one, and put there what kv get reads.",
            )
        known = () if tuple(spaces) == (space_of(self.name),) and not new else tuple(spaces)
        return container_key(self.name), ContainerRecord(state, known, new).encode()

    def is_there(self, db: Reader) -> bool:
        """Whether there is such a container. One that was dropped is, while it holds what the machine that
        dropped it had not seen."""
        if self.made:
            return True
        look = is_late if is_leaving(self.name) else _has_value
        return any(look(found) for _, found in keys_of(db, self.spaces))


def _has_value(found: Iterable[Found]) -> bool:
    return any(one.live for one in found)


def read_name(tx: Transaction, name: str) -> Named:
    """What is known of a name."""
    return Named(name, _said(tx.registers.values(container_key(name))))


def all_names(tx: Transaction) -> list[Named]:
    """All names that containers have or had."""
    found = tx.registers.with_prefix(CONTAINER.prefix).items()
    named = ((name_of(key), values) for key, values in found)
    return [Named(name, _said(values)) for name, values in named if name is not None]


def _said(values: Iterable[Value]) -> tuple[Said, ...]:
    said: list[Said] = []
    for value, stamp in ((one.value, one.stamp) for one in values):
        try:
            said.append(Said(ContainerRecord.decode(value or b""), stamp))
        except DecodeError:
            continue  # no correct device has written it; an earlier version has kept it
    return tuple(said)


# -- entries -------------------------------------------------------------------------------------------


def found_in(tx: Transaction, spaces: Iterable[bytes], key: bytes) -> list[Found]:
    """The latest values of a key, deletions among them."""
    found: list[Found] = []
    for space in spaces:
        values = tx.registers.values(entry_key(space, key))
        found += _counting(_decoded(one.value, one.stamp) for one in values if one.value is not None)
    return found


def keys_of(
    db: Reader, spaces: Iterable[bytes], beginning: bytes = b"", above: bytes | None = None
) -> Iterator[tuple[str, list[Found]]]:
    """The latest values, deletions among them, of all keys that begin with *beginning* and come after
    *above*, in order."""
    branches = branches_by_number(db)

    def one_space(space: bytes) -> Iterator[tuple[bytes, list[Found]]]:
        start = b"" if above is None else entry_key(space, above)
        rows = rows_beginning(db, entry_key(space, beginning), start)
        for register, values in groupby(rows, key=lambda row: row[0]):
            decoded = (_decoded(row[3], Stamp(row[1], branches[row[2]])) for row in values)
            yield register, _counting(decoded)

    def key(one: tuple[bytes, list[Found]]) -> bytes:
        return one[0][ENTRY.size :]

    for _, group in groupby(heapq.merge(*map(one_space, spaces), key=key), key=key):
        parts = list(group)
        name = key_of(parts[0][0])
        if name is not None:
            yield name, [one for _, found in parts for one in found]


def several_in(tx: Transaction, spaces: Sequence[bytes]) -> Iterator[tuple[str, int]]:
    """The keys that have several values there, and how many."""
    if len(spaces) == 1:
        registers = keys_with_several(tx, entries_of(*spaces))
        keys = [key for key in map(key_of, registers) if key is not None]
        found = ((key, found_in(tx, spaces, key.encode())) for key in keys)
    else:
        found = ((key, values) for key, values in keys_of(tx, spaces))
    for key, values in found:
        live = sum(one.live for one in values)
        if live > 1:
            yield key, live


def _decoded(value: bytes, stamp: Stamp) -> Found | None:
    """None: no correct device has written it; an earlier version, which knows no entries, has kept it."""
    try:
        return Found(Entry.decode(value), stamp)
    except DecodeError:
        return None


def _counting(found: Iterable[Found | None]) -> list[Found]:
    """Those of one register that count."""
    known = [one for one in found if one is not None]
    written = [one for one in known if not one.entry.came]
    if written or not known:
        return written
    return [max(known, key=lambda one: (one.sn, one.stamp))]


def writes_to(tx: Transaction, spaces: Sequence[bytes], key: bytes, entry: Entry) -> list[Write]:
    """What gives a key this entry, in place of all that is known of it."""
    gone = Entry(entry.sn, entry.write, entry.written, None, came=entry.came, went=entry.went).encode()
    others = [entry_key(space, key) for space in spaces[1:]]
    return [
        (entry_key(spaces[0], key), entry.encode()),
        *((register, gone) for register in others if tx.registers.values(register)),
    ]
