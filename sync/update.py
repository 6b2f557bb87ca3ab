"""Signed updates: one atomic transaction of key/value writes by one writer (Depot 4.1, 4.2).

A signed update as it travels and as it is stored:

    header     magic "HFUP", version u16 = 1
               volume      16   the volume it belongs to
               writer      16   device id of the author
               clock       varint, 1 .. MAX_CLOCK: logical time; with `writer`, the accept stamp
               prev clock  varint: clock of the writer's previous update, 0 for its first
               prev        32   hash of that update, zeros for the first
               deps        varint, how many, at most MAX_WRITERS; then for each, ascending, device (16)
                           + clock (varint, 1 .. MAX_CLOCK) + the first 16 bytes of the hash of an
                           update: what the writer has accepted since its previous update (Depot's
                           dVV; `prev` is the entry of the writer itself). Only the newest of each
                           branch is named. The hash makes the name mean the same to those who know
                           of a fork and those who do not
               history     32   history hash over the full dependency vector, see below
               time        u64, ns since the epoch by the writer's clock; for people, decides nothing
               writes      varint, how many, at most MAX_WRITES
               body size   varint
               body hash   32
    signature  64   Ed25519 by the writer over exactly the header bytes
    body       the writes, see below

The hash of an update is the hash of its header. As the header holds the hash of the body, both the
hash and the signature cover every byte that travels, while a header and its signature alone (under
300 bytes with two deps) still prove what the writer did: that is all a proof of a fork needs.

The body of an update: its key/value writes, laid out in columns.

Columns rather than records, because one `struct` call and slices replace a loop of field reads in
Python, and because like beside like compresses better. The count of writes stands in the update's header.

    key width    u8: 1 or 2
    value width  u8: 1, 2 or 4
    key sizes    count x key width, big-endian, 1 .. MAX_KEY
    value sizes  count x value width, big-endian: 0 = tombstone, else the size + 1
    keys         concatenated, no key twice
    values       concatenated, to the end of the body

Each width is the smallest that holds the largest number of its column (1 for an empty column).

The history hash (Depot 4.2): a fingerprint of everything an update depends on.

It covers the newest update of each branch in the update's full dependency vector. Each of those
carries a history hash of its own, so by recursion the whole past is covered: two devices that
compute the same hash for a vector have accepted byte-equal updates up to it.

Hashed bytes, ascending:  device (16) + clock (u64) + update hash (32), repeated

Branch ids are not in it, and the update in a fork point stands in it only if nothing that the vector covers
follows it on a branch. So a device that does not know of a fork computes the same hash as one that does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from sync.codec import HASH_SIZE, ZERO_HASH, Buffer, Reader, Writer, digest
from sync.errors import DecodeError, LimitError
from sync.identity import DEVICE_ID_SIZE, SIGNATURE_SIZE, DeviceKey, verify
from sync.vector import MAX_CLOCK, MAX_WRITERS

__all__ = [
    "MAX_KEY",
    "MAX_UPDATE",
    "MAX_VALUE",
    "MAX_WRITES",
    "PREFIX_SIZE",
    "VOLUME_ID_SIZE",
    "SignedHeader",
    "SignedUpdate",
    "UpdateStamp",
    "Update",
    "Write",
    "decode_signed",
    "decode_signed_header",
    "decode_writes",
    "encode_signed",
    "encode_writes",
    "history_hash",
]

VOLUME_ID_SIZE = 16
PREFIX_SIZE = 16
"""How much of an update's hash names it beside device and clock."""
MAX_UPDATE = 64 << 20
"""Most bytes of a signed update, all included."""

_MAGIC = b"HFUP"
_VERSION = 1
_MAX_TIME = (1 << 63) - 1
_IDENTITIES = struct.Struct(f"{VOLUME_ID_SIZE}s{DEVICE_ID_SIZE}s")
_HISTORY_AND_TIME = struct.Struct(f">{HASH_SIZE}sQ")
_HASH_CONTEXT = "hybrisfs.sync 2026-11 update header"
_BODY_CONTEXT = "hybrisfs.sync 2026-11 update body"


