"""Reading snapshots and hints, slice by slice: what is not exactly as it must be is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hybrisfs.checkpoint.snapshot import HEADER, LOG_INDEX, PACKS, REGISTERS, Header, decode_header
from hybrisfs.registers.tree import PackedChunk
from sync import MAX_KEY, MAX_VALUE, DecodeError, Reader
from sync.log_index import IndexEntry, LogIndexReader

__all__ = ["HintedPack", "Latest", "read_hints", "read_snapshot"]

_MAX_PACK_CHUNKS = 1 << 16
_MAX_OFFSET = 1 << 40
_MAX_LENGTH = 1 << 24


class Latest(NamedTuple):
    """One of the latest values of a register; *update* is the number of the one that wrote it."""

    key: bytes
    update: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class HintedPack:
    """Where a pack is and what is in it: *primary* chunks are read from it, *spare* ones from another."""

    id: bytes
    k: int
    n: int
    placement: bytes
    update: int
    primary: tuple[PackedChunk, ...]
    spare: tuple[PackedChunk, ...]


def read_snapshot(pieces: Iterable[bytes]) -> Iterator[Header | IndexEntry | Latest]:
    """What is in the slices of a snapshot, in order: the header first. Raises DecodeError, also at the end,
    when something is missing."""
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
