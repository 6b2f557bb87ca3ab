"""Segments: consecutive updates of one writer, compressed and sealed, as the clouds hold them.

A segment is the object `log/<writer, hex>/<start>`, where the start is made of the clock of its first update
in 16 hex digits, "-", and the first 8 bytes of that update's hash in hex: so a device that was restored from
a backup overwrites nothing that it wrote before. A segment is never changed once a head names it; what an
upload that failed left under the name may end earlier.

What a cloud sees: which device wrote, the clocks of the first and last transaction, part of a hash, the size.
It sees no volume, no key, no value and no other device.

    header   magic "HFSG", version u16 = 1
             writer  16
             first   u64, clock of the first update
             prefix  8, beginning of its hash
             last    u64, clock of the last update
    sealed   (`sync.seal`) previous  varint: clock of the start of the writer's segment before this one, 0 =
                                     none, else followed by 8 bytes: the prefix of that start
                           size      varint: bytes of the records when decompressed
                           records   one zstd frame of: length varint + signed update, repeated

The segments of a writer form a chain: `previous` names the one before, and the `prev` of the first
update is the hash of the last update in it. A head (`sync.head`) names the newest. A cloud can
therefore withhold segments, but cannot make anybody overlook it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import zstandard

from sync.codec import Buffer, Reader, Writer
from sync.errors import DecodeError, LimitError
from sync.identity import DEVICE_ID_SIZE
from sync.seal import open_sealed, seal
from sync.update import MAX_UPDATE, SignedHeader, SignedUpdate, decode_signed, decode_signed_header
from sync.vector import MAX_CLOCK
from sync.writes import MAX_WRITES

__all__ = [
    "MAX_SEGMENT",
    "MAX_SEGMENT_UPDATES",
    "Segment",
    "SegmentStart",
    "decode_segment",
    "encode_segment",
    "parse_segment_name",
    "segment_name",
]

MAX_SEGMENT = MAX_UPDATE + 4
"""Most bytes of the records in a segment, decompressed: the largest update fits, with its length."""
MAX_SEGMENT_UPDATES = 1 << 16
"""Most updates in a segment; they have at most MAX_WRITES writes together."""

_MAGIC = b"HFSG"
_VERSION = 1
_LEVEL = 3  # measured: as small as 6 to 12 on metadata full of random ids, and twice as fast
_WINDOW_LOG = 24
_MAX_EXPANSION = 1 << 20  # zstd adds less than 1/128 to what it cannot compress, the header is small
_PREFIX_SIZE = 8
_NAME = re.compile(r"log/([0-9a-f]{32})/([0-9a-f]{16})-([0-9a-f]{16})")


class SegmentStart(NamedTuple):
    """What tells the segments of one writer apart: the clock of the first update, and the beginning of its
    hash."""

    clock: int
    prefix: bytes

    @classmethod
    def of(cls, header: SignedHeader) -> SegmentStart:
        """The start of a segment that begins with this update."""
        return cls(header.clock, header.hash[:_PREFIX_SIZE])

    def write_to(self, out: Writer) -> None:
        """Append the clock as varint and the prefix."""
        out.varint(self.clock).raw(self.prefix)

    @classmethod
    def read_from(cls, reader: Reader, clock: int) -> SegmentStart:
        """Read what follows the `clock` of a start. Raises `DecodeError`."""
        return cls(clock, reader.raw(_PREFIX_SIZE))


@dataclass(frozen=True, slots=True)
class Segment:
    """A decoded segment: its updates are well formed and chained, their signatures not yet verified."""

    writer: bytes
    previous: SegmentStart | None
    """The start of the writer's segment before this one, None when this is its first."""
    updates: tuple[SignedUpdate, ...]


def segment_name(writer: bytes, start: SegmentStart) -> str:
    """The object name of the segment of `writer` that begins with `start`."""
    return f"log/{writer.hex()}/{start.clock:016x}-{start.prefix.hex()}"


def parse_segment_name(name: str) -> tuple[bytes, SegmentStart]:
    """The writer and the start in an object name. Raises `DecodeError` for any other name."""
    match = _NAME.fullmatch(name)
    if not match or not 0 < int(match[2], 16) <= MAX_CLOCK:
        raise DecodeError(f"not the name of a log segment: {name!r}")
    return bytes.fromhex(match[1]), SegmentStart(int(match[2], 16), bytes.fromhex(match[3]))


