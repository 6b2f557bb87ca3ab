"""Log segments: consecutive updates of one device, compressed and sealed, as the clouds hold them.

A segment is the object `log/<writer, hex>/<id>`, where the id is made of the clock of its first update in 16
hex digits, "-", and the first 8 bytes of the hash of its last update in hex. As each update names the one
before by its hash, the name determines the updates: a second put under it, by the writer restored from a
backup or by a device that relays for it, overwrites nothing. Only `previous` may differ, where two divided
what comes before in different ways, and either leads to it.

What a cloud sees: which device wrote, the clocks of the first and last transaction, part of a hash, the size.
It sees no volume, no key, no value and no other device.

    header   magic "HFSG", version u16 = 2
             writer  16
             first   u64, clock of the first update
             last    u64, clock of the last update
             prefix  8, beginning of the hash of the last update
    sealed   (`sync.seal`) previous  varint: clock of the first update in the writer's segment before this
                                     one; 0 = none, as this is its first, or what comes
                                     before is known through checkpoints only
                           size      varint: bytes of the records when decompressed
                           records   one zstd frame of: length varint + signed update, repeated

The segments of a writer form a chain: the one before ends with the update that the first one here follows,
so its id is made of `previous` and the beginning of that one's `prev`. A head (`sync.head`) names the newest.
A cloud can therefore withhold segments, but cannot make anybody overlook it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from sync.codec import Buffer, Reader, Writer
from sync.errors import DecodeError, LimitError
from sync.identity import DEVICE_ID_SIZE
from sync.seal import SealKeys, compress, decompress, open_sealed, seal
from sync.update import (
    MAX_UPDATE,
    MAX_WRITES,
    SignedHeader,
    SignedUpdate,
    decode_signed,
    decode_signed_header,
)
from sync.vector import MAX_CLOCK

__all__ = [
    "MAX_SEGMENT",
    "MAX_SEGMENT_UPDATES",
    "SEGMENT_PREFIX_SIZE",
    "LogSegment",
    "SegmentId",
    "decode_segment",
    "encode_segment",
    "if_followed",
    "parse_segment_name",
    "segment_name",
]

MAX_SEGMENT = MAX_UPDATE + 4
"""Most bytes of the records in a segment, decompressed: the largest update fits, with its length."""
MAX_SEGMENT_UPDATES = 1 << 16
"""Most updates in a segment; they have at most MAX_WRITES writes together."""

SEGMENT_PREFIX_SIZE = 8
"""Bytes of an update's hash in the id of the segment that ends with it."""

_MAGIC = b"HFSG"
_VERSION = 2
_MAX_EXPANSION = 1 << 20  # zstd adds less than 1/128 to what it cannot compress, the header is small
_NAME = re.compile(r"log/([0-9a-f]{32})/([0-9a-f]{16})-([0-9a-f]{16})")


class SegmentId(NamedTuple):
    """What tells the segments of one writer apart: the clock of the first update, and the beginning of the
    last one's hash (SEGMENT_PREFIX_SIZE bytes)."""

    first: int
    prefix: bytes

    @classmethod
    def of(cls, first: int, last: bytes) -> SegmentId:
        """The id of the segment from the update of clock `first` to the one of hash `last`."""
        return cls(first, last[:SEGMENT_PREFIX_SIZE])


class LogSegment(Struct, frozen=True):
    """A decoded segment: its updates are well formed and chained, their signatures not yet verified."""

    writer: bytes
    previous: SegmentId | None
    """The writer's segment before this one, None when there is none."""
    updates: tuple[SignedUpdate, ...]


def if_followed(previous: SegmentId | None, update: bytes) -> SegmentId | None:
    """`previous` if `update` follows its last one; None otherwise: what is between them is in no segment any
    more, and `update` begins a chain of its own."""
    followed = previous is not None and decode_signed_header(update).prev.startswith(previous.prefix)
    return previous if followed else None


def segment_name(writer: bytes, identity: SegmentId) -> str:
    """The object name of a segment of `writer`."""
    return f"log/{writer.hex()}/{identity.first:016x}-{identity.prefix.hex()}"


def parse_segment_name(name: str) -> tuple[bytes, SegmentId]:
    """The writer and the id in an object name. Raises `DecodeError` for any other name."""
    match = _NAME.fullmatch(name)
    if not match or not 0 < int(match[2], 16) <= MAX_CLOCK:
        raise DecodeError(f"not the name of a log segment: {name!r}")
    return bytes.fromhex(match[1]), SegmentId(int(match[2], 16), bytes.fromhex(match[3]))