class UpdateStamp(NamedTuple):
    """The name of one update, the same on all devices."""

    device: bytes
    clock: int
    prefix: bytes
    """The first PREFIX_SIZE bytes of its hash."""

    def __str__(self) -> str:
        return f"{self.clock}@{self.device.hex()}"


class Update(Struct, frozen=True):
    """What a writer states; the fields are those of the wire form above."""

    volume: bytes
    writer: bytes
    clock: int
    prev_clock: int
    prev: bytes
    deps: tuple[UpdateStamp, ...]
    history: bytes
    time_ns: int
    writes: Sequence[Write]


class SignedHeader(NamedTuple):
    """The header of a signed update, without its writes. `data` is the header and the signature."""

    data: bytes
    hash: bytes
    volume: bytes
    writer: bytes
    clock: int
    prev_clock: int
    prev: bytes
    deps: tuple[UpdateStamp, ...]
    history: bytes
    time_ns: int
    write_count: int
    body_size: int
    body_hash: bytes

    def verify(self, public: bytes) -> bool:
        """True when the signature is that of the key `public`."""
        return verify(public, self.data[:-SIGNATURE_SIZE], self.data[-SIGNATURE_SIZE:])


class SignedUpdate(NamedTuple):
    """A well-formed update, not yet verified. `data` is its exact bytes; they are never re-encoded."""

    data: bytes
    header: SignedHeader
    writes: tuple[Write, ...]

    @property
    def hash(self) -> bytes:
        """The name of this update in `prev` and in history hashes."""
        return self.header.hash

    @property
    def stamp(self) -> UpdateStamp:
        """The name of this update in `deps`."""
        return UpdateStamp(self.header.writer, self.header.clock, self.header.hash[:PREFIX_SIZE])


def encode_signed(update: Update, key: DeviceKey) -> bytes:
    """Encode and sign `update`. The caller answers for the sizes of ids and hashes.

    Raises `LimitError` when the update is too large, ValueError when `key` is not the writer's or
    a write is malformed (see `encode_writes`).
    """
    if update.writer != key.device_id:
        raise ValueError("an update is signed by its own writer only")
    body = encode_writes(update.writes)
    out = Writer().format(_MAGIC, _VERSION)
    out.raw(update.volume).raw(update.writer)
    out.varint(update.clock).varint(update.prev_clock).raw(update.prev)
    _write_deps(out, update.deps)
    out.raw(update.history).u64(update.time_ns)
    out.varint(len(update.writes)).varint(len(body)).raw(digest(_BODY_CONTEXT, body))
    header = out.getvalue()
    size = len(header) + SIGNATURE_SIZE + len(body)
    if size > MAX_UPDATE:
        raise LimitError(f"an update of {size} bytes, at most {MAX_UPDATE} are allowed")
    return b"".join([header, key.sign(header), body])


def _write_deps(out: Writer, deps: Sequence[UpdateStamp]) -> None:
    if len(deps) > MAX_WRITERS:
        raise LimitError(f"an update names {len(deps)} others, at most {MAX_WRITERS} are allowed")
    out.varint(len(deps))
    for device, clock, prefix in deps:
        out.raw(device).varint(clock).raw(prefix)


def _read_deps(reader: Reader) -> tuple[UpdateStamp, ...]:
    count = reader.varint(MAX_WRITERS)
    if not count:
        return ()
    deps: list[UpdateStamp] = []
    for _ in range(count):
        stamp = UpdateStamp(reader.raw(DEVICE_ID_SIZE), reader.varint(MAX_CLOCK), reader.raw(PREFIX_SIZE))
        if stamp.clock == 0:
            raise DecodeError("deps name an update with clock 0")
        if deps and stamp <= deps[-1]:
            raise DecodeError("deps are not in ascending order")
        deps.append(stamp)
    return tuple(deps)


