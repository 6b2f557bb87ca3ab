"""The proposer's part in discarding packs, from the proposal to the end of the packs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from hybrisfs.dispersal.erasure import MAX_FRAGMENTS
from hybrisfs.gc.assembly import Assembly
from hybrisfs.gc.pages import Pages
from hybrisfs.registers.ballots import MAX_PACKS, Stray
from hybrisfs.registers.groups import in_groups
from hybrisfs.state.pack_chunks import count_of_pack, sealed_bytes
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["Proposer"]

_BATCH_CHUNKS = 4000  # that one transaction takes from the database; programs wait meanwhile


class Proposer:
    """Proposes, and ends what all have agreed on. One caller at a time, without the volume's locks.

    *clouds* tells the numbers of all clouds: a share may have come to one that no placement names.
    *delete_strays* deletes such shares; it returns those of which the cloud has yet to say that it has.
    """

    def __init__(
        self,
        fs: FileSystem,
        assembly: Assembly,
        pages: Pages,
        clouds: Callable[[], Sequence[int]],
        delete_strays: Callable[[Collection[Stray]], Collection[Stray]],
    ) -> None:
        self._delete_strays = delete_strays
        self._fs = fs
        self._time_ns = fs.environment.time_ns
        self._assembly = assembly
        self._pages = pages
        self._clouds = clouds

    def propose(
        self, packs: Sequence[int], orphans: Sequence[bytes] = (), strays: Sequence[Stray] = ()
    ) -> int:
        """Propose to discard up to `MAX_PACKS` packs, by their numbers, orphans by their ids, and strays,
        unless a proposal of this device stands, or it may propose nothing; how many.

        Strays alone may wait for a cloud that is away: what is new is proposed together with them.
        """
        with self._fs.cutting, self._fs.lock:
            standing = self._assembly.book().of(self._assembly.device)
            if len(standing) > 1 or any(one.packs or one.orphans for one in standing):
                return 0
            if not self._assembly.may_propose:
                return 0  # removed meanwhile, or made a reader
            waiting = standing[0].strays if standing else ()
            known = [self._fs.packs.numbered(number) for number in packs]
            ids = [one.id for one in known if one is not None]
            lost = [one for one in orphans if self._fs.packs.number_of(one) is None]
            fresh = [one for one in strays if one not in waiting][: MAX_PACKS - len(waiting)]
            lost = lost[: MAX_PACKS - len(waiting) - len(fresh)]
            ids = ids[: MAX_PACKS - len(waiting) - len(fresh) - len(lost)]
            if ids or lost or fresh:
                self._assembly.propose(self._time_ns(), ids, lost, (*waiting, *fresh))
        return len(ids) + len(lost) + len(fresh)

    def conclude(self) -> bool:
        """End the packs of the own proposal when all have agreed; whether anything was signed."""
        self._pages.look_through()
        with self._fs.lock:
            lists = self._assembly.book().of(self._assembly.device)
            agreed = [self._assembly.book().agreed(one) for one in lists]
            may_propose = self._assembly.may_propose
        if not may_propose or not lists or (len(lists) == 1 and agreed[0] is None):
            return False
        # A forked device with several lists begins anew.
        left: tuple[Stray, ...] = ()
        if len(lists) == 1 and agreed[0] is not None:
            for batch in in_groups(agreed[0].packs, self._chunks_in, _BATCH_CHUNKS):
                if not self._end(batch):
                    return False
            if not self._end_orphans():
                return False
            left = tuple(self._delete_strays(agreed[0].strays))
            if left and not (lists[0].packs or lists[0].orphans) and set(left) == set(lists[0].strays):
                return False
        with self._fs.cutting, self._fs.lock:
            if not self._assembly.may_propose:
                return False
            # Nobody may name what is left until it is deleted: it is proposed again in the same breath.
            self._assembly.propose(self._time_ns(), (), strays=left)
            for one in lists:
                # What was refused is proposed again after another grace period.
                self._fs.idle_packs.put_off(one.packs, self._time_ns())
        return True

    def _chunks_in(self, pack: bytes) -> int:
        with self._fs.lock:
            return count_of_pack(self._fs.db, pack)

    def _end(self, packs: Iterable[bytes]) -> bool:
        """Sign the end of packs, and note what is to be deleted; False when that has to wait."""
        fs, condemned = self._fs, self._fs.chunks.condemned
        with fs.cutting, fs.lock:
            lists = self._assembly.book().of(self._assembly.device)
            agreed = self._assembly.book().agreed(lists[0]) if len(lists) == 1 else None
            if agreed is None or condemned.unread_pages():
                return False  # somebody has come in meanwhile, or something has yet to be looked at
            if not self._assembly.may_end(agreed.packs):
                return False  # removed meanwhile, or others would ask somebody whom this device does not
            ending = []
            for pack in packs:
                number = fs.packs.number_of(pack)
                if (
                    number is not None
                    and number in condemned
                    and pack in agreed.packs
                    and not condemned.is_wanted(number)
                ):
                    ending.append((pack, number))
            if ending:
                stamp = self._assembly.end(pack for pack, _ in ending)
                for pack, number in ending:
                    self._dispose(number, stamp.clock)
                    fs.chunks.discard_pack(pack, stamp.clock, stamp.writer)
        return True

    def _end_orphans(self) -> bool:
        """Sign that packs which nobody has on record will never be; False when that has to wait."""
        fs = self._fs
        with fs.cutting, fs.lock:
            lists = self._assembly.book().of(self._assembly.device)
            agreed = self._assembly.book().agreed(lists[0]) if len(lists) == 1 else None
            if agreed is None:
                return False
            if not self._assembly.may_end(agreed.orphans):
                return False
            ending = [
                pack
                for pack in agreed.orphans
                if fs.packs.number_of(pack) is None and not fs.packs.is_discarded(pack)
            ]
            if ending:
                stamp = self._assembly.end(ending)
                for pack in ending:
                    fs.disposals.add(pack, MAX_FRAGMENTS, dict.fromkeys(self._clouds(), 0), stamp.clock)
                    fs.chunks.discard_pack(pack, stamp.clock, stamp.writer)
        return True

    def _dispose(self, number: int, clock: int) -> None:
        """Have the shares of a pack deleted that ends with the own update at *clock*."""
        pack = self._fs.packs.numbered(number)
        assert pack is not None
        share = -(-sealed_bytes(self._fs.db, number) // pack.k)
        sizes = {
            cloud: share if cloud in pack.placement else 0 for cloud in {*self._clouds(), *pack.placement}
        }
        self._fs.disposals.add(pack.id, pack.n, sizes, clock)
