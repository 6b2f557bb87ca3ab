"""Repair of packs: what a cloud has lost or altered of them is rebuilt from the other shares.

What is looked at, and when, is in docs/internals/placement.md.

A rebuilt share is put back where it was, or on a cloud that has none of the pack when that one cannot take
it. It is read back before it counts: a cloud that has lost it once is not believed. Only then is the new
place recorded, in the view and as a signed update of the pack's register, so that a crash at any point costs
a repair that is done again, and the other devices look for the share where it is.

When so much of a pack is missing or wrong that nothing can be rebuilt, older versions of its shares are read
where clouds keep them (`dispersal.recall`). When there are none, the chunks of it that this device and linked
ones hold are put there again (`clouds.renew`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Container, Mapping
from functools import partial

from hybrisfs.clouds.renew import PackRenewer
from hybrisfs.dispersal.errors import IntegrityError
from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.rebuild import PackRebuild
from hybrisfs.dispersal.restoring import Repair, candidates, restore
from hybrisfs.dispersal.share import MAX_SHARE, Table, TableSealer, share_name
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.members.banned import bans_place
from hybrisfs.merge.signing import Signer
from hybrisfs.registers.tree import PackedChunk, PackRecord, pack_key
from hybrisfs.signals import Signals
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.place import is_ending

__all__ = ["PackMender"]

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
        """Verify every share of a pack and rebuild what is wrong; what was wrong.

        Nothing is written to clouds but *writable* ones. With *move* a share goes to another cloud when its
        own cannot take it. Only a full member moves shares: the others would not believe another device.
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

    def lost(self) -> list[bytes]:
        """The packs that the clouds have lost and that have yet to be written again."""
        return self._renewer.lost()

    def set_aside(self, pack: bytes) -> None:
        """See `PackRenewer.set_aside`."""
        self._renewer.set_aside(pack)

    def _recall(
        self, pack: bytes, placement: bytes, wrong: Mapping[int, Finding], rebuild: PackRebuild
    ) -> None:
        """Read into *rebuild* what clouds keep of shares that were deleted or overwritten there."""
        for index, finding in wrong.items():
            if finding.kind != "unreadable" and not rebuild.complete:
                take = partial(rebuild.take, index)
                self._upkeep.recall(placement[index], share_name(pack, index), MAX_SHARE, take)

    def _is_lost(self, pack: bytes, rebuild: PackRebuild, wrong: Collection[Finding]) -> bool:
        """Whether the pack could not be read even if all clouds that do not answer had what they should."""
        if rebuild.complete or not wrong:
            return False
        with self._fs.state.transaction() as tx:
            found = tx.packs.find(pack)
        refuted = sum(one.kind != "unreadable" for one in wrong)
        return found is not None and found.n - refuted < found.k

    def _renew(self, pack: bytes, before: bytes, wrong: Mapping[int, Finding]) -> list[Repair]:
        """Put what the clouds have lost of a pack there again; what was wrong."""
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
        """Have another cloud hold the share that *away* has of a pack; why that failed, None when it is done.

        It is copied if *away* may be asked and returns what was written, and rebuilt from the others if not.
        """
        placement = self._placement(pack)
        if placement is None or away not in placement:
            return None
        if is_ending(self._fs, pack):
            return f"pack {pack.hex()[:16]} is about to be discarded: that comes first"
        index = placement.index(away)
        rebuild = PackRebuild(pack, self._tables)
        if not ask or self._upkeep.gather_share(away, pack, index, rebuild) is not None:
            for other, cloud in enumerate(placement):
                if cloud != away and not rebuild.complete:
                    self._upkeep.gather_share(cloud, pack, other, rebuild)
        outcome = self._restore(pack, index, rebuild, writable, move=True)
        return f"pack {pack.hex()[:16]}: {outcome}" if isinstance(outcome, str) else None

    def renumber(self, pack: bytes, before: int, now: int) -> None:
        """The cloud *now* was called *before* when a share was put there: say so, if it is there."""
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
            return "the pack is not on record any more"
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
                return "its place has changed meanwhile; repair again"
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