def _read_header(reader: Reader, data: bytes) -> SignedHeader:
    reader.format(_MAGIC, _VERSION)
    volume, writer = reader.unpack(_IDENTITIES)
    clock = reader.varint(MAX_CLOCK)
    prev_clock = reader.varint(MAX_CLOCK)
    prev = reader.raw(HASH_SIZE)
    deps = _read_deps(reader)
    history, time_ns = reader.unpack(_HISTORY_AND_TIME)
    write_count = reader.varint(MAX_WRITES)
    body_size = reader.varint(MAX_UPDATE)
    body_hash = reader.raw(HASH_SIZE)
    header = data[: reader.position]
    reader.raw(SIGNATURE_SIZE)
    if clock == 0:
        raise DecodeError("an update with clock 0")
    if (prev == ZERO_HASH) != (prev_clock == 0):
        raise DecodeError("prev and prev clock disagree on whether this is the writer's first update")
    if time_ns > _MAX_TIME:
        raise DecodeError(f"time {time_ns} ns does not fit 63 bits")
    return SignedHeader(
        data[: reader.position],
        digest(_HASH_CONTEXT, header),
        volume,
        writer,
        clock,
        prev_clock,
        prev,
        deps,
        history,
        time_ns,
        write_count,
        body_size,
        body_hash,
    )


def decode_signed(data: Buffer) -> SignedUpdate:
    """Decode a signed update and check that it is well formed and that its body is the one signed.

    The signature itself is *not* checked: that takes the writer's key, see `LogState.accept`.
    Raises `DecodeError`.
    """
    if len(data) > MAX_UPDATE:
        raise DecodeError(f"an update of {len(data)} bytes, at most {MAX_UPDATE} are allowed")
    data = bytes(data)
    reader = Reader(data)
    header = _read_header(reader, data)
    if reader.remaining != header.body_size:
        raise DecodeError(f"body of {header.body_size} bytes announced, {reader.remaining} are there")
    body = reader.raw(header.body_size)
    if digest(_BODY_CONTEXT, body) != header.body_hash:
        raise DecodeError("the body is not the one that the header names")
    return SignedUpdate(data, header, decode_writes(body, header.write_count))


def decode_signed_header(data: Buffer) -> SignedHeader:
    """Decode the header and signature that begin `data`, whatever follows. Raises `DecodeError`.

    The signature is not checked.
    """
    data = bytes(data)
    return _read_header(Reader(data), data)


# -- the body of an update: its key/value writes, laid out in columns -----------------------------------


MAX_WRITES = 1_000_000
MAX_KEY = 600
MAX_VALUE = 16 << 20

Write: TypeAlias = tuple[bytes, bytes | None]
"""A key of 1 to MAX_KEY bytes and its new value of up to MAX_VALUE bytes; None is a tombstone."""

_CODES = {1: "B", 2: "H", 4: "I"}
_FEW = 16  # writes, as most updates of a program that works with files have
_SMALL = b"\1\1"  # the widths of columns when all keys and values are small


def _width(largest: int) -> int:
    return 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4


def _column(numbers: Sequence[int], width: int) -> bytes:
    return struct.pack(f">{len(numbers)}{_CODES[width]}", *numbers)


def encode_writes(writes: Sequence[Write]) -> bytes:
    """Encode a transaction's writes, in the order given.

    Raises `LimitError` when they are too many or too large, ValueError for an empty key or a key
    that is written twice (which of the two would win is for the caller to know).
    """
    if len(writes) > MAX_WRITES:
        raise LimitError(f"{len(writes)} writes in one update, at most {MAX_WRITES} are allowed")
    keys = [key for key, _ in writes]
    if len(set(keys)) != len(keys):
        raise ValueError("a key is written twice in one update")
    key_sizes = [len(key) for key in keys]
    values = [value for _, value in writes]
    value_sizes = [0 if value is None else len(value) + 1 for value in values]
    largest_key, largest_value = max(key_sizes, default=0), max(value_sizes, default=0)
    if min(key_sizes, default=1) == 0:
        raise ValueError("a key is empty")
    if largest_key > MAX_KEY:
        raise LimitError(f"a key of {largest_key} bytes, at most {MAX_KEY} are allowed")
    if largest_value > MAX_VALUE + 1:
        raise LimitError(f"a value of {largest_value - 1} bytes, at most {MAX_VALUE} are allowed")
    key_width, value_width = _width(largest_key), _width(largest_value)
    columns = [
        bytes((key_width, value_width)),
        _column(key_sizes, key_width),
        _column(value_sizes, value_width),
    ]
    return b"".join([*columns, *keys, *filter(None, values)])


