"""Segments: consecutive updates of one writer, compressed and sealed, as the clouds hold them.

A segment is the object `log/<writer, hex>/<clock of its first update, 16 hex digits>`. It is never
changed once a head names it; what an upload that failed left under the name may end earlier.

What a cloud sees: which device wrote, the clocks of the first and last transaction, the size. It
sees no volume, no key, no value and no other device.

    header   magic "HFSG", version u16 = 1
             writer  16
             first   u64, clock of the first update
             last    u64, clock of the last update
    sealed   (`sync.seal`) previous  varint: `first` of the writer's segment before this one, 0 = none
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
_NAME = re.compile(r"log/([0-9a-f]{32})/([0-9a-f]{16})")


@dataclass(frozen=True, slots=True)
class Segment:
    """A decoded segment: its updates are well formed and chained, their signatures not yet verified."""

    writer: bytes
    previous: int
    updates: tuple[SignedUpdate, ...]


def segment_name(writer: bytes, first: int) -> str:
    """The object name of the segment of `writer` that begins with clock `first`."""
    return f"log/{writer.hex()}/{first:016x}"


def parse_segment_name(name: str) -> tuple[bytes, int]:
    """The writer and first clock in an object name. Raises `DecodeError` for any other name."""
    match = _NAME.fullmatch(name)
    if not match or not 0 < int(match[2], 16) <= MAX_CLOCK:
        raise DecodeError(f"not the name of a log segment: {name!r}")
    return bytes.fromhex(match[1]), int(match[2], 16)


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


def _check_chain(headers: Sequence[SignedHeader], previous: int) -> None:
    """Require consecutive updates that segment `previous` may come before. Raises ValueError."""
    if not headers:
        raise ValueError("a segment holds at least one update")
    first = headers[0]
    if (previous == 0) != (first.prev_clock == 0) or previous > first.prev_clock:
        raise ValueError(f"segment {previous} cannot come before update {first.clock}")
    for before, after in pairwise(headers):
        if (after.volume, after.writer, after.prev) != (before.volume, before.writer, before.hash):
            raise ValueError(f"update {after.clock} of the segment does not follow update {before.clock}")


def encode_segment(updates: Sequence[bytes], previous: int, key: bytes, nonce: bytes) -> bytes:
    """Compress and seal consecutive signed updates of one writer.

    `previous` is the first clock of the writer's segment before this one, 0 when this is its first.
    `key` (32 bytes) is the volume's segment key, `nonce` 24 random bytes. The object's name is
    `segment_name(writer, clock of updates[0])`. Raises `LimitError` when they are too many or too
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
    payload = Writer().varint(previous).varint(len(out)).raw(_compress(out.getvalue())).getvalue()
    header = Writer().format(_MAGIC, _VERSION).raw(first.writer).u64(first.clock).u64(last.clock).getvalue()
    return seal(header, first.volume, payload, key, nonce)


def decode_segment(data: Buffer, name: str, volume: bytes, key: bytes, limit: int = MAX_SEGMENT) -> Segment:
    """Open the object that a cloud returned for `name`.

    `limit` is the most bytes of records to accept; no more is ever decompressed.
    Raises `DecodeError`, among others when the object is that of another name.
    """
    if len(data) > limit + _MAX_EXPANSION:
        raise DecodeError(f"a segment of {len(data)} bytes, at most {limit} are allowed")
    writer, first = parse_segment_name(name)
    reader = Reader(data)
    reader.format(_MAGIC, _VERSION)
    if (reader.raw(DEVICE_ID_SIZE), reader.u64()) != (writer, first):
        raise DecodeError(f"another segment stands under the name {name}")
    last = reader.u64()
    header = bytes(memoryview(data)[: reader.position])
    reader = Reader(open_sealed(reader, header, volume, key))
    previous = reader.varint(MAX_CLOCK)
    size = reader.varint(limit)
    updates = _split(_decompress(reader.raw(reader.remaining), size))
    headers = [update.header for update in updates]
    try:
        _check_chain(headers, previous)
    except ValueError as error:
        raise DecodeError(f"segment {name}: {error}") from error
    stated = (volume, writer, first, last)
    if (headers[0].volume, headers[0].writer, headers[0].clock, headers[-1].clock) != stated:
        raise DecodeError(f"segment {name} does not hold the updates that its header states")
    return Segment(writer, previous, updates)
