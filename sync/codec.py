"""Strict binary encoding of every record that travels or is stored.

Integers are unsigned: fixed width big-endian, or LEB128 varints of at most ten bytes in their
shortest form. Byte strings carry a varint length and are read with a bound given by the caller.
A record is rejected when it is too short, too long, or not in the one canonical form, so that
equal records are equal bytes. A record that stands alone begins with four magic bytes and a u16
format version; as the magic differs per kind of record, a signature over one kind never passes for
another.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, TypeAlias

from blake3 import blake3

from sync.errors import DecodeError, NewerFormatError

__all__ = ["HASH_SIZE", "ZERO_HASH", "Buffer", "DecodeError", "Reader", "Writer", "digest"]

Buffer: TypeAlias = bytes | bytearray | memoryview

_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")
_MAX_VARINT = (1 << 64) - 1


class Writer:
    """Builds one record; `getvalue` returns the bytes written so far."""

    __slots__ = ("_out",)

    def __init__(self) -> None:
        self._out = bytearray()

    def u8(self, value: int) -> Writer:
        self._out.append(value)
        return self

    def u16(self, value: int) -> Writer:
        self._out += _U16.pack(value)
        return self

    def u32(self, value: int) -> Writer:
        self._out += _U32.pack(value)
        return self

    def u64(self, value: int) -> Writer:
        self._out += _U64.pack(value)
        return self

    def varint(self, value: int) -> Writer:
        if not 0 <= value <= _MAX_VARINT:
            raise ValueError(f"varint out of range: {value}")
        out = self._out
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
        return self

    def raw(self, data: Buffer) -> Writer:
        """Append bytes whose length the reader knows."""
        self._out += data
        return self

    def blob(self, data: Buffer) -> Writer:
        """Append a varint length and the bytes."""
        self.varint(len(data))
        self._out += data
        return self

    def format(self, magic: bytes, version: int) -> Writer:
        """Append the four magic bytes and the format version that begin a record."""
        self._out += magic
        return self.u16(version)

    def getvalue(self) -> bytes:
        return bytes(self._out)

    def __len__(self) -> int:
        return len(self._out)


class Reader:
    """Reads one record front to back. Every method raises `DecodeError` on malformed input."""

    __slots__ = ("_data", "_end", "_pos")

    def __init__(self, data: Buffer) -> None:
        self._data = data if type(data) is bytes else bytes(data)
        self._pos = 0
        self._end = len(data)

    @property
    def position(self) -> int:
        return self._pos

    @property
    def remaining(self) -> int:
        return self._end - self._pos

    def raw(self, length: int) -> bytes:
        start = self._pos
        end = start + length
        if end > self._end:
            raise DecodeError(f"record ends early: {length} bytes wanted at {start} of {self._end}")
        self._pos = end
        return self._data[start:end]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read numbers and byte strings of fixed widths, as many as *layout* has."""
        start = self._pos
        end = start + layout.size
        if end > self._end:
            raise DecodeError(f"record ends early: {layout.size} bytes wanted at {start} of {self._end}")
        self._pos = end
        return layout.unpack_from(self._data, start)

    def u8(self) -> int:
        return self.raw(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.raw(2), "big")

    def u32(self) -> int:
        return int.from_bytes(self.raw(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.raw(8), "big")

    def varint(self, maximum: int = _MAX_VARINT) -> int:
        position = self._pos
        if position < self._end and (byte := self._data[position]) < 0x80:  # most are of one byte
            self._pos = position + 1
            if byte > maximum:
                raise DecodeError(f"number {byte} above its limit {maximum}")
            return byte
        return self._long_varint(maximum)

    def _long_varint(self, maximum: int) -> int:
        data, position, end = self._data, self._pos, self._end
        value = shift = 0
        while True:
            if position >= end:
                raise DecodeError(f"record ends early: within a number at {self._pos} of {end}")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise DecodeError("varint longer than ten bytes")
        if byte == 0 and shift:
            raise DecodeError("varint not in shortest form")
        if value > maximum:
            raise DecodeError(f"number {value} above its limit {maximum}")
        self._pos = position
        return value

    def blob(self, maximum: int) -> bytes:
        return self.raw(self.varint(maximum))

    def format(self, magic: bytes, version: int) -> None:
        """Require the magic bytes and exactly this format version.

        Raises `NewerFormatError` when the version is higher than ours.
        """
        beginning = magic + version.to_bytes(2, "big")
        if self._data.startswith(beginning, self._pos):
            self._pos += len(beginning)
            return
        found = self.raw(len(magic))
        if found != magic:
            raise DecodeError(f"not a {magic.decode()} record: it begins with {found!r}")
        theirs = self.u16()
        if theirs > version:
            raise NewerFormatError(
                f"{magic.decode()} record of format {theirs}, this program reads up to {version}: upgrade it"
            )
        if theirs != version:
            raise DecodeError(f"{magic.decode()} record of unknown format {theirs}")

    def end(self) -> None:
        """Require that nothing follows."""
        if self._pos != self._end:
            raise DecodeError(f"{self._end - self._pos} bytes after the end of the record")


# -- the one hash of `sync` -----------------------------------------------------------------------------


HASH_SIZE = 32
ZERO_HASH = bytes(HASH_SIZE)


def digest(context: str, data: Buffer, length: int = HASH_SIZE) -> bytes:
    """Hash `data` for the purpose named by the constant `context`."""
    hasher = _beginning(context).copy()
    hasher.update(data)
    return hasher.digest(length)


@cache
def _beginning(context: str) -> blake3:
    """Deriving the key from the context takes as long as hashing what is hashed here."""
    return blake3(derive_key_context=context)
