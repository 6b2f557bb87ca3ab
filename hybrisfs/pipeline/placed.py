"""Packs under way to the clouds: names that nobody has used, and the record of where they came to be.

Equal chunks in equal order make equal packs. A pack that has been discarded, or is about to be, may be
deleted from a cloud at any time later: so no other pack ever gets its name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from hybrisfs.dispersal.pack import EncodedPack, PackBuilder
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.registers import PackedChunk, PackRecord, pack_key
from hybrisfs.merge.signing import Signer

__all__ = ["finish_pack", "is_ending", "record_pack"]

_FILLER = 16  # random bytes that make a pack another one


def is_ending(fs: FileSystem, pack: bytes) -> bool:
    """Whether the pack has been discarded or may be soon: no share of it is to be put or moved anywhere."""
    with fs.lock:
        row = fs.db.execute("SELECT number, n FROM pack WHERE id = ?", (pack,)).fetchone()
        return row is not None and (row[1] == 0 or row[0] in fs.chunks.condemned)


def finish_pack(fs: FileSystem, sealer: Sealer, builder: PackBuilder, k: int, n: int) -> EncodedPack:
    """Encode what was gathered, as a pack with a name that may be used."""
    pack = builder.finish(k, n)
    while is_ending(fs, pack.pack_id):
        filler = os.urandom(_FILLER)
        identity = sealer.chunk_id(filler)
        builder.add(identity, len(filler), sealer.seal(identity, filler))
        pack = builder.finish(k, n)
    return pack


def record_pack(
    fs: FileSystem, signer: Signer, pack: EncodedPack, placement: bytes, numbers: Mapping[bytes, int]
) -> bool:
    """Note where the chunks are, in the view and as a signed update of the pack's register.

    *numbers*: of the chunks by their ids. False, and nothing is noted, when the pack is to end already.
    """
    chunks = [PackedChunk(one.chunk_id, one.offset, one.sealed_length, one.length) for one in pack.entries]
    key = pack_key(pack.pack_id)
    value = PackRecord(pack.k, pack.n, placement, chunks).encode()
    with fs.lock:
        if is_ending(fs, pack.pack_id):
            return False
        # Another device may have packed the same chunks in the same order: that makes the same pack.
        (number,) = fs.db.execute(
            "INSERT INTO pack (id, k, n, placement) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET placement = excluded.placement RETURNING number",
            (pack.pack_id, pack.k, pack.n, placement),
        ).fetchone()
        others = []
        for chunk in chunks:
            mine = numbers.get(chunk.id)
            if mine is None or not fs.chunks.packed(mine, number, chunk.offset, chunk.sealed):
                others.append(chunk)
        # Fillers, and what was dropped here meanwhile; but another device may come to name it.
        fs.chunks.packed_elsewhere(number, others)
        fs.changes.mark(key, 0)
        stamp = signer.sign([(key, value)], 0)
        fs.db.execute(
            "UPDATE pack SET clock = ?, branch = ? WHERE number = ?", (stamp.clock, stamp.writer, number)
        )
        fs.changes.signed({key: fs.changes.seq}, stamp.clock)
    return True
