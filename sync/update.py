"""Signed updates: one atomic transaction of key/value writes by one writer (Depot 4.1, 4.2).

A signed update as it travels and as it is stored:

    header     magic "HFUP", version u16 = 1
               volume      16   the volume it belongs to
               writer      16   device id of the author
               clock       varint, 1 .. MAX_CLOCK: logical time; with `writer`, the accept stamp
               prev clock  varint: clock of the writer's previous update, 0 for its first
               prev        32   hash of that update, zeros for the first
               deps        version vector form: entries of *other* writers that the writer has
                           accepted since its previous update (Depot's dVV; the entry of the
                           writer itself is prev clock)
               history     32   history hash over the full dependency vector, see `sync.history`
               time        u64, ns since the epoch by the writer's clock; for people, decides nothing
               writes      varint, how many, at most MAX_WRITES
               body size   varint
               body hash   32
    signature  64   Ed25519 by the writer over exactly the header bytes
    body       the writes, see `sync.writes`

The hash of an update is the hash of its header. As the header holds the hash of the body, both the
hash and the signature cover every byte that travels, while a header and its signature alone (under
300 bytes with four deps) still prove what the writer did: that is all a proof of a fork needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sync.codec import Buffer, Reader, Writer
from sync.errors import DecodeError, LimitError
from sync.hashing import HASH_SIZE, ZERO_HASH, digest
from sync.identity import DEVICE_ID_SIZE, SIGNATURE_SIZE, DeviceKey, verify
from sync.vector import MAX_CLOCK, read_entries, write_entries
from sync.writes import MAX_WRITES, Write, decode_writes, encode_writes

__all__ = [
    "MAX_UPDATE",
    "VOLUME_ID_SIZE",
    "SignedHeader",
    "SignedUpdate",
    "Update",
    "decode_signed",
    "decode_signed_header",
    "encode_signed",
]

VOLUME_ID_SIZE = 16
MAX_UPDATE = 64 << 20
"""Most bytes of a signed update, all included."""

_MAGIC = b"HFUP"
_VERSION = 1
_MAX_TIME = (1 << 63) - 1
_HASH_CONTEXT = "hybrisfs.sync 2026-11 update header"
_BODY_CONTEXT = "hybrisfs.sync 2026-11 update body"


@dataclass(frozen=True, slots=True)
class Update:
    """What a writer states; the fields are those of the wire form above."""

    volume: bytes
    writer: bytes
    clock: int
    prev_clock: int
    prev: bytes
    deps: tuple[tuple[bytes, int], ...]
    history: bytes
    time_ns: int
    writes: Sequence[Write]


@dataclass(frozen=True, slots=True)
class SignedHeader:
    """The header of a signed update, without its writes. `data` is the header and the signature."""

    data: bytes
    hash: bytes
    volume: bytes
    writer: bytes
    clock: int
    prev_clock: int
    prev: bytes
    deps: tuple[tuple[bytes, int], ...]
    history: bytes
    time_ns: int
    write_count: int
    body_size: int
    body_hash: bytes

    def verify(self, public: bytes) -> bool:
        """True when the signature is that of the key `public`."""
        return verify(public, self.data[:-SIGNATURE_SIZE], self.data[-SIGNATURE_SIZE:])


@dataclass(frozen=True, slots=True)
class SignedUpdate:
    """A well-formed update, not yet verified. `data` is its exact bytes; they are never re-encoded."""

    data: bytes
    header: SignedHeader
    writes: tuple[Write, ...]

    @property
    def hash(self) -> bytes:
        """The name of this update in `prev` and in history hashes."""
        return self.header.hash


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
    write_entries(out, update.deps, len(update.deps))
    out.raw(update.history).u64(update.time_ns)
    out.varint(len(update.writes)).varint(len(body)).raw(digest(_BODY_CONTEXT, body))
    header = out.getvalue()
    size = len(header) + SIGNATURE_SIZE + len(body)
    if size > MAX_UPDATE:
        raise LimitError(f"an update of {size} bytes, at most {MAX_UPDATE} are allowed")
    return b"".join([header, key.sign(header), body])


def _read_header(reader: Reader, data: memoryview) -> SignedHeader:
    reader.format(_MAGIC, _VERSION)
    volume = reader.raw(VOLUME_ID_SIZE)
    writer = reader.raw(DEVICE_ID_SIZE)
    clock = reader.varint(MAX_CLOCK)
    prev_clock = reader.varint(MAX_CLOCK)
    prev = reader.raw(HASH_SIZE)
    deps = read_entries(reader)
    history = reader.raw(HASH_SIZE)
    time_ns = reader.u64()
    write_count = reader.varint(MAX_WRITES)
    body_size = reader.varint(MAX_UPDATE)
    body_hash = reader.raw(HASH_SIZE)
    header = data[: reader.position]
    reader.raw(SIGNATURE_SIZE)
    if clock == 0:
        raise DecodeError("an update with clock 0")
    if (prev == ZERO_HASH) != (prev_clock == 0):
        raise DecodeError("prev and prev clock disagree on whether this is the writer's first update")
    if any(dependency == writer for dependency, _ in deps):
        raise DecodeError("deps name the writer itself, whose entry is prev clock")
    if time_ns > _MAX_TIME:
        raise DecodeError(f"time {time_ns} ns does not fit 63 bits")
    return SignedHeader(
        data=bytes(data[: reader.position]),
        hash=digest(_HASH_CONTEXT, header),
        volume=volume,
        writer=writer,
        clock=clock,
        prev_clock=prev_clock,
        prev=prev,
        deps=deps,
        history=history,
        time_ns=time_ns,
        write_count=write_count,
        body_size=body_size,
        body_hash=body_hash,
    )


def decode_signed(data: Buffer) -> SignedUpdate:
    """Decode a signed update and check that it is well formed and that its body is the one signed.

    The signature itself is *not* checked: that takes the writer's key, see `LogState.accept`.
    Raises `DecodeError`.
    """
    if len(data) > MAX_UPDATE:
        raise DecodeError(f"an update of {len(data)} bytes, at most {MAX_UPDATE} are allowed")
    view = memoryview(data)
    reader = Reader(view)
    header = _read_header(reader, view)
    if reader.remaining != header.body_size:
        raise DecodeError(f"body of {header.body_size} bytes announced, {reader.remaining} are there")
    body = reader.raw(header.body_size)
    if digest(_BODY_CONTEXT, body) != header.body_hash:
        raise DecodeError("the body is not the one that the header names")
    return SignedUpdate(bytes(data), header, decode_writes(body, header.write_count))


def decode_signed_header(data: Buffer) -> SignedHeader:
    """Decode the header and signature that begin `data`, whatever follows. Raises `DecodeError`.

    The signature is not checked.
    """
    view = memoryview(data)
    return _read_header(Reader(view), view)
