"""Containers of the key-value store whose keys are in the log, and the entries of these keys.

==========  ==================================  ==============================================================
register    key                                 value
==========  ==================================  ==============================================================
container   ``b`` name (1 .. 255 bytes, UTF-8)  u8: 1 there is one, 0 it was dropped
entry       ``j`` first 8 bytes of the BLAKE3   version u8 = 1, kind u8 (0 deleted, 1 a value), sn (varint),
            hash of the container's name,       write (varint), written (varint, ms since the epoch); of a
            key (1 .. 512 bytes, UTF-8)         value also: attributes (blob <= 4096), the value (blob <= 256
                                                KiB)
==========  ==================================  ==============================================================

`sn` is the version: one more than the highest of the values that the writer knew. `write` is a random number,
which makes the tag ``sn-write`` that of this value alone. A deletion has both, so that versions go on.

Of concurrent values of an entry all count: a reader gets that of the highest stamp, a value before a
deletion, and can ask for the others. A write supersedes those that its writer knew. Of those of a container
one counts that says that it is there; and while a key in it has a value, it is there in any case: the device
that dropped it had not seen that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from blake3 import blake3

from hybrisfs.kinds import CONTAINER, ENTRY
from sync.codec import DecodeError, Reader, Writer

__all__ = [
    "DROPPED",
    "MAX_ATTRIBUTES",
    "MAX_CONTAINER",
    "MAX_ENTRY_KEY",
    "MAX_ENTRY_VALUE",
    "MAX_NUMBER",
    "THERE",
    "Entry",
    "check_container_record",
    "check_entry",
    "container_key",
    "entries_of",
    "entry_key",
    "key_of",
    "name_of",
]

MAX_CONTAINER: Final = 255  # bytes
MAX_ENTRY_KEY: Final = 512  # bytes
MAX_ENTRY_VALUE: Final = 256 << 10  # bytes
MAX_ATTRIBUTES: Final = 4096
"""Bytes that a program can keep beside a value."""
MAX_NUMBER: Final = (1 << 63) - 1
THERE: Final = b"\1"
DROPPED: Final = b"\0"
_VERSION: Final = 1
_DELETED: Final = 0
_VALUE: Final = 1


def container_key(name: str) -> bytes:
    """The register of a container."""
    return CONTAINER.key(name.encode())


def name_of(key: bytes) -> str | None:
    """The name of the container that a register is of; None when none has it."""
    return _text(key[CONTAINER.size :], MAX_CONTAINER)


def entries_of(container: str) -> bytes:
    """What the keys of the registers of the entries in a container begin with."""
    return ENTRY.key(blake3(container.encode()).digest(ENTRY.size - 1))


def entry_key(container: str, key: bytes) -> bytes:
    """The register of the entry of a key."""
    return entries_of(container) + key


def key_of(key: bytes) -> str | None:
    """The key of the entry in a register; None when no key can be so."""
    return _text(key[ENTRY.size :], MAX_ENTRY_KEY)


def _text(name: bytes, most: int) -> str | None:
    try:
        return name.decode() if 0 < len(name) <= most and b"\0" not in name else None
    except UnicodeDecodeError:
        return None


def check_container_record(key: bytes, value: bytes) -> None:
    """Raises DecodeError unless this is the register of a container and a value that it may have."""
    name = name_of(key)
    if name is None or "/" in name:
        raise DecodeError("a name that no container has")
    if value not in (THERE, DROPPED):
        raise DecodeError("a container that is neither there nor dropped")


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
    """None: the key was deleted."""
    attributes: bytes = b""

    def encode(self) -> bytes:
        out = Writer().u8(_VERSION).u8(_DELETED if self.value is None else _VALUE)
        out.varint(self.sn).varint(self.write).varint(self.written)
        if self.value is not None:
            out.blob(self.attributes).blob(self.value)
        return out.getvalue()

    @staticmethod
    def decode(data: bytes) -> Entry:
        """Raises DecodeError."""
        reader = Reader(data)
        if reader.u8() != _VERSION:
            raise DecodeError("an entry of another version")
        kind = reader.u8()
        entry = Entry(reader.varint(MAX_NUMBER), reader.varint(MAX_NUMBER), reader.varint(MAX_NUMBER), None)
        if kind == _VALUE:
            attributes = reader.blob(MAX_ATTRIBUTES)
            entry = entry._replace(attributes=attributes, value=reader.blob(MAX_ENTRY_VALUE))
        elif kind != _DELETED:
            raise DecodeError(f"an entry of unknown kind {kind}")
        reader.end()
        return entry