def _compress(records: bytes) -> bytes:
    # The window spans the segment, so that an id is found again however far back it stands.
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, source_size=len(records), window_log=min(_WINDOW_LOG, max(10, len(records).bit_length()))
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(records)


def _decompress(frame: bytes, size: int) -> bytes:
    """Decompress a frame that must hold exactly `size` bytes and allocate no more than that."""
    try:
        parameters = zstandard.get_frame_parameters(frame)
        if parameters.content_size != size:
            raise DecodeError(f"the segment states {size} bytes, its zstd frame {parameters.content_size}")
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
        return decompressor.decompress(frame, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecodeError(f"the segment does not decompress: {error}") from error


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


def _check_chain(headers: Sequence[SignedHeader], previous: SegmentStart | None) -> None:
    """Require consecutive updates that segment `previous` may come before. Raises ValueError."""
    if not headers:
        raise ValueError("a segment holds at least one update")
    first = headers[0]
    if not (0 < previous.clock <= first.prev_clock if previous else first.prev_clock == 0):
        raise ValueError(f"segment {previous} cannot come before update {first.clock}")
    for before, after in pairwise(headers):
        if (after.volume, after.writer, after.prev) != (before.volume, before.writer, before.hash):
            raise ValueError(f"update {after.clock} of the segment does not follow update {before.clock}")


def encode_segment(
    updates: Sequence[bytes], previous: SegmentStart | None, key: bytes, nonce: bytes
) -> bytes:
    """Compress and seal consecutive signed updates of one writer.

    `previous` is the start of the writer's segment before this one, None when this is its first.
    `key` (32 bytes) is the volume's segment key, `nonce` 24 random bytes. The object's name is
    `segment_name(writer, SegmentStart.of(first header))`. Raises `LimitError` when they are too many or too
    large (MAX_SEGMENT, MAX_SEGMENT_UPDATES, MAX_WRITES), ValueError when they are none or not
    consecutive, `DecodeError` when one is no update at all.
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
    payload = Writer()
    if previous:
        previous.write_to(payload)
    else:
        payload.varint(0)
    payload.varint(size).raw(_compress(out.getvalue()))
    header = Writer().format(_MAGIC, _VERSION).raw(first.writer)
    header.u64(first.clock).raw(first.hash[:_PREFIX_SIZE]).u64(last.clock)
    return seal(header.getvalue(), first.volume, payload.getvalue(), key, nonce)


def decode_segment(data: Buffer, name: str, volume: bytes, key: bytes, limit: int = MAX_SEGMENT) -> Segment:
    """Open the object that a cloud returned for `name`.

    `limit` is the most bytes of records to accept; no more is ever decompressed.
    Raises `DecodeError`, among others when the object is that of another name.
    """
    if len(data) > limit + _MAX_EXPANSION:
        raise DecodeError(f"a segment of {len(data)} bytes, at most {limit} are allowed")
    writer, start = parse_segment_name(name)
    reader = Reader(data)
    reader.format(_MAGIC, _VERSION)
    found = reader.raw(DEVICE_ID_SIZE), SegmentStart(reader.u64(), reader.raw(_PREFIX_SIZE))
    if found != (writer, start):
        raise DecodeError(f"another segment stands under the name {name}")
    last = reader.u64()
    header = bytes(memoryview(data)[: reader.position])
    reader = Reader(open_sealed(reader, header, volume, key))
    before = reader.varint(MAX_CLOCK)
    previous = SegmentStart.read_from(reader, before) if before else None
    size = reader.varint(limit)
    updates = _split(_decompress(reader.raw(reader.remaining), size))
    headers = [update.header for update in updates]
    try:
        _check_chain(headers, previous)
    except ValueError as error:
        raise DecodeError(f"segment {name}: {error}") from error
    stated = (volume, writer, start, last)
    if (headers[0].volume, headers[0].writer, SegmentStart.of(headers[0]), headers[-1].clock) != stated:
        raise DecodeError(f"segment {name} does not hold the updates that its header states")
    return Segment(writer, previous, updates)
