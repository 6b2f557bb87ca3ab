"""Frames: what two devices say to each other inside TLS. Sans-IO.

    frame    length  u32, of what follows, 1 .. MAX_FRAME
             type    u8
             body

    type  name            body
    1     hello           magic "HFPR", version u16 = 1; instance 8, random per start of the sender;
                          port u16, on which the sender listens for devices, 0 when it does not
    2     exchange part   last u8: 1 when this ends the message, else 0; a part of a message of the log
                          exchange, opaque here, at most MAX_MESSAGE bytes in all parts
    3     chunk request   number u32, chunk id 32
    4     chunk reply     number u32, the chunk's plaintext
    5     chunk missing   number u32
    6     beacon          a sealed head, opaque here, at most MAX_BEACON bytes
    7     ping            token u64
    8     pong            token u64, that of the ping
    9     bye             reason u8 (`Parting`)

Each side sends its hello first. A request is answered once, in any order, by a reply or a missing with its
number; at most MAX_REQUESTS of one side are unanswered. After a bye its sender sends nothing more.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from msgspec import Struct

from hybrisfs.peers.errors import FrameError
from sync import DecodeError, Reader, Writer

__all__ = [
    "CHUNK_ID_SIZE",
    "INSTANCE_SIZE",
    "MAX_BEACON",
    "MAX_BODY",
    "MAX_FRAME",
    "MAX_REQUESTS",
    "Beacon",
    "Bye",
    "ChunkMissing",
    "ChunkReply",
    "ChunkRequest",
    "ExchangePart",
    "Frame",
    "FrameDecoder",
    "Hello",
    "Parting",
    "Ping",
    "Pong",
    "encode_frame",
]

MAX_BODY: Final = 2 << 20
_NUMBER_SIZE: Final = 4
MAX_FRAME: Final = 1 + _NUMBER_SIZE + MAX_BODY
MAX_BEACON: Final = 1 << 16
MAX_REQUESTS: Final = 64
CHUNK_ID_SIZE: Final = 32
INSTANCE_SIZE: Final = 8

_MAGIC: Final = b"HFPR"
_VERSION: Final = 1
_LENGTH: Final = struct.Struct(">I")
_MAX_FIRST: Final = 256  # room for the hello of a later version, so that it differs from garbage


class Parting(enum.IntEnum):
    """Why a side closes the link."""

    CLOSING = 0
    """The volume is closed or the device goes to sleep; it comes back by itself."""
    DUPLICATE = 1
    """Another link between the same two devices stays."""
    REMOVED = 2
    """The other side is no longer a member."""
    BROKEN = 3
    """The other side broke the protocol."""
    FAILED = 4
    """Something failed here; try again later."""


class Hello(Struct, frozen=True):
    """The first frame; the fields are those of the table above."""

    instance: bytes
    port: int


class ExchangePart(Struct, frozen=True):
    """A message of the log exchange, or a part of one."""

    last: bool
    data: bytes


class ChunkRequest(Struct, frozen=True):
    """Asks for a chunk."""

    number: int
    chunk_id: bytes


class ChunkReply(Struct, frozen=True):
    """The chunk that was asked for under *number*, unverified."""

    number: int
    data: bytes


class ChunkMissing(Struct, frozen=True):
    """The chunk that was asked for under *number* is not here."""

    number: int


class Beacon(Struct, frozen=True):
    """A sealed head."""

    data: bytes


class Ping(Struct, frozen=True):
    """Asks for a pong."""

    token: int


class Pong(Struct, frozen=True):
    """Answers a ping."""

    token: int


class Bye(Struct, frozen=True):
    """The last frame."""

    reason: Parting


Frame: TypeAlias = (
    Hello | ExchangePart | ChunkRequest | ChunkReply | ChunkMissing | Beacon | Ping | Pong | Bye
)

_LIMITS: Final = {ExchangePart: 2 + MAX_BODY, Beacon: 1 + MAX_BEACON}


def encode_frame(frame: Frame) -> bytes:
    """The frame's bytes. Raises ValueError when the other side would not accept them."""
    out = Writer()
    match frame:
        case Hello(instance, port):
            out.u8(1).format(_MAGIC, _VERSION).raw(instance).u16(port)
        case ExchangePart(last, data):
            out.u8(2).u8(last).raw(data)
        case ChunkRequest(number, chunk_id):
            out.u8(3).u32(number).raw(chunk_id)
        case ChunkReply(number, data):
            out.u8(4).u32(number).raw(data)
        case ChunkMissing(number):
            out.u8(5).u32(number)
        case Beacon(data):
            out.u8(6).raw(data)
        case Ping(token):
            out.u8(7).u64(token)
        case Pong(token):
            out.u8(8).u64(token)
        case Bye(reason):
            out.u8(9).u8(reason)
    limit = _LIMITS.get(type(frame), MAX_FRAME)
    if len(out) > limit:
        raise ValueError(f"a {type(frame).__name__} frame of {len(out)} bytes is too long")
    return _LENGTH.pack(len(out)) + out.getvalue()


