"""Packing again the few needed chunks of packs, so that these packs can be discarded.

The new pack is on the clouds and in the log before anything relies on it. The old one stays, as a pack that
holds nothing that is needed here, until all have agreed that it may go: each reads the new one first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hybrisfs.dispersal.pack import PACK_TARGET, PackBuilder
from hybrisfs.gc.find import Idle
from hybrisfs.merge.signing import Signer
from hybrisfs.read.fetch import Fetcher
from hybrisfs.signals import Signals
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.place import PackMaker, record_pack

__all__ = ["Rewriter"]


class Rewriter:
    """Packs chunks again. One caller at a time, without the volume's lock."""

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

    def rewrite(self, packs: Iterable[Idle], most: int) -> int:
        """Pack the needed chunks of *packs* again, up to about *most* bytes; how many packs were done.

        Raises ChunkUnavailable, CloudsUnavailable and OSError; what was done by then is done.
        """
        done = moved = 0
        gathered: list[Idle] = []
        builder, numbers = self._maker.builder(), dict[bytes, int]()
        for idle in packs:
            if moved >= most or self._signals.stopping:
                break
            for number in idle.needed.chunks:
                identity, length, sealed = self._sealed(number, idle.pack)
                if identity in builder or not sealed:
                    continue
                if not self._maker.fits(builder, len(sealed) + len(identity)):
                    self._put(builder, numbers)
                    builder, numbers = self._maker.builder(), {}
                builder.add(identity, length, sealed)
                numbers[identity] = number
                moved += len(sealed)
            gathered.append(idle)
            if builder.sealed_size >= PACK_TARGET:
                self._put(builder, numbers)
                builder, numbers = self._maker.builder(), {}
                done += self._note(gathered)
                gathered = []
        if builder.count:
            self._put(builder, numbers)
        return done + self._note(gathered)

    def _sealed(self, number: int, pack: int) -> tuple[bytes, int, bytes]:
        """Id, length and sealed bytes of a chunk; no bytes when it is in that pack no more."""
        with self._fs.state.transaction() as tx:
            ref = tx.chunks.get_if_known(number)
            if ref is None or ref.pack != pack:
                return b"", 0, b""
            data = tx.chunks.read_whole(ref)
        if data is None:
            data = self._fetcher.fetch_one(ref)
        return ref.id, len(data), self._maker.sealer.seal(ref.id, data)

    def _put(self, builder: PackBuilder, numbers: dict[bytes, int]) -> None:
        pack = self._maker.finish(self._fs, builder)
        # Nobody else knows of the pack before it is recorded; if it came to end all the same, the chunks
        # stay where they are, and it is done again.
        record_pack(self._fs, self._signer, pack, self._maker.disperse(pack), numbers)
        self._signals.packed()

    def _note(self, packs: Sequence[Idle]) -> int:
        """Nothing of these is needed any more; how many there are."""
        with self._fs.state.transaction() as tx:
            tx.deletion_candidates.emptied(idle.pack for idle in packs)
        return len(packs)
