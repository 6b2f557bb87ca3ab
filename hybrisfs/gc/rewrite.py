"""Writing chunks again that are still needed, of packs or of orphans, so that the rest can go.

The new pack is on the clouds and in the log before anything relies on it. The old one stays, as a pack that
holds nothing that is needed here, until all have agreed that it may go: each reads the new one first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from hybrisfs.bounded import in_groups
from hybrisfs.dispersal.errors import ChunkUnavailable
from hybrisfs.dispersal.pack import PACK_TARGET, ChunkLocation, PackBuilder, Redundancy
from hybrisfs.dispersal.share import Table, TableEntry
from hybrisfs.gc.find import Candidate
from hybrisfs.stages import Signals
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.unplaced import awaited, dirty_among
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.pack import Packing, record_pack

__all__ = ["HOT", "NeededOrphans", "Rewriter", "Target"]

log = logging.getLogger(__name__)


class Target(NamedTuple):
    """How chunks are packed again: with a code, on some clouds, if it is worth it for so many bytes of sealed
    chunks at *least*."""

    code: Redundancy | None
    clouds: Collection[int] | None
    least: int


HOT: Final = Target(None, None, 0)
"""As new packs are."""


class Rewriter(Packing):
    """Packs chunks again. One caller at a time, without the volume's lock."""

    def rewrite(self, packs: Iterable[Candidate], most: int, target: Target = HOT) -> int:
        """Pack the needed chunks of *packs* again, up to about *most* bytes. Returns how many packs were
        done. Raises ChunkUnavailable, CloudsUnavailable and OSError; packs done before stay done.
        """
        done = moved = 0
        gathered: list[Candidate] = []
        builder, numbers = self._maker.builder(), dict[bytes, int]()
        for candidate in packs:
            if moved >= most or self._signals.stopping:
                break
            for ref, data in self._read(candidate):
                sealed = self._maker.sealer.seal(ref.id, data)
                if ref.id in builder:
                    continue
                if not self._maker.fits(builder, len(sealed) + len(ref.id), target.code):
                    self._put(builder, numbers, target)
                    builder, numbers = self._maker.builder(), {}
                builder.add(ref.id, ref.length, sealed)
                numbers[ref.id] = ref.number
                moved += len(sealed)
            gathered.append(candidate)
            if builder.sealed_size >= PACK_TARGET:
                self._put(builder, numbers, target)
                builder, numbers = self._maker.builder(), {}
                done += self._note(gathered)
                gathered = []
        if builder.count:
            if builder.sealed_size < target.least:
                return done
            self._put(builder, numbers, target)
        return done + self._note(gathered)

    def _read(self, candidate: Candidate) -> list[tuple[ChunkRef, bytes]]:
        """What is needed of a pack and is read from it still."""
        with self._fs.state.transaction() as tx:
            known = [tx.chunks.get_if_known(number) for number in candidate.needed.chunks]
        refs = [ref for ref in known if ref is not None and ref.pack == candidate.pack]
        return list(zip(refs, self._fetcher.peek(refs), strict=True))

    def _put(self, builder: PackBuilder, numbers: dict[bytes, int], target: Target) -> None:
        pack = self._maker.finish(self._fs, builder, target.code)
        # Nobody else knows of the pack before it is recorded; if it came to end all the same, the chunks
        # stay where they are, and it is done again.
        placement = self._maker.disperse(pack, among=target.clouds)
        record_pack(self._fs, self._signer, pack, placement, numbers)
        self._signals.packed()

    def _note(self, packs: Sequence[Candidate]) -> int:
        """Note the packs of which nothing is needed any more. Returns how many there are."""
        with self._fs.state.transaction() as tx:
            tx.deletion_candidates.emptied(candidate.pack for candidate in packs)
        return len(packs)


# -- orphans that hold what is needed here --------------------------------------------------------------
# The bytes of a pack go up before an update says where they are. When its device is lost at that moment, or
# set back to a backup, while others have the update that names its chunks, no device can read these although
# they are on the clouds. So a device looks for chunks that it lacks, and that no other device is expected to
# bring, in the packs that no register names. The orphan stays one: a device that agrees to its end has looked
# in it first.
#
# What a cloud says is there is believed as far as keys prove it: a table by the name of its pack, a chunk by
# its id.


_MOST_LOOKED_IN: Final = 1000  # packs at a time: clouds may make up names
_MOST_TRIED: Final = 4  # shares of a pack that are asked what it holds
_GROUP_BYTES: Final = 4 << 20
_FIRST_PAUSE: Final = 60.0  # seconds between two looks in vain
_LAST_PAUSE: Final = 6 * 3600.0


Places: TypeAlias = Sequence[tuple[int, int]]
"""Clouds that show shares of a pack, and the indices of these."""


