"""Repair of packs: what a cloud has lost or altered of them is rebuilt from the other shares.

What is looked at, and when, is in docs/internals/placement.md.

A rebuilt share is put back where it was, or on a cloud that has none of the pack when that one cannot take
it. It is read back before it counts: a cloud that has lost it once is not believed. Only then is the new
place recorded, in the view and as a signed update of the pack's register, so that a crash at any point costs
a repair that is done again, and the other devices look for the share where it is.

When so much of a pack is missing or wrong that nothing can be rebuilt, older versions of its shares are read
where clouds keep them (`dispersal.reader`). When there are none, the chunks of it that this device and linked
ones hold are put there again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Mapping, Sequence
from functools import partial
from typing import Final

from hybrisfs.dispersal.errors import CloudsUnavailable, Finding, IntegrityError
from hybrisfs.dispersal.pack import EncodedPack
from hybrisfs.dispersal.share import MAX_SHARE, Table, TableSealer, share_name
from hybrisfs.dispersal.upkeep import PackRebuild, Repair, Upkeep, candidates, restore
from hybrisfs.members.minutes import bans_place
from hybrisfs.merge.signing import Signer
from hybrisfs.registers.tree import PackedChunk, PackRecord, Rewritten, pack_key, rewritten_key
from hybrisfs.stages import Signals
from hybrisfs.state.chunk_states import ChunkRef
from hybrisfs.state.packs import chunks_of_lost_pack, lost_packs
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.pack import Packing, is_ending, place_chunks, record_packs

__all__ = ["PackMender", "PackRenewer"]

log = logging.getLogger(__name__)


class PackMender:
    """Repairs one pack at a time per caller. Thread-safe."""

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
        signals: Signals,
        upkeep: Upkeep,
        tables: TableSealer,
        renewer: PackRenewer,
    ) -> None:
        self._renewer = renewer
        self._fs = fs
        self._signer = signer
        self._signals = signals
        self._upkeep = upkeep
        self._tables = tables

    def mend(self, pack: bytes, *, writable: Container[int], move: bool) -> list[Repair]:
        """Verify every share of a pack and rebuild the wrong ones. Returns what was wrong. Only *writable*
        clouds are written to. With *move*, a share goes to another cloud when its own cannot take it. Only a
        full member moves shares: other devices would not accept the move from any other.
        """
        move = move and self._fs.is_full
        placement = self._placement(pack)
        if placement is None:
            return []
        rebuild = PackRebuild(pack, self._tables)
        wrong: dict[int, Finding] = {}
        for index, cloud in enumerate(placement):
            found = self._upkeep.gather_share(cloud, pack, index, rebuild)
            if found is not None:
                wrong[index] = found
        for index in wrong if not rebuild.complete else ():
            holder = self._upkeep.find_share(pack, index)
            if holder is not None and holder != placement[index]:  # whatever members say
                self._upkeep.gather_share(holder, pack, index, rebuild)
        self._recall(pack, placement, wrong, rebuild)
        if self._is_lost(pack, rebuild, wrong.values()):
            return self._renew(pack, placement, wrong)
        self._renewer.take_back(pack)
        repairs = []
        for index, finding in wrong.items():
            cloud = placement[index]
            outcome = self._restore(pack, index, rebuild, writable, move)
            if isinstance(outcome, str):
                repairs.append(Repair(cloud, finding, None, outcome))
            else:
                repairs.append(Repair(cloud, finding, outcome))
        return repairs

    def _recall(
        self, pack: bytes, placement: bytes, wrong: Mapping[int, Finding], rebuild: PackRebuild
    ) -> None:
        """Read into *rebuild* what clouds keep of shares that were deleted or overwritten there."""
        for index, finding in wrong.items():
            if finding.kind != "unreadable" and not rebuild.complete:
                take = partial(rebuild.take, index)
                self._upkeep.recall(placement[index], share_name(pack, index), MAX_SHARE, take)

    def _is_lost(self, pack: bytes, rebuild: PackRebuild, wrong: Collection[Finding]) -> bool:
        """Whether the pack is unreadable even if all clouds that do not answer have what they should."""
        if rebuild.complete or not wrong:
            return False
        with self._fs.state.transaction() as tx:
            found = tx.packs.find(pack)
        refuted = sum(one.kind != "unreadable" for one in wrong)
        return found is not None and found.n - refuted < found.k

    def _renew(self, pack: bytes, before: bytes, wrong: Mapping[int, Finding]) -> list[Repair]:
        """Put lost shares of a pack on the clouds again. Returns what was wrong."""
        self._renewer.set_aside(pack)
        outcome = self._renewer.renew(pack)
        repairs = []
        for index, finding in wrong.items():
            cloud = before[index]
            if isinstance(outcome, str):
                repairs.append(Repair(cloud, finding, None, outcome))
                continue
            self._upkeep.excuse(cloud, share_name(pack, index))
            repairs.append(Repair(cloud, finding, outcome[index] if index < len(outcome) else cloud))
        if isinstance(outcome, bytes) and (now := self._placement(pack)) == outcome:
            for index, cloud in enumerate(now):
                self._upkeep.look_at_share(cloud, pack, index)  # what is wrong again is known at once
        return repairs

    def move(self, pack: bytes, away: int, *, ask: bool, writable: Container[int]) -> str | None:
        """Move the share of a pack from *away* to another cloud. Returns why that failed, None when it is
        done. The share is copied if *away* may be asked and returns the right bytes; otherwise it is rebuilt
        from the others.
        """
        placement = self._placement(pack)
        if placement is None or away not in placement:
            return None
        if is_ending(self._fs, pack):
            return f"pack {pack.hex()[:16]} is about to be deleted: that comes first"
        index = placement.index(away)
        rebuild = PackRebuild(pack, self._tables)
        if not ask or self._upkeep.gather_share(away, pack, index, rebuild) is not None:
            for other, cloud in enumerate(placement):
                if cloud != away and not rebuild.complete:
                    self._upkeep.gather_share(cloud, pack, other, rebuild)
        outcome = self._restore(pack, index, rebuild, writable, move=True)
        return f"pack {pack.hex()[:16]}: {outcome}" if isinstance(outcome, str) else None

    def renumber(self, pack: bytes, before: int, now: int) -> None:
        """Record a share, if it is there, under the cloud number *now* in place of *before*, the number when
        it was put."""
        placement = self._placement(pack)
        if placement is None or before not in placement:
            return
        index = placement.index(before)
        rebuild = PackRebuild(pack, self._tables)
        if self._upkeep.gather_share(now, pack, index, rebuild) is not None:
            self._upkeep.excuse(now, share_name(pack, index))
        elif rebuild.table is not None:
            self._record(rebuild.table, index, before, now)

    def _placement(self, pack: bytes) -> bytes | None:
        with self._fs.state.transaction() as tx:
            found = tx.packs.find(pack)
        return found.placement if found is not None else None

    def _restore(
        self, pack: bytes, index: int, rebuild: PackRebuild, writable: Container[int], move: bool
    ) -> int | str:
        """Where the share is now, or why it could not be restored."""
        try:
            data = rebuild.share(index)
        except IntegrityError as error:
            return str(error)
        placement = self._placement(pack)  # it may have changed: by the last share, or by another device
        if placement is None or index >= len(placement):
            return "no record names the pack any more"
        cloud = placement[index]
        name = share_name(pack, index)
        targets = candidates(self._upkeep, cloud, placement, len(data), writable=writable, move=move)
        outcome = restore(
            self._upkeep,
            name,
            data,
            targets,
            lambda target: self._upkeep.look_at_share(target, pack, index),
        )
        if isinstance(outcome, int) and outcome != cloud:
            table = rebuild.table
            assert table is not None
            if not self._record(table, index, cloud, outcome):
                return "its place has changed during the repair; repair again"
            self._upkeep.excuse(cloud, name)
        return outcome

    def _record(self, table: Table, index: int, before: int, now: int) -> bool:
        """Note that a share has moved; False when its place is not what it was."""
        chunks = [
            PackedChunk(entry.chunk_id, entry.offset, entry.sealed_length, entry.length)
            for entry in table.entries
        ]
        key = pack_key(table.pack_id)
        fs = self._fs
        with fs.state.transaction() as tx:
            placement = bytearray(self._placement(table.pack_id) or b"")
            if index >= len(placement) or placement[index] != before or now in placement:
                return False
            if is_ending(fs, table.pack_id):
                return False
            placement[index] = now
            if bans_place(tx, table.pack_id, placement):
                return False
            value = PackRecord(table.k, table.n, bytes(placement), chunks).encode()
            fs.changes.mark(key, 0)
            stamp = self._signer.sign(tx, [(key, value)], 0)
            tx.packs.move(table.pack_id, bytes(placement), stamp)
            fs.changes.signed(tx, {key: fs.changes.seq}, stamp.clock)
        log.info("share %d of pack %s is on cloud %d now", index, table.pack_id.hex()[:16], now)
        self._signals.packed()
        return True


# -- writing packs again that the clouds have lost, from what the devices hold --------------------------
# Equal chunks in equal order make equal packs, so a pack of which everything is here comes back under its own
# name, and other devices need to know its place only. Of other packs, the chunks that can be had are packed
# again, and one signed update says so, as when f or k change.


_SHOWN: Final = 16  # digits of a pack's id


class PackRenewer(Packing):
    """Knows the packs that the clouds have lost, and puts their chunks on the clouds again. Thread-safe."""

    def lost(self) -> list[bytes]:
        """The ids of packs that the clouds have lost and that hold chunks in no other pack."""
        with self._fs.state.transaction() as tx:
            return list(lost_packs(tx).values())

    def set_aside(self, pack: bytes) -> None:
        """The clouds have lost a pack: from now on none of its chunks here may be evicted."""
        number = self._number(pack)
        with self._fs.state.transaction() as tx:
            before = lost_packs(tx)
            tx.chunks.set_aside(number, but=before)
            known = number in before or number not in lost_packs(tx)
        if not known:
            log.warning("the clouds have lost pack %s", pack.hex()[:_SHOWN])

    def take_back(self, pack: bytes) -> None:
        """The clouds have a pack again; does nothing for a pack that was not set aside."""
        number = self._number(pack)
        with self._fs.state.transaction() as tx:
            tx.chunks.take_back(number)
        self._wanted(number)

    def renew(self, pack: bytes) -> bytes | str:
        """Put the chunks of a lost pack on the clouds again. Returns the new placement (of several new packs:
        the first), or why some chunks are still on no cloud."""
        if is_ending(self._fs, pack):
            return "the pack is about to be deleted"
        if not self._fs.is_full:
            return "only a full member can store again what was lost, and this machine is none"
        number = self._number(pack)
        wanted = self._wanted(number)
        if not wanted:
            return b""  # another device has put it there
        if any(not ref.is_here for ref in wanted):
            self._fetcher.fetch_from_devices([ref for ref in wanted if not ref.is_here])
        chunks = self._read(number)
        if not chunks:
            return f"{_too_little(pack)}, and no machine that is linked has any of it"
        try:
            placed = [(one, self._maker.disperse(one)) for one in self._maker.encode(self._fs, chunks)]
        except CloudsUnavailable as error:
            return str(error)
        if not self._record(pack, chunks, placed):
            return "the packs that were to replace it were deleted during the repair; repair again"
        left = self._wanted(number)
        if left:
            here = f"{len(left)} of {len(wanted)} pieces are neither here nor on a machine that is linked"
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

    def _record(
        self,
        former: bytes,
        chunks: Sequence[tuple[ChunkRef, bytes]],
        placed: Sequence[tuple[EncodedPack, bytes]],
    ) -> bool:
        numbers = {ref.id: ref.number for ref, _ in chunks if ref.is_elsewhere}
        into = tuple(pack.pack_id for pack, _ in placed)
        more = [(rewritten_key(former), Rewritten(into).encode())] if into != (former,) else []
        place = place_chunks(self._fs, numbers)
        if not record_packs(self._fs, self._signer, placed, place, more):
            return False
        log.info("pack %s, which the clouds had lost, was stored again", former.hex()[:_SHOWN])
        self._signals.packed()
        return True


def _too_little(pack: bytes) -> str:
    return f"too little of pack {pack.hex()[:_SHOWN]} is left to rebuild a share"