class FrameDecoder:
    """Turns a stream of bytes into frames. It never holds more than one frame and what was fed last.

    A length is refused as soon as it is read. Until the hello came, nothing else is accepted.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._decoded = 0  # bytes of it, of frames that were yielded
        self._limit = _MAX_FIRST

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that *data* completes; to be used up before the next call. Raises `FrameError`."""
        del self._buffer[: self._decoded]
        self._decoded = 0
        self._buffer += data
        while len(self._buffer) - self._decoded >= _LENGTH.size:
            start = self._decoded + _LENGTH.size
            (length,) = _LENGTH.unpack_from(self._buffer, self._decoded)
            if not 1 <= length <= self._limit:
                raise FrameError(f"a frame of {length} bytes, 1 to {self._limit} are allowed")
            end = start + length
            if len(self._buffer) < end:
                return
            body = bytes(memoryview(self._buffer)[start:end])
            self._decoded = end
            frame = _decode(body)
            if isinstance(frame, Hello) != (self._limit == _MAX_FIRST):
                raise FrameError(f"a {type(frame).__name__} frame out of turn")
            self._limit = MAX_FRAME
            yield frame


def _decode(body: bytes) -> Frame:
    reader = Reader(body)
    try:
        frame = _read(reader)
        reader.end()
        if len(body) > _LIMITS.get(type(frame), MAX_FRAME):
            raise DecodeError(f"a {type(frame).__name__} that is too long")
    except DecodeError as error:
        raise FrameError(f"a malformed frame: {error}") from error
    return frame


def _read(reader: Reader) -> Frame:
    match reader.u8():
        case 1:
            reader.format(_MAGIC, _VERSION)
            return Hello(reader.raw(INSTANCE_SIZE), reader.u16())
        case 2:
            return ExchangePart(_flag(reader.u8()), reader.raw(reader.remaining))
        case 3:
            return ChunkRequest(reader.u32(), reader.raw(CHUNK_ID_SIZE))
        case 4:
            return ChunkReply(reader.u32(), reader.raw(reader.remaining))
        case 5:
            return ChunkMissing(reader.u32())
        case 6:
            return Beacon(reader.raw(reader.remaining))
        case 7:
            return Ping(reader.u64())
        case 8:
            return Pong(reader.u64())
        case 9:
            return Bye(_parting(reader.u8()))
        case kind:
            raise DecodeError(f"type {kind} is unknown")


def _flag(value: int) -> bool:
    if value > 1:
        raise DecodeError(f"{value} is not a flag")
    return bool(value)


def _parting(value: int) -> Parting:
    try:
        return Parting(value)
    except ValueError as error:
        raise DecodeError(f"reason {value} is unknown") from error