class Shares(Protocol):
    """What is asked of `hybrisfs.dispersal.upkeep.Upkeep`."""

    def table(self, cloud: int, pack_id: bytes, index: int) -> Table | None: ...

    def find_shares(self, pack_id: bytes, n: int) -> tuple[int, ...]: ...


class Chunks(Protocol):
    """What is asked of the clouds."""

    def get_chunks(self, locations: Sequence[ChunkLocation]) -> list[bytes]:
        """Chunks of one pack, from the clouds. Raises ChunkUnavailable."""


class NeededOrphans:
    """One caller at a time, without the volume's locks."""

    def __init__(self, fs: FileSystem, shares: Shares, clouds: Chunks, signals: Signals) -> None:
        self._fs = fs
        self._shares = shares
        self._clouds = clouds
        self._signals = signals
        self._again = 0.0
        self._pause = _FIRST_PAUSE
        self._last = b""  # the pack that was looked in last

    def look_again(self, orphans: Callable[[], Mapping[bytes, Places]], now: float) -> None:
        """Look into the *orphans* if something is lacking and the pause is over; pauses get longer.
        *now* never goes back."""
        if now < self._again:
            return
        found = orphans()
        # What many clouds show first: one of them may make names up. Of the others, each has its turn.
        turns = sorted(found, key=lambda pack: (-len(found[pack]), pack <= self._last, pack))
        self._look({pack: found[pack] for pack in turns[:_MOST_LOOKED_IN]})
        self._last = turns[:_MOST_LOOKED_IN][-1] if turns else b""
        self._again, self._pause = now + self._pause, min(2 * self._pause, _LAST_PAUSE)

    def rest(self) -> None:
        """There is nothing to look for, so the next look is not delayed."""
        self._again, self._pause = 0.0, _FIRST_PAUSE

    def look(self, packs: Iterable[bytes]) -> None:
        """Look in these packs, wherever they are."""
        if self._lacking():
            self._look({pack: self._places(pack) for pack in packs})

    def _look(self, packs: Mapping[bytes, Places]) -> None:
        came = False
        while sum(self._look_in(pack, places) for pack, places in packs.items()):
            came = True
            self._list_files()  # what has come may name further chunks
        if came:
            self._signals.chunks_made()

    def _list_files(self) -> None:
        """Let the view show which chunks files have, as far as their lists are here."""
        fs = self._fs
        with fs.state.transaction() as tx:
            for ino in fs.received.all_unlisted():
                fs.received.lacking_to_know(tx, fs.inodes.get(tx, ino))

    def _places(self, pack: bytes) -> Places:
        placement = self._shares.find_shares(pack, _MOST_TRIED)
        return [(cloud, index) for index, cloud in enumerate(placement)]

    def _lacking(self) -> dict[bytes, int]:
        """The chunks of which it is not known where they are, by id: their numbers."""
        with self._fs.state.transaction() as tx:
            return awaited(tx)

    def _look_in(self, pack: bytes, places: Places) -> int:
        """How many chunks have come from a pack."""
        lacking = self._lacking()
        tables = (self._shares.table(cloud, pack, index) for cloud, index in places[:_MOST_TRIED] if lacking)
        table = next(filter(None, tables), None)
        wanted = [one for one in table.entries if one.chunk_id in lacking] if table is not None else []
        if table is None or not wanted:
            return 0
        placement = self._shares.find_shares(pack, table.n)
        found = 0
        for some in in_groups(wanted, lambda one: one.sealed_length, _GROUP_BYTES):
            locations = [_location(table, placement, one) for one in some]
            try:
                chunks = self._clouds.get_chunks(locations)
            except ChunkUnavailable as error:
                log.info("what is lacking cannot be read from an unnamed pack: %s", error)
                break
            found += self._keep({lacking[one.chunk_id]: data for one, data in zip(some, chunks, strict=True)})
        if found:
            log.info("%d chunks were brought back from pack %s, which nobody names", found, pack.hex()[:16])
        return found

    def _keep(self, fetched: Mapping[int, bytes]) -> int:
        """Take chunks into the journal, from where they go to the clouds. Returns for how many there was
        room."""
        with self._fs.state.transaction() as tx:
            tx.chunks.keep_all(fetched)
            kept = dirty_among(tx, fetched)
            for number in kept:
                tx.chunks.take_over(number)
        return len(kept)


def _location(table: Table, placement: Sequence[int], entry: TableEntry) -> ChunkLocation:
    return ChunkLocation(
        table.pack_id,
        table.k,
        table.n,
        tuple(placement),
        entry.chunk_id,
        entry.length,
        entry.offset,
        entry.sealed_length,
        owed=False,
    )
