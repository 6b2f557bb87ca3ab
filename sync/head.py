"""Heads: a device's statement of where it stands, the one object per device that is overwritten.

The head is the device's beacon (Depot 5.3): "at this time I was alive, and had seen this". It is the
object `heads/<device id, hex>`. What a cloud sees: the device, the size, when it changes.

    header   magic "HFHD", version u16 = 1
             writer  16
    sealed   (`sync.seal`) record, then signature 64 over exactly the record bytes

    record   magic "HFHR", version u16 = 1
             volume     16
             writer     16
             time       u64, ns since the epoch by the writer's clock
             vector     version vector form: all that the writer has accepted, its own updates included
             newest     32, hash of its newest own update, zeros when it has none
             segments   varint, how many segments of its log are on the clouds; when not 0, then
                        first  varint, clock of the first update in the newest segment
                        last   varint, clock of the last update in it

From the newest segment all others are found through their `previous`, and `segments` tells how many
there are. A head is a rollback when an earlier known one of the same writer has a vector that this
one does not cover: a correct device lets it only grow. Time tells how stale a head is, no more, as
clocks get set back.
"""

from __future__ import annotations

from dataclasses import dataclass

from sync.codec import Buffer, Reader, Writer
from sync.errors import DecodeError
from sync.hashing import HASH_SIZE, ZERO_HASH
from sync.identity import DEVICE_ID_SIZE, SIGNATURE_SIZE, DeviceKey, device_id_of, verify
from sync.seal import open_sealed, seal
from sync.update import VOLUME_ID_SIZE
from sync.vector import MAX_CLOCK, VersionVector

__all__ = ["Extent", "Head", "decode_head", "encode_head", "head_name"]

_MAGIC = b"HFHD"
_VERSION = 1
_RECORD_MAGIC = b"HFHR"
_RECORD_VERSION = 1
_MAX_HEAD = 1 << 16


@dataclass(frozen=True, slots=True)
class Extent:
    """A device's log on the clouds: how many segments, and the first and last clock of the newest."""

    segments: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Head:
    """What a device states about itself; the fields are those of the record above."""

    volume: bytes
    writer: bytes
    time_ns: int
    vector: VersionVector
    newest: bytes
    extent: Extent | None
    """None while no segment is on the clouds."""


def head_name(writer: bytes) -> str:
    """The object name of the head of `writer`."""
    return f"heads/{writer.hex()}"


def encode_head(head: Head, device: DeviceKey, key: bytes, nonce: bytes) -> bytes:
    """Sign a head with `device` and seal it with `key` (32 bytes) and `nonce` (24 random bytes).

    Raises ValueError when `device` is not the writer.
    """
    if head.writer != device.device_id:
        raise ValueError("a head is signed by its own device only")
    out = Writer().format(_RECORD_MAGIC, _RECORD_VERSION)
    out.raw(head.volume).raw(head.writer).u64(head.time_ns)
    head.vector.write_to(out)
    out.raw(head.newest)
    if head.extent is None:
        out.varint(0)
    else:
        out.varint(head.extent.segments).varint(head.extent.first).varint(head.extent.last)
    record = out.getvalue()
    header = Writer().format(_MAGIC, _VERSION).raw(head.writer).getvalue()
    return seal(header, head.volume, record + device.sign(record), key, nonce)


def decode_head(data: Buffer, volume: bytes, public: bytes, key: bytes) -> Head:
    """Open the head of the device whose public key is `public` and check its signature.

    Raises `DecodeError`.
    """
    if len(data) > _MAX_HEAD:
        raise DecodeError(f"a head of {len(data)} bytes, at most {_MAX_HEAD} are allowed")
    writer = device_id_of(public)
    reader = Reader(data)
    reader.format(_MAGIC, _VERSION)
    if reader.raw(DEVICE_ID_SIZE) != writer:
        raise DecodeError(f"another device's head stands under the name {head_name(writer)}")
    header = bytes(memoryview(data)[: reader.position])
    payload = open_sealed(reader, header, volume, key)
    record, signature = payload[:-SIGNATURE_SIZE], payload[-SIGNATURE_SIZE:]
    if not verify(public, record, signature):
        raise DecodeError(f"device {writer.hex()} did not sign this head")
    head = _read_record(Reader(record))
    if (head.volume, head.writer) != (volume, writer):
        raise DecodeError("a head of another volume or device")
    return head


def _read_record(reader: Reader) -> Head:
    reader.format(_RECORD_MAGIC, _RECORD_VERSION)
    volume = reader.raw(VOLUME_ID_SIZE)
    writer = reader.raw(DEVICE_ID_SIZE)
    time_ns = reader.u64()
    vector = VersionVector.read_from(reader)
    newest = reader.raw(HASH_SIZE)
    segments = reader.varint(MAX_CLOCK)
    extent = Extent(segments, reader.varint(MAX_CLOCK), reader.varint(MAX_CLOCK)) if segments else None
    reader.end()
    if (newest == ZERO_HASH) != (vector[writer] == 0):
        raise DecodeError("vector and newest disagree on whether the writer has written at all")
    if extent and not 0 < extent.first <= extent.last <= vector[writer]:
        raise DecodeError(f"segment {extent.first} to {extent.last} cannot be the newest")
    return Head(volume, writer, time_ns, vector, newest, extent)
