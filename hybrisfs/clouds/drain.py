"""Draining a cloud: all that it holds goes to other clouds, then it is removed there.

The placements in the database say what is to be done: packs and log segments that name the cloud. So a drain
goes on after a crash where it was, and finds what another device has put there since. Nothing is removed
before its new place is signed, durable on this device and on f+k clouds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from hybrisfs.bounded import in_groups
from hybrisfs.clouds.pack_repair import PackMender
from hybrisfs.clouds.segment_repair import SegmentMender
from hybrisfs.dispersal.share import parse_share_name
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.state.database import Snapshot
from hybrisfs.state.packs import filled_packs
from hybrisfs.state.segments import SegmentTable
from hybrisfs.state.state import Transaction
from hybrisfs.state.stored_log import end_of_segment
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError, parse_segment_name
from sync.checkpoint import CHECKPOINTS

__all__ = ["Drain", "held_by_cloud"]

_WORKERS: Final = 3  # packs at a time, each with its shares in memory
_BATCH: Final = 60
_DELETED_AT_ONCE: Final = 500
_MOST_NAMES: Final = 1_000_000


def held_by_cloud(database: Snapshot) -> tuple[Counter[int], Counter[int]]:
    """The number of packs and own log segments that each cloud should hold, and roughly the bytes of the
    packs."""
    objects, size = Counter[int](), Counter[int]()
    for placement, k, sealed in filled_packs(database):
        objects.update(placement)
        size.update(dict.fromkeys(placement, sealed // k))
    for segment in SegmentTable(database).after():
        objects.update(segment.placement)
    return objects, size


class Drain:
    """Moves what single clouds hold. Used by one thread, but for `branches`."""

    def __init__(
        self,
        fs: FileSystem,
        own: bytes,
        upkeep: Upkeep,
        packs: PackMender,
        segments: SegmentMender,
    ) -> None:
        self._fs = fs
        self._own = own
        self._upkeep = upkeep
        self._packs = packs
        self._segments = segments

    def branches(self) -> set[bytes]:
        """The branches whose packs this device may move: none if it only reads, as no device would follow."""
        with self._fs.state.transaction() as tx:
            return set() if self._fs.read_only else tx.updates.own_branches()

    def count_at(self, tx: Transaction, cloud: int) -> int:
        """How many shares and own segments the cloud should hold."""
        return tx.packs.count_on_cloud(cloud) + len(tx.segments.on_cloud(cloud))

    def move(
        self,
        cloud: int,
        writable: Collection[int],
        go_on: Callable[[], bool],
        *,
        ask: bool,
        everything: bool,
    ) -> list[str]:
        """Move what the cloud should hold: own log segments and, with *everything*, all packs, else those
        that this device has put there. Returns what could not be moved, in sentences; stops when *go_on* is
        false."""
        troubles = []
        for name in self._segment_names(cloud):
            trouble = self._segments.move(name, cloud, ask=ask, writable=writable)
            troubles += [trouble] if trouble is not None else []
            if not go_on():
                return troubles
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="drain") as pool:
            for batch in self._packs_on(cloud, everything=everything):
                moves = {
                    pack: pool.submit(self._packs.move, pack, cloud, ask=ask, writable=writable)
                    for pack in batch
                }
                outcomes = {pack: move.result() for pack, move in moves.items()}
                troubles += [why for pack, why in outcomes.items() if why is not None and batch[pack]]
                if not go_on():
                    break
        return troubles

    def _segment_names(self, cloud: int) -> list[str]:
        with self._fs.state.transaction() as tx:
            return [segment.name for segment in tx.segments.on_cloud(cloud)]

    def _packs_on(self, cloud: int, *, everything: bool) -> Iterator[dict[bytes, bool]]:
        """The packs, some at a time, and whether each is needed. Rewritten packs are not read any more, so it
        does no harm if they cannot be moved."""
        last = 0
        while True:
            mine = self.branches()
            with self._fs.state.transaction() as tx:
                packs = tx.packs.on_cloud(cloud, last, _BATCH)
            if not packs:
                return
            yield {one.id: not one.rewritten for one in packs if everything or one.branch in mine}
            last = packs[-1].number

    def renumber(self, before: int, now: int) -> None:
        """Own segments on the cloud *now* were recorded under the number *before*: record the new number."""
        for name in self._segment_names(before):
            self._segments.renumber(name, before, now)
        for batch in self._packs_on(before, everything=False):
            for pack in batch:
                self._packs.renumber(pack, before, now)

    def secure_log(
        self, cloud: int, in_use: Collection[int], copies: int, writable: Collection[int]
    ) -> tuple[set[str], list[str]]:
        """Bring the segments of other devices that a cloud has to *copies* other clouds: only their authors
        know where they should be, and may be away for long. Returns the names of those that are there or that
        no device needs any more, and what went wrong, in sentences."""
        names = self._upkeep.names(cloud, "log/", _MOST_NAMES)
        if names is None:
            return set(), ["it does not tell which parts of the log it has"]
        dropped = {name for name in names if self._is_dropped(name)}
        others = [
            name for name in names if name not in dropped and self._author(name) not in (None, self._own)
        ]
        listed = {one: set(self._upkeep.names(one, "log/", _MOST_NAMES) or ()) for one in in_use if others}
        secured, troubles = dropped, list[str]()
        for name in others:
            holders = {one for one in in_use if name in listed[one]}
            trouble = self._segments.copy(name, cloud, holders=holders, copies=copies, writable=writable)
            troubles += [trouble] if trouble is not None else []
            if len(holders) >= copies:
                secured.add(name)
        return secured, troubles

    def clear(self, cloud: int, secured: Container[str]) -> str | None:
        """Remove from a cloud shares that are placed elsewhere or read no more, log segments that are
        *secured*, and all parts of checkpoints, which other clouds have. Returns why that failed, None when
        it is done. A share of a pack that is unknown here stays: another device is just putting it.
        """
        found = [self._upkeep.names(cloud, prefix, _MOST_NAMES) for prefix in ("packs/", "log/", CHECKPOINTS)]
        if any(names is None for names in found):
            return "it does not list its objects"
        moved = [name for names in found for name in names or ()]
        moved = [name for name in moved if name in secured or self._is_elsewhere(cloud, name)]
        for batch in in_groups(moved, lambda _: 1, _DELETED_AT_ONCE):
            refusal = self._upkeep.delete(cloud, batch)
            if self._upkeep.refused_deletion(cloud) is not None:
                break  # what it held stays there, which need not keep the cloud
            if refusal is not None:
                return refusal
        return None

    def _is_dropped(self, name: str) -> bool:
        """Whether a checkpoint has taken the place of a log segment."""
        with self._fs.state.transaction() as tx:
            end = end_of_segment(tx, name)
        return end is not None and end.bare

    def _is_elsewhere(self, cloud: int, name: str) -> bool:
        if name.startswith(CHECKPOINTS):
            return True
        share = parse_share_name(name)
        with self._fs.state.transaction() as tx:
            if share is not None:
                pack, index = share
                found = tx.packs.find(pack)
                # No other cloud may have been there for a share of a pack whose place others have taken.
                return found is not None and (not found.is_at(index, cloud) or tx.packs.is_rewritten(pack))
            segment = tx.segments.find(name)
            return segment is not None and cloud not in segment.placement

    @staticmethod
    def _author(name: str) -> bytes | None:
        """The device that wrote the log segment of this name; None for any other name."""
        try:
            return parse_segment_name(name)[0]
        except DecodeError:
            return None
