"""Snapshots: log and registers of a volume as slices of bytes, equal on all devices with equal vectors.

A snapshot is cut into slices (`sync.checkpoint`), each of which holds whole records and is closed as soon as
it has SLICE_BYTES. Its hash is the BLAKE3 hash, derived with the context below, of all slices in order. The
kind is the first byte of a slice; kinds come in ascending order.

    0 header      once, first: magic "HFCP", version u16 = 1; volume 16; vector (version vector form);
                  updates varint, how many
    1 log index   entries (`sync.log_index`), to the end of the slice
    2 registers   values, by key and then by the number of their update, to the end of the slice:
                  key     blob, 1 .. MAX_KEY bytes
                  update  varint: number in the index, counted from 0, of the update that wrote it
                  value   varint: 0 = tombstone, else the length + 1; then the bytes

*Hints* tell where chunks are in packs, by the pack's id, in slices of their own:

    3 packs       pack    32, id
                  k, n    u8 each; 0 and 0: it has ended, and no chunks follow
                  clouds  n bytes, its placement
                  update  varint: number of the update that said so
                  chunks  varint, at most MAX_PACK_CHUNKS; then for each: id 32, offset varint,
                          sealed varint, length varint, u8: 1 when it is read from this pack, 0 when it is
                          read from another one that holds it, too

What is here follows from the accepted updates alone, whatever their order of arrival, and so do the bytes;
hints are what one device knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from blake3 import blake3
from msgspec import Struct

from hybrisfs.registers.tree import PackedChunk
from hybrisfs.state.checkpoints import packs_to_hint
from hybrisfs.state.database import Snapshot
from hybrisfs.state.packs import places_in_pack
from hybrisfs.state.registers import branches_by_number, rows_of_kind
from hybrisfs.state.stored_log import branches, count_by_branch, updates_by_clock
from sync import MAX_KEY, MAX_VALUE, DecodeError, Reader, VersionVector, Writer
from sync.log_index import MAX_INDEXED, IndexEntry, LogIndexReader, LogIndexWriter
from sync.update import VOLUME_ID_SIZE

__all__ = [
    "HEADER",
    "LOG_INDEX",
    "PACKS",
    "REGISTERS",
    "SLICE_BYTES",
    "Header",
    "HintedPack",
    "Latest",
    "SnapshotHash",
    "Snapshotter",
    "decode_header",
    "read_hints",
    "read_snapshot",
]

SLICE_BYTES: Final = 1 << 20
HEADER, LOG_INDEX, REGISTERS, PACKS = range(4)

_MAGIC: Final = b"HFCP"
_VERSION: Final = 1
_CONTEXT: Final = "hybrisfs.checkpoint 2026-11 snapshot"


class SnapshotHash:
    """The hash of a snapshot, slice by slice."""

    def __init__(self) -> None:
        self._hasher = blake3(derive_key_context=_CONTEXT)

    def update(self, piece: bytes) -> None:
        self._hasher.update(piece)

    def digest(self) -> bytes:
        return self._hasher.digest()


class Header:
    """What the first slice of a snapshot tells."""

    def __init__(self, volume: bytes, vector: VersionVector, updates: int) -> None:
        self.volume = volume
        self.vector = vector
        self.updates = updates

    def encode(self) -> bytes:
        out = Writer().u8(HEADER).format(_MAGIC, _VERSION).raw(self.volume)
        self.vector.write_to(out)
        return out.varint(self.updates).getvalue()


def decode_header(piece: bytes) -> Header:
    """Raises DecodeError."""
    reader = Reader(piece)
    if reader.u8() != HEADER:
        raise DecodeError("a snapshot that does not begin with its header")
    reader.format(_MAGIC, _VERSION)
    header = Header(reader.raw(VOLUME_ID_SIZE), VersionVector.read_from(reader), reader.varint(MAX_INDEXED))
    reader.end()
    return header


class Snapshotter:
    """Writes one snapshot of what *db*, a read-only view of a volume's database, holds. Its memory grows by
    some hundred bytes with each update, but not with the registers."""

    def __init__(self, db: Snapshot, volume: bytes, slice_bytes: int = SLICE_BYTES) -> None:
        self._db = db
        self._slice_bytes = slice_bytes
        self._volume = volume
        self._numbers: dict[tuple[bytes, int], int] = {}  # (branch, clock) -> number in the index

    def slices(self) -> Iterator[bytes]:
        """The slices of the snapshot, in order."""
        rows = count_by_branch(self._db)
        vector = VersionVector({branch: clock for branch, clock, _ in rows})
        yield Header(self._volume, vector, sum(row[2] for row in rows)).encode()
        yield from _cut(LOG_INDEX, self._entries(), self._slice_bytes)
        yield from _cut(REGISTERS, self._values(), self._slice_bytes)

    def hints(self) -> Iterator[bytes]:
        """The slices of hints; call it after all of `slices` have been read."""
        yield from _cut(PACKS, self._packs(), self._slice_bytes)

    def _entries(self) -> Iterator[bytes]:
        parents = {one.id: (one.parent, one.above) for one in branches(self._db)}
        index = LogIndexWriter()
        tips: dict[bytes, tuple[int, VersionVector]] = {}  # of each branch, with all that it implies
        for number, (branch, clock, device, identity, time_ns, encoded) in enumerate(
            updates_by_clock(self._db)
        ):
            parent, above = parents[branch]
            prev, known = tips.get(branch) or (
                tips[parent] if parent is not None and above else (None, VersionVector())
            )
            vector = VersionVector.decode(encoded)
            causes = [self._numbers[one] for one in vector.items() if one[1] > known[one[0]]]
            self._numbers[branch, clock] = number
            tips[branch] = number, vector.with_entry(branch, clock)
            entry = IndexEntry(device, clock, identity, prev, causes, time_ns)
            yield index.encode(entry)

    def _values(self) -> Iterator[bytes]:
        writers = branches_by_number(self._db)
        for key, group in groupby(rows_of_kind(self._db, None), key=lambda row: row[0]):
            values = sorted((self._numbers[writers[row[2]], row[1]], row[3]) for row in group)
            for number, value in values:
                yield _value(key, number, value)

    def _packs(self) -> Iterator[bytes]:
        for number, identity, k, n, placement, branch, clock in packs_to_hint(self._db):
            update = self._numbers.get((branch, clock), 0)
            chunks = places_in_pack(self._db, number) if n else []
            yield _pack((identity, k, n, placement, update), chunks)


def _value(key: bytes, number: int, value: bytes | None) -> bytes:
    out = Writer().blob(key).varint(number)
    if value is None:
        return out.varint(0).getvalue()
    return out.varint(len(value) + 1).raw(value).getvalue()


def _pack(row: tuple[bytes, int, int, bytes, int], chunks: list[tuple[bytes, int, int, int, int]]) -> bytes:
    identity, k, n, placement, update = row
    out = Writer().raw(identity).u8(k).u8(n).raw(placement).varint(update).varint(len(chunks))
    for chunk, offset, sealed, length, primary in chunks:
        out.raw(chunk).varint(offset).varint(sealed).varint(length).u8(primary)
    return out.getvalue()


def _cut(kind: int, records: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The records as slices, closed when they have *size* bytes; none when there are none."""
    piece = bytearray([kind])
    for record in records:
        piece += record
        if len(piece) >= size:
            yield bytes(piece)
            piece = bytearray([kind])
    if len(piece) > 1:
        yield bytes(piece)


