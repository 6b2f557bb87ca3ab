"""Objects over several clouds through the engine, handled as the daemon handles the content of files.

Cut into chunks of 1 MiB, sealed, gathered into packs of 8 MiB; the packs of an object are dispersed and read
side by side, as the daemon's uploads and reads are. What is written is random, so that nothing shrinks. Or
handled as values of the key-value store (`Keyed`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from backends.store import Store
from hybrisfs.dispersal.engine import ChunkLocation, Cloud, CloudStatus, Engine
from hybrisfs.dispersal.pack import PACK_TARGET, EncodedPack, PackBuilder, Redundancy, choose_code
from hybrisfs.dispersal.seal import MAX_CHUNK, Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.environment import SYSTEM, Environment, Limits
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.rmds import DeviceStore
from hybrisfs.kv.store import KeyValueLimits
from sync import OneKey

__all__ = ["UNCACHED", "Dispersed", "Keyed", "Stored"]

_UPLOADS = 3  # as many as the daemon has packs in flight
_TIMEOUT = 60.0
_BOX = "box"
UNCACHED: Final = Environment(limits=Limits(KeyValueLimits(cache_bytes=0)))
"""Of a key-value store that reads each value from the clouds."""

Stored = Sequence[Sequence[ChunkLocation]]
"""An object: for each of its packs, where the chunks are."""


class Dispersed:
    """An engine with keys of its own over `stores`; `close` closes them."""

    def __init__(self, names: Sequence[str], stores: Sequence[Store], f: int, k: int) -> None:
        self.f, self.k = f, k
        self._sealer = Sealer(OneKey(os.urandom(32)), os.urandom(32))
        self._tables = TableSealer(OneKey(os.urandom(32)))
        self._engine = _engine(names, stores, f, self._sealer, self._tables)
        self._pool = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="bench")

    def close(self) -> None:
        self._pool.shutdown()
        self._engine.close()

    def health(self) -> list[CloudStatus]:
        return self._engine.health()

    def put(self, data: bytes) -> Stored:
        """Seal and store; returns when every pack is on f+k clouds."""
        packs: list[PackBuilder] = []
        for start in range(0, len(data), MAX_CHUNK):
            chunk = data[start : start + MAX_CHUNK]
            chunk_id = self._sealer.chunk_id(chunk)
            if not packs or packs[-1].sealed_size >= PACK_TARGET:
                packs.append(PackBuilder(self._tables))
            packs[-1].add(chunk_id, len(chunk), self._sealer.seal(chunk_id, chunk))
        return list(self._pool.map(self._put_pack, packs))

    def put_together(self, objects: Sequence[bytes]) -> Stored:
        """Seal and store small objects in one pack, as a volume does; one entry for each."""
        builder = PackBuilder(self._tables)
        for data in objects:
            chunk_id = self._sealer.chunk_id(data)
            builder.add(chunk_id, len(data), self._sealer.seal(chunk_id, data))
        return [[location] for location in self._put_pack(builder)]

    def _put_pack(self, builder: PackBuilder) -> Sequence[ChunkLocation]:
        pack: EncodedPack = builder.finish(*choose_code(builder.sealed_size, self.f, self.k))
        placement = self._engine.put_pack(pack)
        return [
            ChunkLocation(
                pack.pack_id,
                pack.k,
                pack.n,
                placement,
                entry.chunk_id,
                entry.length,
                entry.offset,
                entry.sealed_length,
            )
            for entry in pack.entries
        ]

    def get(self, stored: Stored) -> bytes:
        """Read and verify everything."""

        def read(locations: Sequence[ChunkLocation]) -> bytes:
            return b"".join(self._engine.get_chunks(locations, timeout=_TIMEOUT))

        if len(stored) == 1:
            return read(stored[0])
        return b"".join(self._pool.map(read, stored))


class Keyed:
    """A key-value store over `stores`, with its metadata in *path* on this device and without a cache."""

    def __init__(self, path: Path, names: Sequence[str], stores: Sequence[Store], f: int, k: int) -> None:
        key = OneKey(os.urandom(32))
        self._engine = _engine(names, stores, f, Sealer(key, os.urandom(32)), TableSealer(key))
        MetadataDatabase.create(path, os.urandom(16))
        self._store = DeviceStore(
            path, self._engine.values, bytes(32), Redundancy(f, k), environment=UNCACHED
        )
        self._store.create_container(_BOX)

    def close(self) -> None:
        self._store.close()
        self._engine.close()

    def put(self, key: str, data: bytes) -> None:
        self._store.put(_BOX, key, data)

    def get(self, key: str) -> bytes:
        return self._store.get(_BOX, key).value


def _engine(
    names: Sequence[str], stores: Sequence[Store], f: int, sealer: Sealer, tables: TableSealer
) -> Engine:
    clouds = [Cloud(n, name, store) for n, (name, store) in enumerate(zip(names, stores, strict=True))]
    return Engine(clouds, f, sealer, tables, environment=SYSTEM)