def _split(records: bytes) -> tuple[SignedUpdate, ...]:
    reader = Reader(records)
    updates: list[SignedUpdate] = []
    writes = 0
    while reader.remaining:
        updates.append(decode_signed(reader.blob(MAX_UPDATE)))
        writes += len(updates[-1].writes)
        if len(updates) > MAX_SEGMENT_UPDATES or writes > MAX_WRITES:
            raise DecodeError(f"more than {MAX_SEGMENT_UPDATES} updates or {MAX_WRITES} writes in a segment")
    return tuple(updates)


def _check_chain(headers: Sequence[SignedHeader], previous: SegmentId | None) -> None:
    """Require consecutive updates that segment `previous` may come before. Raises ValueError."""
    if not headers:
        raise ValueError("a segment holds at least one update")
    first = headers[0]
    if previous is not None and not (
        0 < previous.first <= first.prev_clock and first.prev.startswith(previous.prefix)
    ):
        raise ValueError(f"segment {previous} cannot come before update {first.clock}")
    for before, after in pairwise(headers):
        if (after.volume, after.writer, after.prev) != (before.volume, before.writer, before.hash):
            raise ValueError(f"update {after.clock} of the segment does not follow update {before.clock}")


def encode_segment(
    updates: Sequence[bytes], previous: SegmentId | None, keys: SealKeys, nonce: bytes
) -> bytes:
    """Compress and seal consecutive signed updates of one writer.

    `previous` is the writer's segment before this one, None when this is its first. `keys` are
    the volume's segment keys, `nonce` is 24 random bytes. The object's name is
    `segment_name(writer, SegmentId.of(clock of the first, hash of the last))`. Raises `LimitError` when
    they are too many or too large (MAX_SEGMENT, MAX_SEGMENT_UPDATES, MAX_WRITES), ValueError when they are
    none, not consecutive or do not follow `previous`, `DecodeError` when one is not an update at all.
    """
    headers = [decode_signed_header(update) for update in updates]
    _check_chain(headers, previous)
    first, last = headers[0], headers[-1]
    out = Writer()
    for update in updates:
        out.blob(update)
    size, writes = len(out), sum(header.write_count for header in headers)
    if size > MAX_SEGMENT or len(updates) > MAX_SEGMENT_UPDATES or writes > MAX_WRITES:
        raise LimitError(
            f"{len(updates)} updates, {writes} writes, {size} bytes in one segment; at most "
            f"{MAX_SEGMENT_UPDATES}, {MAX_WRITES} and {MAX_SEGMENT} are allowed"
        )
    payload = Writer().varint(previous.first if previous else 0)
    payload.varint(size).raw(compress(out.getvalue()))
    header = Writer().format(_MAGIC, _VERSION).raw(first.writer)
    header.u64(first.clock).u64(last.clock).raw(last.hash[:SEGMENT_PREFIX_SIZE])
    return seal(header.getvalue(), first.volume, payload.getvalue(), keys, nonce)


def read_segment_header(reader: Reader, name: str) -> int:
    """The clock of the last update in the segment that stands under `name`, by what is in clear of it.

    Raises `DecodeError`, also when it is another segment.
    """
    reader.format(_MAGIC, _VERSION)
    writer, first, last = reader.raw(DEVICE_ID_SIZE), reader.u64(), reader.u64()
    if (writer, SegmentId(first, reader.raw(SEGMENT_PREFIX_SIZE))) != parse_segment_name(name):
        raise DecodeError(f"another segment stands under the name {name}")
    return last


def decode_segment(
    data: Buffer, name: str, volume: bytes, keys: SealKeys, limit: int = MAX_SEGMENT
) -> LogSegment:
    """Open the object that a cloud returned for `name`.

    `limit` is the most bytes of records to accept; no more is ever decompressed.
    Raises `DecodeError`, among others when the object is that of another name, `UnknownEpochError`.
    """
    if len(data) > limit + _MAX_EXPANSION:
        raise DecodeError(f"a segment of {len(data)} bytes, at most {limit} are allowed")
    writer, identity = parse_segment_name(name)
    reader = Reader(data)
    last = read_segment_header(reader, name)
    header = bytes(memoryview(data)[: reader.position])
    reader = Reader(open_sealed(reader, header, volume, keys))
    before = reader.varint(MAX_CLOCK)
    size = reader.varint(limit)
    updates = _split(decompress(reader.raw(reader.remaining), size))
    headers = [update.header for update in updates]
    previous = SegmentId.of(before, headers[0].prev) if before and headers else None
    try:
        _check_chain(headers, previous)
    except ValueError as error:
        raise DecodeError(f"segment {name}: {error}") from error
    held = headers[0].volume, headers[0].writer, headers[-1].clock
    if held != (volume, writer, last) or SegmentId.of(headers[0].clock, headers[-1].hash) != identity:
        raise DecodeError(f"segment {name} does not hold the updates that its header states")
    return LogSegment(writer, previous, updates)