# -- reading snapshots and hints, slice by slice: what is not exactly as it must be is refused ----------


_MAX_PACK_CHUNKS = 1 << 16
_MAX_OFFSET = 1 << 40
_MAX_LENGTH = 1 << 24


class Latest(NamedTuple):
    """One of the latest values of a register; *update* is the number of the one that wrote it."""

    key: bytes
    update: int
    value: bytes | None


class HintedPack(Struct, frozen=True):
    """Where a pack is and what is in it: *primary* chunks are read from it, *spare* ones from another."""

    id: bytes
    k: int
    n: int
    placement: bytes
    update: int
    primary: tuple[PackedChunk, ...]
    spare: tuple[PackedChunk, ...]


def read_snapshot(pieces: Iterable[bytes]) -> Iterator[Header | IndexEntry | Latest]:
    """The contents of the slices of a snapshot, in order: the header first. Raises DecodeError, also at the
    end when something is missing."""
    index = LogIndexReader()
    header: Header | None = None
    kind = HEADER
    entries = 0
    last_key, last_update = b"", -1
    for piece in pieces:
        if header is None:
            header = decode_header(piece)
            yield header
            continue
        reader = Reader(piece)
        before, kind = kind, reader.u8()
        if not before <= kind or kind not in (LOG_INDEX, REGISTERS) or not reader.remaining:
            raise DecodeError("slices of a snapshot out of order")
        while reader.remaining:
            if kind == LOG_INDEX:
                entries += 1
                yield index.read(reader)
                continue
            key, update, _ = latest = _read_value(reader, header.updates)
            if key < last_key or (key == last_key and update <= last_update):
                raise DecodeError("registers of a snapshot out of order")
            last_key, last_update = key, update
            yield latest
    if header is None or entries != header.updates:
        raise DecodeError("updates are missing in a snapshot")


def _read_value(reader: Reader, updates: int) -> Latest:
    key, update = reader.blob(MAX_KEY), reader.varint(updates)
    if not key or update >= updates:
        raise DecodeError("a register without a name, or of an update that is not there")
    length = reader.varint(MAX_VALUE + 1)
    return Latest(key, update, reader.raw(length - 1) if length else None)


def read_hints(pieces: Iterable[bytes], updates: int) -> Iterator[HintedPack]:
    """What slices of hints tell, for a snapshot of so many *updates*. Raises DecodeError."""
    for piece in pieces:
        reader = Reader(piece)
        if reader.u8() != PACKS:
            raise DecodeError("hints of an unknown kind")
        while reader.remaining:
            yield _read_pack(reader, updates)


def _read_pack(reader: Reader, updates: int) -> HintedPack:
    identity, k, n = reader.raw(32), reader.u8(), reader.u8()
    if not (1 <= k <= n <= 32 or k == n == 0):
        raise DecodeError(f"impossible code {k} of {n}")
    placement, update = reader.raw(n), reader.varint(updates)
    chunks: tuple[list[PackedChunk], list[PackedChunk]] = ([], [])
    for _ in range(reader.varint(_MAX_PACK_CHUNKS if n else 0)):
        chunk = PackedChunk(
            reader.raw(32),
            reader.varint(_MAX_OFFSET),
            reader.varint(_MAX_LENGTH),
            reader.varint(_MAX_LENGTH),
        )
        primary = reader.u8()
        if primary > 1:
            raise DecodeError("a chunk is read from a pack or not")
        chunks[primary].append(chunk)
    if update >= updates:
        raise DecodeError("a pack of an update that is not there")
    return HintedPack(identity, k, n, placement, update, tuple(chunks[1]), tuple(chunks[0]))
