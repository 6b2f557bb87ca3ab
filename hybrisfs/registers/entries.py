"""Containers of the key-value store whose keys are in the log, and the entries of these keys.

==========  ==================================  ==============================================================
register    key                                 value
==========  ==================================  ==============================================================
container   ``b`` name (1 .. 255 bytes, UTF-8;  state u8 (0 it was dropped, 1 there is one, 2 it has another
            1 .. 512 of one that is moved)      name); then the end, or how many spaces (varint, 1 .. 64) and
                                                each (8), ascending; with state 2 also the other name (blob)
entry       ``j`` space (8), key (1 .. 512      version u8 = 1, kind u8, sn (varint), write (varint), written
            bytes, UTF-8)                       (varint, ms since the epoch); kinds 1 and 3 also: attributes
                                                (blob <= 4096), the value (blob <= 256 KiB); kind 4 also:
                                                clock (varint), branch (16)
==========  ==================================  ==============================================================

The *space* of a container is what the registers of its entries begin with: the first 8 bytes of the BLAKE3
hash of its name, unless its register names others. A container keeps its spaces when it gets another name.

====  ==========================================================================================
kind  what an entry says
====  ==========================================================================================
0     the key was deleted
1     a value
2     as 0, and a move has copied that to here (`hybrisfs.kv.migrate`)
3     as 1, and a move has copied that to here
4     a move has taken the value of this sn, which the update of this clock and branch had written
====  ==========================================================================================

`sn` is the version: one more than the highest of the values that the writer knew. `write` is a random number,
which makes the tag ``sn-write`` that of this value alone. A deletion has both, so that versions go on.

Of concurrent values of an entry all count: a reader gets that of the highest stamp, a value before a
deletion, and can ask for the others. A write supersedes those that its writer knew. Of those that a move has
copied one counts, that of the highest `sn`, and none beside another one: `hybrisfs.kv.log_containers` says
why. Of the values of a container all that say that it is there count, with all their spaces; and while a key
in a container that was dropped has a value, it is there in any case: the device that dropped it had not seen
that.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from blake3 import blake3

from hybrisfs.kinds import CONTAINER, ENTRY
from hybrisfs.registers.values import Stamp
from sync import DEVICE_ID_SIZE
from sync.codec import DecodeError, Reader, Writer

__all__ = [
    "MAX_ATTRIBUTES",
    "MAX_CONTAINER",
    "MAX_ENTRY_KEY",
    "MAX_ENTRY_VALUE",
    "MAX_MOVED",
    "MAX_NUMBER",
    "MAX_SPACES",
    "SPACE_SIZE",
    "ContainerRecord",
    "ContainerState",
    "Entry",
    "check_container_record",
    "check_entry",
    "container_key",
    "entries_of",
    "entry_key",
    "key_of",
    "name_of",
    "space_of",
]

MAX_CONTAINER: Final = 255  # bytes
MAX_MOVED: Final = 512
"""Bytes of the name of a container that is moved."""
MAX_SPACES: Final = 64
SPACE_SIZE: Final = ENTRY.size - 1
MAX_ENTRY_KEY: Final = 512  # bytes
MAX_ENTRY_VALUE: Final = 256 << 10  # bytes
MAX_ATTRIBUTES: Final = 4096
"""Bytes that a program can keep beside a value."""
MAX_NUMBER: Final = (1 << 63) - 1
_VERSION: Final = 1
_DELETED: Final = 0
_VALUE: Final = 1
_CAME: Final = 2  # added to either
_WENT: Final = 4


def container_key(name: str) -> bytes:
    """The register of a container."""
    return CONTAINER.key(name.encode())


def name_of(key: bytes) -> str | None:
    """The name of the container that a register is of; None when none has it."""
    name = _text(key[CONTAINER.size :], MAX_MOVED)
    is_short = len(key) <= CONTAINER.size + MAX_CONTAINER
    return name if name is not None and (is_short or "/" in name) else None


def space_of(container: str) -> bytes:
    """The space of a container whose register names no other one."""
    return blake3(container.encode()).digest(SPACE_SIZE)


def entries_of(space: bytes) -> bytes:
    """What the keys of the registers of the entries in a space begin with."""
    return ENTRY.key(space)


def entry_key(space: bytes, key: bytes) -> bytes:
    """The register of the entry of a key."""
    return entries_of(space) + key


def key_of(key: bytes) -> str | None:
    """The key of the entry in a register; None when no key can be so."""
    return _text(key[ENTRY.size :], MAX_ENTRY_KEY)


def _text(name: bytes, most: int) -> str | None:
    try:
        return name.decode() if 0 < len(name) <= most and b"\0" not in name else None
    except UnicodeDecodeError:
        return None


class ContainerState(IntEnum):
    """What an update says of the name of a container."""

    DROPPED = 0
    THERE = 1
    RENAMED = 2


class ContainerRecord(NamedTuple):
    """What an update has written to the register of a container."""

    state: ContainerState
    spaces: tuple[bytes, ...] = ()
    """In ascending order; none: the one of its name, see `space_of`."""
    new: str = ""
    """With RENAMED: the other name."""

    def encode(self) -> bytes:
        out = Writer().u8(self.state)
        if self.spaces:
            out.varint(len(self.spaces)).raw(b"".join(self.spaces))
        if self.state is ContainerState.RENAMED:
            out.blob(self.new.encode())
        return out.getvalue()

    @staticmethod
    def decode(data: bytes) -> ContainerRecord:
        """Raises DecodeError."""
        reader = Reader(data)
        state = reader.u8()
        if state not in tuple(ContainerState):
            raise DecodeError("a container that is neither there nor dropped nor renamed")
        if not reader.remaining and state != ContainerState.RENAMED:
            return ContainerRecord(ContainerState(state))
        spaces = tuple(reader.raw(SPACE_SIZE) for _ in range(reader.varint(MAX_SPACES)))
        if not spaces or any(one >= other for one, other in pairwise(spaces)):
            raise DecodeError("the spaces of a container are not in order")
        new = _text(reader.blob(MAX_MOVED), MAX_MOVED) if state == ContainerState.RENAMED else ""
        reader.end()
        if new is None:
            raise DecodeError("a name that no container has")
        return ContainerRecord(ContainerState(state), spaces, new)


def check_container_record(key: bytes, value: bytes) -> None:
    """Raises DecodeError unless this is the register of a container and a value that it may have."""
    if name_of(key) is None:
        raise DecodeError("a name that no container has")
    ContainerRecord.decode(value)


def check_entry(key: bytes, value: bytes) -> None:
    """Raises DecodeError unless this is the register of an entry and a value that it may have."""
    if key_of(key) is None:
        raise DecodeError("the entry of a key that there cannot be")
    Entry.decode(value)


class Entry(NamedTuple):
    """What an update has written to a key."""

    sn: int
    write: int
    written: int
    value: bytes | None
    """None: there is none any more."""
    attributes: bytes = b""
    came: bool = False
    """Whether a move has copied it."""
    went: Stamp | None = None
    """The update that had written the value which a move has taken from here."""

    def encode(self) -> bytes:
        kind = (_DELETED if self.value is None else _VALUE) | (_CAME if self.came else 0)
        out = Writer().u8(_VERSION).u8(kind if self.went is None else _WENT)
        out.varint(self.sn).varint(self.write).varint(self.written)
        if self.went is not None:
            out.varint(self.went.clock).raw(self.went.branch)
        elif self.value is not None:
            out.blob(self.attributes).blob(self.value)
        return out.getvalue()

    @staticmethod
    def decode(data: bytes) -> Entry:
        """Raises DecodeError."""
        reader = Reader(data)
        if reader.u8() != _VERSION:
            raise DecodeError("an entry of another version")
        kind = reader.u8()
        if kind > _WENT:
            raise DecodeError(f"an entry of unknown kind {kind}")
        entry = Entry(reader.varint(MAX_NUMBER), reader.varint(MAX_NUMBER), reader.varint(MAX_NUMBER), None)
        if kind == _WENT:
            entry = entry._replace(went=Stamp(reader.varint(MAX_NUMBER), reader.raw(DEVICE_ID_SIZE)))
        elif kind & _VALUE:
            attributes = reader.blob(MAX_ATTRIBUTES)
            entry = entry._replace(attributes=attributes, value=reader.blob(MAX_ENTRY_VALUE))
        reader.end()
        return entry._replace(came=bool(kind & _CAME))
