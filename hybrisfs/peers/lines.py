"""Lines: how a device reaches another one through a relay. Sans-IO.

A line is a connection by TLS to a relay, whose certificate the device knows by its hash. The device says

    request  magic "HFRL", version u16 = 1
             length  u16, of what follows, at most MAX_REQUEST
             role    u8: 1 waits for a device that calls, 2 calls a device that waits
             tag     16, of the device that waits, or is called
             space   blob, ASCII: which of the relay's spaces
             token   blob, ASCII: what opens that space

and the relay answers with single bytes:

    0   nobody has called yet; it says so every KEEPALIVE seconds
    1   from here on both sides of the line are those of two devices: the relay passes all bytes on
    2   nobody waits under this tag
    3   there is no such space, or the token does not open it
    4   there are too many lines in this space

After 2, 3 and 4 it closes. A device says nothing before a 1 has come: it would reach the other device as a
part of what they say to each other, which is TLS of their own (`hybrisfs.peers.tls`). So a relay learns which
tags meet, when, and how much they say. A tag follows from a secret of the volume and the device's id.
"""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

from sync import DecodeError, Reader, Writer

__all__ = [
    "KEEPALIVE",
    "MAGIC",
    "MAX_REQUEST",
    "TAG_SIZE",
    "LineRequest",
    "RequestDecoder",
    "Role",
    "Said",
    "encode_request",
]

MAGIC: Final = b"HFRL"
MAX_REQUEST: Final = 512
TAG_SIZE: Final = 16
KEEPALIVE: Final = 20.0
_VERSION: Final = 1
_HEADER: Final = len(MAGIC) + 2 + 2
_MAX_TEXT: Final = 200


class Role(enum.IntEnum):
    """What a device wants of a line."""

    WAIT = 1
    CALL = 2


class Said(enum.IntEnum):
    """What a relay says on a line."""

    WAITING = 0
    CONNECTED = 1
    NOBODY = 2
    REFUSED = 3
    FULL = 4


class LineRequest(Struct, frozen=True):
    """What a device asks for. The token is a secret."""

    role: Role
    tag: bytes
    space: str
    token: str


def encode_request(request: LineRequest) -> bytes:
    """The request's bytes."""
    body = Writer().u8(request.role).raw(request.tag)
    body.blob(request.space.encode("ascii")).blob(request.token.encode("ascii"))
    return Writer().format(MAGIC, _VERSION).u16(len(body)).raw(body.getvalue()).getvalue()


class RequestDecoder:
    """Takes a request in, in pieces. It never holds more than one request and what was fed last."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> LineRequest | None:
        """The request, once it is complete; None before. Raises `DecodeError`, also for bytes behind it."""
        self._buffer += data
        if len(self._buffer) < _HEADER:
            if not MAGIC.startswith(bytes(self._buffer[: len(MAGIC)])):
                raise DecodeError("not a request for a line")
            return None
        header = Reader(bytes(self._buffer[:_HEADER]))
        header.format(MAGIC, _VERSION)
        length = header.u16()
        if length > MAX_REQUEST:
            raise DecodeError(f"a request of {length} bytes, at most {MAX_REQUEST} are allowed")
        if len(self._buffer) > _HEADER + length:
            raise DecodeError("something follows the request")
        if len(self._buffer) < _HEADER + length:
            return None
        return _decode(Reader(bytes(self._buffer[_HEADER:])))


def _decode(reader: Reader) -> LineRequest:
    role, tag = _role(reader.u8()), reader.raw(TAG_SIZE)
    request = LineRequest(role, tag, _text(reader.blob(_MAX_TEXT)), _text(reader.blob(_MAX_TEXT)))
    reader.end()
    return request


def _role(number: int) -> Role:
    try:
        return Role(number)
    except ValueError as error:
        raise DecodeError(f"role {number} is unknown") from error


def _text(data: bytes) -> str:
    if not data.isascii():
        raise DecodeError("a name that is not ASCII")
    return data.decode("ascii")
