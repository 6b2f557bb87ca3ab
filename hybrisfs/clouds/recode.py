"""Rewriting packs with another code, when f or k of the volume have changed.

The packs in the database say what is to be done, so it goes on after a crash where it was. The chunks of a
pack are read, verified, packed and dispersed again. One signed update then says where they are now and that
the former pack was rewritten, so that all devices read the new ones. The former shares are not needed then;
they stay where they are, because a device that lacks the update may be reading them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.errors import ChunkUnavailable, CloudsUnavailable
from hybrisfs.dispersal.pack import EncodedPack, PackBuilder
from hybrisfs.dispersal.runs import ChunkLocation
from hybrisfs.merge.signing import Signer
from hybrisfs.registers.tree import PackedChunk, Rewritten, rewritten_key
from hybrisfs.signals import Signals
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.pack_chunks import chunks_of_pack
from hybrisfs.state.packs import Pack
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.place import PackMaker, is_ending, record_packs

__all__ = ["Recoder"]

log = logging.getLogger(__name__)

_CHUNK_SECONDS: Final = 60.0


class Recoder:
    """Rewrites packs, one after the other."""

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
        signals: Signals,
        maker: PackMaker,
        engine: Engine,
    ) -> None:
        self._fs = fs
        self._signer = signer
        self._signals = signals
        self._maker = maker
        self._engine = engine

    def rewrite(self, former: Pack) -> str | None:
        """Pack the chunks of a pack again; why that failed, None when it is done."""
        if is_ending(self._fs, former.id):
            return f"pack {former.id.hex()[:16]} is about to be discarded: that comes first"
        try:
            packs = self._encode(former)
            placed = [(pack, self._maker.disperse(pack)) for pack in packs]
        except (ChunkUnavailable, CloudsUnavailable) as error:
            return str(error)
        if placed and not self._record(former, placed):
            return f"pack {former.id.hex()[:16]}: what was to take its place was discarded meanwhile"
        return None

    def _encode(self, former: Pack) -> list[EncodedPack]:
        """Raises ChunkUnavailable."""
        builders: list[PackBuilder] = []
        for ref, data in self._read(former):
            sealed = self._maker.sealer.seal(ref.id, data)
            if not builders or not self._maker.fits(builders[-1], len(sealed) + len(ref.id)):
                builders.append(self._maker.builder())
            builders[-1].add(ref.id, ref.length, sealed)
        return [self._maker.finish(self._fs, one) for one in builders]

    def _read(self, former: Pack) -> list[tuple[ChunkRef, bytes]]:
        """The chunks that are read from a pack, from this disk where they are here."""
        with self._fs.state.transaction() as tx:
            refs = chunks_of_pack(tx, former.number)
            here = {ref.number: tx.chunks.read_whole(ref) for ref in refs}
        missing = [ref for ref in refs if here[ref.number] is None]
        wanted = [self._location(former, ref) for ref in missing]
        there = self._engine.get_chunks(wanted, timeout=_CHUNK_SECONDS) if wanted else []
        fetched = {ref.number: data for ref, data in zip(missing, there, strict=True)}
        return [(ref, here[ref.number] or fetched[ref.number]) for ref in refs]

    @staticmethod
    def _location(former: Pack, ref: ChunkRef) -> ChunkLocation:
        placement = tuple(former.placement)
        return ChunkLocation(
            former.id, former.k, former.n, placement, ref.id, ref.length, ref.offset or 0, ref.sealed or 0
        )

    def _record(self, former: Pack, placed: Sequence[tuple[EncodedPack, bytes]]) -> bool:

        def settle(tx: Transaction, number: int, packed: Sequence[PackedChunk]) -> None:
            for chunk in packed:
                tx.chunks.repacked(chunk.id, former.number, number, chunk.offset, chunk.sealed)

        into = Rewritten(tuple(pack.pack_id for pack, _ in placed))
        rewritten = rewritten_key(former.id), into.encode()
        if not record_packs(self._fs, self._signer, placed, settle, [rewritten]):
            return False
        log.info("pack %s was rewritten as %d", former.id.hex()[:16], len(placed))
        self._signals.packed()
        return True
