"""Collecting sealed chunks into a pack and encoding it into shares (Hybris 3.9 and 5.6).

The whole way to the clouds and back is in docs/internals/placement.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from hybrisfs.dispersal.erasure import fragment_length, split
from hybrisfs.dispersal.seal import CHUNK_ID_SIZE, MAX_CHUNK, MAX_SEALED, SEAL_OVERHEAD
from hybrisfs.dispersal.share import (
    INDEX_OFFSET,
    MAX_CHUNKS,
    MAX_PACK,
    MAX_TABLE,
    TableSealer,
    encode_header,
    hash_fragment,
    sealed_table_size,
)
from hybrisfs.topic import Topic
from sync.codec import Buffer

__all__ = [
    "ERASURE_THRESHOLD",
    "PACK_TARGET",
    "ChunkLocation",
    "EncodedPack",
    "PackBuilder",
    "PackClouds",
    "PackEntry",
    "Redundancy",
    "choose_code",
    "plan_runs",
]

PACK_TARGET = 8 << 20  # bytes of sealed chunks at which a pack is finished
ERASURE_THRESHOLD = 1 << 20  # bytes of sealed chunks below which replication is quicker (Hybris 5.6)


class Redundancy(NamedTuple):
    """f faulty clouds are tolerated, k pieces are needed to read."""

    f: int
    k: int


def choose_code(sealed_size: int, f: int, k: int) -> tuple[int, int]:
    """Return the (k, n) for a pack of `sealed_size` bytes in a volume with faults `f` and pieces `k`."""
    if sealed_size < ERASURE_THRESHOLD:
        return 1, f + 1
    return k, f + k


class PackEntry(NamedTuple):
    """Where one chunk is: `offset` of its fragment, absolute in each share object."""

    chunk_id: bytes
    length: int
    offset: int
    sealed_length: int


class EncodedPack(Struct, frozen=True):
    """A finished pack: the n share objects, in order of their index (one shared buffer when k = 1)."""

    pack_id: bytes
    k: int
    n: int
    shares: Sequence[bytes]
    entries: Sequence[PackEntry]


class PackBuilder:
    """Gathers sealed chunks. Not thread-safe; used for one pack."""

    def __init__(self, tables: TableSealer) -> None:
        self._tables = tables
        self._chunks: dict[bytes, tuple[int, bytes]] = {}
        self.sealed_size = 0

    @property
    def count(self) -> int:
        return len(self._chunks)

    def fits(self, sealed_length: int, n: int) -> bool:
        """Whether a chunk of this size may be added and the pack still be finished for up to n shares."""
        count = len(self._chunks) + 1
        return (
            self.sealed_size + sealed_length <= MAX_PACK
            and count <= MAX_CHUNKS
            and sealed_table_size(count, 2, n) <= MAX_TABLE
        )

    def __contains__(self, chunk_id: bytes) -> bool:
        return chunk_id in self._chunks

    def add(self, chunk_id: bytes, length: int, sealed: bytes) -> None:
        """Append a sealed chunk of `length` plaintext bytes. ValueError when out of bounds or twice."""
        if len(chunk_id) != CHUNK_ID_SIZE or not 0 < length <= MAX_CHUNK:
            raise ValueError(f"not a chunk: id of {len(chunk_id)} bytes, length {length}")
        size = self.sealed_size + len(sealed)
        if not SEAL_OVERHEAD < len(sealed) <= MAX_SEALED or size > MAX_PACK or self.count >= MAX_CHUNKS:
            raise ValueError(f"a sealed chunk of {len(sealed)} bytes does not fit into this pack")
        if chunk_id in self._chunks:
            raise ValueError("chunk is in the pack already")
        self._chunks[chunk_id] = (length, sealed)
        self.sealed_size = size

    def finish(self, k: int, n: int) -> EncodedPack:
        """Encode the pack for a k-of-n code (see `choose_code`). ValueError when it is empty."""
        if not self._chunks:
            raise ValueError("a pack without chunks")
        columns: list[list[Buffer]] = [[] for _ in range(1 if k == 1 else n)]
        rows = []
        for chunk_id, (length, sealed) in self._chunks.items():
            fragments: Sequence[Buffer] = (sealed,) if k == 1 else split(k, n, sealed)
            for column, fragment in zip(columns, fragments, strict=True):
                column.append(fragment)
            hashes = b"".join(map(hash_fragment, fragments))
            rows.append((chunk_id, length, len(sealed), hashes))
        pack_id, header = encode_header(self._tables, k, n, rows)
        before, after = header[:INDEX_OFFSET], header[INDEX_OFFSET + 1 :]
        shares = [b"".join((before, bytes((index,)), after, *column)) for index, column in enumerate(columns)]
        entries = []
        offset = len(header)
        for (chunk_id, length, sealed_length, _), fragment in zip(rows, columns[0], strict=True):
            entries.append(PackEntry(chunk_id, length, offset, sealed_length))
            offset += len(fragment)
        return EncodedPack(pack_id, k, n, shares * n if k == 1 else shares, entries)


# -- grouping chunks of one pack into runs that are worth one ranged request each -----------------------


MAX_RUN = 4 * MAX_SEALED  # bytes fetched by one request
MAX_GAP = 32 << 10  # bytes read in vain rather than to ask again


class ChunkLocation(NamedTuple):
    """Where a chunk is: cloud `placement[i]` holds share i, its fragment begins at `offset` in each share.

    `owed`: this device knows that the clouds have acknowledged the pack; else somebody says so.
    """

    pack_id: bytes
    k: int
    n: int
    placement: tuple[int, ...]
    chunk_id: bytes
    length: int
    offset: int
    sealed_length: int
    owed: bool = True


def plan_runs(locations: Sequence[ChunkLocation]) -> list[list[ChunkLocation]]:
    """Return the chunks by offset, cut into runs. ValueError when they are of several packs."""
    runs: list[list[ChunkLocation]] = []
    start = end = 0
    for location in sorted(set(locations), key=lambda item: item.offset):
        if runs and location[:4] != runs[0][0][:4]:
            raise ValueError("the chunks of a run are of one pack")
        after = location.offset + fragment_length(location.k, location.sealed_length)
        if not runs or location.offset - end > MAX_GAP or after - start > MAX_RUN:
            runs.append([])
            start = location.offset
        runs[-1].append(location)
        end = max(end, after)
    return runs


# -- the clouds as those see them that write and read packs ---------------------------------------------


class PackClouds(Protocol):
    """The engine, or clouds in memory."""

    opened: Topic[[]]
    """There is one cloud more."""

    @property
    def numbers(self) -> Sequence[int]:
        """The numbers of the clouds that are open."""

    def put_pack(
        self, pack: EncodedPack, held: dict[int, int] | None = None, among: Collection[int] | None = None, /
    ) -> Sequence[int]:
        """Store all shares; return the cloud of each. Raises CloudsUnavailable.

        *held*: the clouds that have acknowledged shares before, by share; it is added to. *among*: the clouds
        that may be chosen, if not all.
        """

    def find_held(self, pack: EncodedPack, /) -> dict[int, int]:
        """Look which shares of a pack are on clouds already, as `put_pack` takes it."""

    def get_chunks(self, locations: Sequence[ChunkLocation], /) -> list[bytes]:
        """Return chunks of one pack. Raises ChunkUnavailable."""

    def find_shares(self, pack_id: bytes, n: int, /) -> Sequence[int]:
        """Return the cloud of each of the `n` shares of a pack, as `Upkeep.find_shares` does."""
