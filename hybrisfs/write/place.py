"""Packs under way to the clouds: how they are made, and the record of where they came to be.

Equal chunks in equal order make equal packs. A pack that has been discarded, or is about to be, may be
deleted from a cloud at any time later: so no other pack ever gets its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hybrisfs.dispersal.pack import EncodedPack, PackBuilder, Redundancy, choose_code
from hybrisfs.dispersal.pack_clouds import PackClouds
from hybrisfs.dispersal.seal import Sealer
from hybrisfs.dispersal.share import TableSealer
from hybrisfs.members.banned import bans_orphan, bans_place, bans_strays_of
from hybrisfs.merge.signing import Signer
from hybrisfs.registers.tree import PackedChunk, PackRecord, pack_key
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import Write

__all__ = ["PackMaker", "is_ending", "record_pack", "record_packs", "settle_chunks"]

_FILLER = 16  # random bytes that make a pack another one


def is_ending(fs: FileSystem, pack: bytes) -> bool:
    """Whether the pack has been discarded or may be soon: no share of it is to be put or moved anywhere."""
    with fs.state.transaction() as tx:
        found = tx.packs.find(pack)
        if found is None:
            return bans_orphan(tx, pack)
        return not found.n or found.number in tx.chunks.condemned


class PackMaker:
    """Makes the packs of a volume and brings them to the clouds; shared by all who pack chunks."""

    def __init__(
        self,
        sealer: Sealer,
        tables: TableSealer,
        redundancy: Redundancy,
        clouds: PackClouds,
    ) -> None:
        self.sealer = sealer
        self._tables = tables
        self._clouds = clouds
        self.redundancy = redundancy
        """How packs are written from now on: it may be set at any time."""

    def builder(self) -> PackBuilder:
        return PackBuilder(self._tables)

    def fits(self, builder: PackBuilder, sealed: int) -> bool:
        """Whether a chunk of so many sealed bytes can be added."""
        return builder.fits(sealed, sum(self.redundancy))

    def finish(self, fs: FileSystem, builder: PackBuilder) -> EncodedPack:
        """Encode what was gathered, as a pack with a name that may be used."""
        k, n = choose_code(builder.sealed_size, *self.redundancy)
        pack = builder.finish(k, n)
        while self._is_taken(fs, pack.pack_id):
            filler = fs.environment.random_bytes(_FILLER)
            identity = self.sealer.chunk_id(filler)
            builder.add(identity, len(filler), self.sealer.seal(identity, filler))
            pack = builder.finish(k, n)
        return pack

    @staticmethod
    def _is_taken(fs: FileSystem, pack: bytes) -> bool:
        with fs.state.transaction() as tx:
            found = tx.packs.find(pack)
            is_doubted = found is not None and found.doubted
            return is_ending(fs, pack) or is_doubted or bans_strays_of(tx, pack)

    def disperse(self, pack: EncodedPack) -> bytes:
        """Put a pack on f+k clouds; its placement. Raises CloudsUnavailable."""
        return bytes(self._clouds.put_pack(pack))


def record_pack(
    fs: FileSystem, signer: Signer, pack: EncodedPack, placement: bytes, numbers: Mapping[bytes, int]
) -> bool:
    """Note where the chunks are; see `record_packs`. *numbers*: of the chunks by their ids."""
    return record_packs(fs, signer, [(pack, placement)], settle_chunks(fs, numbers))


def settle_chunks(
    fs: FileSystem, numbers: Mapping[bytes, int]
) -> Callable[[Transaction, int, Sequence[PackedChunk]], None]:
    """A function that has chunks with these *numbers*, by their ids, read from the pack that it is given."""

    def settle(tx: Transaction, number: int, chunks: Sequence[PackedChunk]) -> None:
        others = []
        for chunk in chunks:
            mine = numbers.get(chunk.id)
            if mine is None or not tx.chunks.packed(mine, number, chunk.offset, chunk.sealed):
                others.append(chunk)
        # Fillers, and chunks that have been dropped here since; but another device may come to name them.
        tx.chunks.packed_elsewhere([(number, others)])

    return settle


def record_packs(
    fs: FileSystem,
    signer: Signer,
    placed: Sequence[tuple[EncodedPack, bytes]],
    settle: Callable[[Transaction, int, Sequence[PackedChunk]], None],
    more: Sequence[Write] = (),
) -> bool:
    """Note where packs are, in the view and in one signed update of their registers and *more*.

    *settle* gets each pack's number and chunks. False, and nothing is noted, when one of
    the packs is to end already, or this device was removed while it put them. Raises HybrisError when it may
    not say so for another reason; nothing is noted then, either.
    """
    seqs: dict[bytes, int] = {}
    contents = [
        [PackedChunk(one.chunk_id, one.offset, one.sealed_length, one.length) for one in pack.entries]
        for pack, _ in placed
    ]
    writes: list[Write] = [
        (pack_key(pack.pack_id), PackRecord(pack.k, pack.n, placement, chunks).encode())
        for (pack, placement), chunks in zip(placed, contents, strict=True)
    ]
    with fs.state.transaction() as tx:
        if not signer.may_contribute(tx):
            return False
        if any(is_ending(fs, pack.pack_id) or bans_place(tx, pack.pack_id, at) for pack, at in placed):
            return False
        # Before anything here relies on the packs: that may be refused.
        stamp = signer.sign(tx, [*writes, *more], 0)
        for key, _ in writes:
            fs.changes.mark(key, 0)
            seqs[key] = fs.changes.seq
        for (pack, placement), chunks in zip(placed, contents, strict=True):
            settle(tx, tx.packs.put(pack.pack_id, pack.k, pack.n, placement, stamp), chunks)
        fs.changes.signed(tx, seqs, stamp.clock)
    return True