def _read_column(reader: Reader, count: int, width: int) -> tuple[Sequence[int], int]:
    """The numbers, and the largest of them."""
    column = reader.raw(count * width)
    numbers = column if width == 1 else struct.unpack(f">{count}{_CODES[width]}", column)
    largest = max(numbers, default=0)
    if width != _width(largest):
        raise DecodeError("a column of sizes is wider than it need be")
    return numbers, largest


@lru_cache(maxsize=512)
def _layout(columns: bytes) -> struct.Struct | None:
    """How a body of few small writes goes on that begins with these widths and columns, which are skipped;
    None when some key is empty or some value a tombstone."""
    if 0 in columns:
        return None
    half = len(columns) // 2 + 1
    sizes = [*columns[len(_SMALL) : half], *(code - 1 for code in columns[half:])]
    return struct.Struct(f"{len(columns)}x" + "".join([f"{size}s" for size in sizes]))


def decode_writes(body: bytes, count: int) -> tuple[Write, ...]:
    """Decode what `encode_writes` made of `count` writes. Raises `DecodeError`."""
    writes = _decode_few(body, count) if 0 < count <= _FEW and body.startswith(_SMALL) else None
    if writes is None:
        writes = _decode_any(body, count)
    if len(dict(writes)) != count:
        raise DecodeError("a key is written twice in one update")
    return writes


def _decode_few(body: bytes, count: int) -> tuple[Write, ...] | None:
    """The writes, as `_decode_any` finds them; None when it has to look."""
    columns = body[: len(_SMALL) + 2 * count]
    layout = _layout(columns) if len(body) > len(columns) else None
    if layout is None or layout.size != len(body):
        return None
    parts = layout.unpack(body)
    return tuple(zip(parts[:count], parts[count:], strict=True))


def _decode_any(body: bytes, count: int) -> tuple[Write, ...]:
    reader = Reader(body)
    key_width, value_width = reader.raw(2)
    if key_width not in (1, 2) or value_width not in (1, 2, 4):
        raise DecodeError(f"unknown column widths {key_width} and {value_width}")
    key_sizes, largest_key = _read_column(reader, count, key_width)
    value_codes, largest_code = _read_column(reader, count, value_width)
    if largest_key > MAX_KEY or 0 in key_sizes:
        raise DecodeError(f"a key is empty or longer than {MAX_KEY} bytes")
    if largest_code > MAX_VALUE + 1:
        raise DecodeError(f"a value is longer than {MAX_VALUE} bytes")
    key_at = reader.position
    value_at = key_at + sum(key_sizes)
    end = value_at + sum(value_codes) - count + value_codes.count(0)
    if end != len(body):
        raise DecodeError(f"keys and values take {end - key_at} bytes, the body has {reader.remaining} left")
    writes: list[Write] = []
    for size, code in zip(key_sizes, value_codes, strict=True):
        key_end = key_at + size
        if code:
            value_end = value_at + code - 1
            writes.append((body[key_at:key_end], body[value_at:value_end]))
            value_at = value_end
        else:
            writes.append((body[key_at:key_end], None))
        key_at = key_end
    return tuple(writes)


# -- the history hash (Depot 4.2): a fingerprint of everything an update depends on ---------------------


_CONTEXT = "hybrisfs.sync 2026-11 history"
_ENTRY = struct.Struct(">16sQ32s")


def history_hash(newest: Iterable[tuple[bytes, int, bytes]]) -> bytes:
    """Hash the history that ends in these updates, each given by device, clock and hash, in any order."""
    pack = _ENTRY.pack
    return digest(_CONTEXT, b"".join(sorted([pack(*entry) for entry in newest])))
