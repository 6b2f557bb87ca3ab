"""Writing packs again that the clouds have lost, from what the devices hold.

Equal chunks in equal order make equal packs, so a pack of which everything is here comes back under its own
name, and other devices need to know its place only. Of other packs, the chunks that can be had are packed
again, and one signed update says so, as when f or k change.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.dispersal.pack import EncodedPack, PackBuilder
from hybrisfs.merge.signing import Signer
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import Rewritten, rewritten_key
from hybrisfs.signals import Signals
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.pack_chunks import chunks_of_lost_pack, lost_packs
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.place import PackMaker, is_ending, record_packs, settle_chunks

__all__ = ["PackRenewer"]

log = logging.getLogger(__name__)

_SHOWN: Final = 16  # digits of a pack's id


class PackRenewer:
    """Knows the packs that the clouds have lost, and puts their chunks there again. Thread-safe."""

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
        signals: Signals,
        maker: PackMaker,
        fetcher: Fetcher,
    ) -> None:
        self._fs = fs
        self._signer = signer
        self._signals = signals
        self._maker = maker
        self._fetcher = fetcher

    def lost(self) -> list[bytes]:
        """The ids of packs that the clouds have lost, and that hold what no other pack does."""
        with self._fs.state.transaction() as tx:
            return list(lost_packs(tx).values())

    def set_aside(self, pack: bytes) -> None:
        """The clouds have lost a pack: nothing of it that is here is let go from now on."""
        number = self._number(pack)
        with self._fs.state.transaction() as tx:
            before = lost_packs(tx)
            tx.chunks.set_aside(number, but=before)
            known = number in before or number not in lost_packs(tx)
        if not known:
            log.warning("the clouds have lost pack %s", pack.hex()[:_SHOWN])

    def take_back(self, pack: bytes) -> None:
        """The clouds have a pack; nothing is done for one that was not set aside."""
        number = self._number(pack)
        with self._fs.state.transaction() as tx:
            tx.chunks.take_back(number)
        self._wanted(number)

    def renew(self, pack: bytes) -> bytes | str:
        """Put what was in a lost pack onto the clouds; where it is now (of several new packs: the first), or
        why some of it is on no cloud still."""
        if is_ending(self._fs, pack):
            return "the pack is about to be discarded"
        if not self._fs.is_full:
            return "this device is no full member: another one has to write anew what was lost"
        number = self._number(pack)
        wanted = self._wanted(number)
        if not wanted:
            return b""  # another device has put it there
        if any(not ref.is_here for ref in wanted):
            self._fetcher.fetch_from_devices([ref for ref in wanted if not ref.is_here])
        chunks = self._read(number)
        if not chunks:
            return f"{_too_little(pack)}, and no device that is linked has any of it"
        try:
            placed = [(one, self._maker.disperse(one)) for one in self._encode(chunks)]
        except CloudsUnavailable as error:
            return str(error)
        if not self._record(pack, chunks, placed):
            return "what was to take its place was discarded meanwhile"
        left = self._wanted(number)
        if left:
            here = f"{len(left)} of {len(wanted)} pieces are neither here nor on a device that is linked"
            return f"{_too_little(pack)}, and {here}"
        return placed[0][1]

    def _number(self, pack: bytes) -> int:
        with self._fs.state.transaction() as tx:
            found = tx.packs.find(pack)
        return found.number if found is not None else -1

    def _wanted(self, number: int) -> list[ChunkRef]:
        """The chunks of a pack that are on no cloud, after a look where members say that they are."""
        for look in (True, False):
            with self._fs.state.transaction() as tx:
                wanted = [ref for ref in chunks_of_lost_pack(tx, number) if ref.is_elsewhere]
            if wanted and look:
                self._fetcher.prove([ref.number for ref in wanted])
        return wanted

    def _read(self, number: int) -> list[tuple[ChunkRef, bytes]]:
        """All chunks of the pack if they are here, else those that are here and on no cloud."""
        with self._fs.state.transaction() as tx:
            refs = chunks_of_lost_pack(tx, number)
            found = [(ref, data) for ref in refs if (data := self._read_one(tx, ref)) is not None]
        if len(found) < len(refs):
            found = [(ref, data) for ref, data in found if ref.is_elsewhere]
        return found

    def _read_one(self, tx: Transaction, ref: ChunkRef) -> bytes | None:
        try:
            return tx.chunks.read_whole(ref)
        except OSError:
            return None  # damaged here: the packer reports that

    def _encode(self, chunks: Sequence[tuple[ChunkRef, bytes]]) -> list[EncodedPack]:
        builders: list[PackBuilder] = []
        for ref, data in chunks:
            sealed = self._maker.sealer.seal(ref.id, data)
            if not builders or not self._maker.fits(builders[-1], len(sealed)):
                builders.append(self._maker.builder())
            builders[-1].add(ref.id, ref.length, sealed)
        return [self._maker.finish(self._fs, one) for one in builders]

    def _record(
        self,
        former: bytes,
        chunks: Sequence[tuple[ChunkRef, bytes]],
        placed: Sequence[tuple[EncodedPack, bytes]],
    ) -> bool:
        numbers = {ref.id: ref.number for ref, _ in chunks if ref.is_elsewhere}
        into = tuple(pack.pack_id for pack, _ in placed)
        more = [(rewritten_key(former), Rewritten(into).encode())] if into != (former,) else []
        settle = settle_chunks(self._fs, numbers)
        if not record_packs(self._fs, self._signer, placed, settle, more):
            return False
        log.info("pack %s, which the clouds had lost, was written anew", former.hex()[:_SHOWN])
        self._signals.packed()
        return True


def _too_little(pack: bytes) -> str:
    return f"too little of pack {pack.hex()[:_SHOWN]} is left to rebuild a share"
