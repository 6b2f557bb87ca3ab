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
               history     32   history hash over the full dependency vector, see `sync.history`
               time        u64, ns since the epoch by the writer's clock; for people, decides nothing
               writes      varint, how many, at most MAX_WRITES
               body size   varint
               body hash   32
    signature  64   Ed25519 by the writer over exactly the header bytes
    body       the writes, see `sync.writes`

The hash of an update is the hash of its header. As the header holds the hash of the body, both the
hash and the signature cover every byte that travels, while a header and its signature alone (under
300 bytes with two deps) still prove what the writer did: that is all a proof of a fork needs.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sync.codec import Buffer, Reader, Writer
from sync.errors import DecodeError, LimitError
from sync.hashing import HASH_SIZE, ZERO_HASH, digest
from sync.identity import DEVICE_ID_SIZE, SIGNATURE_SIZE, DeviceKey, verify
from sync.vector import MAX_CLOCK, MAX_WRITERS
from sync.writes import MAX_WRITES, Write, decode_writes, encode_writes

__all__ = [
    "MAX_UPDATE",
    "PREFIX_SIZE",
    "VOLUME_ID_SIZE",
    "SignedHeader",
    "SignedUpdate",
    "Stamp",
    "Update",
    "decode_signed",
    "decode_signed_header",
    "encode_signed",
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


class Stamp(NamedTuple):
    """The name of one update, the same on all devices."""

    device: bytes
    clock: int
    prefix: bytes
    """The first PREFIX_SIZE bytes of its hash."""

    def __str__(self) -> str:
        return f"{self.clock}@{self.device.hex()}"


@dataclass(frozen=True, slots=True)
class Update:
    """What a writer states; the fields are those of the wire form above."""

    volume: bytes
    writer: bytes
    clock: int
    prev_clock: int
    prev: bytes
    deps: tuple[Stamp, ...]
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
    deps: tuple[Stamp, ...]
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
    def stamp(self) -> Stamp:
        """The name of this update in `deps`."""
        return Stamp(self.header.writer, self.header.clock, self.header.hash[:PREFIX_SIZE])


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


def _write_deps(out: Writer, deps: Sequence[Stamp]) -> None:
    if len(deps) > MAX_WRITERS:
        raise LimitError(f"an update names {len(deps)} others, at most {MAX_WRITERS} are allowed")
    out.varint(len(deps))
    for device, clock, prefix in deps:
        out.raw(device).varint(clock).raw(prefix)


def _read_deps(reader: Reader) -> tuple[Stamp, ...]:
    count = reader.varint(MAX_WRITERS)
    if not count:
        return ()
    deps: list[Stamp] = []
    for _ in range(count):
        stamp = Stamp(reader.raw(DEVICE_ID_SIZE), reader.varint(MAX_CLOCK), reader.raw(PREFIX_SIZE))
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
