"""Changing f and k of a volume: what was written with other values is rewritten in the background.

The device that changed them does that, and each device for the packs that are its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from hybrisfs.bounded import in_parallel
from hybrisfs.clouds.segment_repair import SegmentMender
from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.errors import ChunkUnavailable, CloudsUnavailable
from hybrisfs.dispersal.pack import ERASURE_THRESHOLD, EncodedPack, Redundancy
from hybrisfs.errors import HybrisError
from hybrisfs.gc.archive import Archive
from hybrisfs.kv.mend import ValueMender
from hybrisfs.kv.opening import KeyValues
from hybrisfs.kv.record import KeyMetadata
from hybrisfs.kv.store import KeyValueStore
from hybrisfs.merge.signing import Signer
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.tree import PackedChunk, Rewritten, rewritten_key
from hybrisfs.stages import Signals
from hybrisfs.state.packs import Pack, PackTable, chunks_of_pack
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.write.pack import Packing, PackMaker, is_ending, record_packs

__all__ = ["Recoder", "Rewriting", "RewritingState", "ValueKeeping"]

log = logging.getLogger(__name__)


class RewritingState(Struct, frozen=True):
    """How many packs or values are rewritten, of how many, and what keeps the rest back."""

    done: int
    total: int
    trouble: str


class Rewriting:
    """The background job; its state may be read from any thread."""

    def __init__(
        self, fs: FileSystem, recoder: Recoder, segments: SegmentMender, engine: Engine, archive: Archive
    ) -> None:
        self._archive = archive
        self._segments = segments
        self._engine = engine
        self._fs = fs
        self._recoder = recoder
        self._clean: tuple[Redundancy, int, int] | None = None
        """The code, the newest pack, and the most shares of an archived one, for which all was well."""
        self.state: RewritingState | None = None

    def run(
        self,
        code: Redundancy,
        own: Collection[bytes],
        go_on: Callable[[], bool],
        *,
        everything: bool,
        leaving: Collection[int] = (),
    ) -> bool:
        """Rewrite the packs that do not have *code*, the present one, and are not archived either: those of
        the *own* branches first, then, with *everything*, those of others, or else those that have a share on
        a cloud that is *leaving*. True when nothing is left; stops when *go_on* is false.
        """
        with self._fs.state.transaction() as tx:
            newest = tx.packs.newest()
        clean = code, newest, self._archive.widest()
        # What was on its way when f or k changed is recorded with the copies that it was to have before.
        trouble = self._spread_log(code, go_on)
        if trouble is not None:
            self.state = RewritingState(0, 1, trouble)
            return False
        if self._clean == clean:
            self.state = None
            return True
        outdated = self._outdated(code)
        todo = [one for one in outdated if one.branch in own]
        others = [one for one in outdated if one.branch not in own]
        todo += [one for one in others if everything or not set(leaving).isdisjoint(one.placement)]
        troubles: list[str] = []
        for done, former in enumerate(todo):
            self.state = RewritingState(done, len(todo), troubles[0] if troubles else "")
            if not go_on():
                return False
            trouble = self._recoder.rewrite(former)
            if trouble is not None:
                troubles.append(trouble)
                log.warning("pack %s is not rewritten: %s", former.id.hex()[:16], trouble)
        if troubles:
            self.state = RewritingState(len(todo) - len(troubles), len(todo), troubles[0])
            return False
        self.state = None
        if not todo:
            self._clean = clean
        return not todo or self.run(code, own, go_on, everything=everything, leaving=leaving)

    def is_done(self, code: Redundancy) -> bool:
        """Whether all packs that this device has looked at have *code*."""
        return self.state is None and self._clean is not None and self._clean[0] == code

    def _spread_log(self, code: Redundancy, go_on: Callable[[], bool]) -> str | None:
        """Put more copies of own log segments on the clouds where there are too few. Returns what went
        wrong."""
        troubles = [
            self._segments.spread(name, code.f + code.k, writable=self._engine.in_use)
            for name in self._segments.short_of(code.f + code.k)
            if go_on()
        ]
        return next((one for one in troubles if one is not None), None)

    def _outdated(self, code: Redundancy) -> list[Pack]:
        """All chunks are gone over: without the volume's lock."""
        with self._fs.committed(lambda tx: None) as (_, database):
            return PackTable(database).coded_otherwise(
                code.f, code.k, ERASURE_THRESHOLD, self._archive.widest()
            )


# -- rewriting packs with another code, when f or k of the volume have changed --------------------------
# The packs in the database say what is to be done, so it goes on after a crash where it was. The chunks of a
# pack are read, verified, packed and dispersed again. One signed update then says where they are now and that
# the former pack was rewritten, so that all devices read the new ones. The former shares are not needed then;
# they stay where they are, because a device that lacks the update may be reading them.


class Recoder(Packing):
    """Rewrites packs, one after the other. What is archived stays so if it can."""

    def __init__(
        self,
        fs: FileSystem,
        signer: Signer,
        signals: Signals,
        maker: PackMaker,
        fetcher: Fetcher,
        archive: Archive,
    ) -> None:
        super().__init__(fs, signer, signals, maker, fetcher)
        self._archive = archive

    def rewrite(self, former: Pack) -> str | None:
        """Pack the chunks of a pack again; why that failed, None when it is done."""
        if is_ending(self._fs, former.id):
            return f"pack {former.id.hex()[:16]} is about to be deleted: that comes first"
        plan = self._archive.plan()
        stays = plan is not None and plan.is_archived(former.k)
        code, clouds = (plan.code, plan.clouds) if plan is not None and stays else (None, None)
        try:
            with self._fs.state.transaction() as tx:
                refs = chunks_of_pack(tx, former.number)
            chunks = zip(refs, self._fetcher.peek(refs), strict=True)
            packs = self._maker.encode(self._fs, chunks, code)
            placed = [(pack, self._maker.disperse(pack, among=clouds)) for pack in packs]
        except (ChunkUnavailable, CloudsUnavailable) as error:
            return str(error)
        if placed and not self._record(former, placed):
            return f"pack {former.id.hex()[:16]}: what was to replace it was deleted before it was recorded"
        return None

    def _record(self, former: Pack, placed: Sequence[tuple[EncodedPack, bytes]]) -> bool:

        def place(tx: Transaction, number: int, packed: Sequence[PackedChunk]) -> None:
            for chunk in packed:
                tx.chunks.repacked(chunk.id, former.number, number, chunk.offset, chunk.sealed)

        into = Rewritten(tuple(pack.pack_id for pack, _ in placed))
        rewritten = rewritten_key(former.id), into.encode()
        if not record_packs(self._fs, self._signer, placed, place, [rewritten]):
            return False
        log.info("pack %s was rewritten as %d", former.id.hex()[:16], len(placed))
        self._signals.packed()
        return True


# -- values of the key-value store leave clouds that are to go ------------------------------------------
# Each device does that for its own store. What is to be done follows from the metadata, so that it goes on
# after a kill. Writes that began before a cloud was closed to writes, or before f and k changed, may still
# end as they began: nothing counts as done before they have ended and all was looked at once more.


_WORKERS: Final = 6
_BEING_WRITTEN: Final = "values of the key-value store are still being written there"


class ValueKeeping:
    """The background job of one volume; used by one thread, but for `state` and `is_done`."""

    def __init__(self, key_values: KeyValues) -> None:
        self._key_values = key_values
        # By store: the writes that were under way when a cloud was closed to writes, and when f and k became
        # what they are.
        self._before: dict[tuple[bytes, int], frozenset[int]] = {}
        self._code: dict[bytes, tuple[Redundancy, frozenset[int]]] = {}
        self._clean: Redundancy | None = None
        self.state: RewritingState | None = None

    def move(self, cloud: int, go_on: Callable[[], bool]) -> list[str]:
        """Rewrite the values on a cloud that gets nothing new. Returns what could not be rewritten, in
        sentences."""
        troubles: list[str] = []
        try:
            for store, mender in self._key_values.menders(used=False):
                self._were_under_way(store, cloud)
                # Other devices may have put something into a shared store since its values were counted.
                if store.metadata.is_shared or store.metadata.held(cloud):
                    self._rewrite(store, mender, lambda entry: cloud in entry.placement, go_on, troubles)
        except HybrisError as error:
            troubles.append(str(error))
        return troubles

    def _were_under_way(self, store: KeyValueStore, cloud: int) -> frozenset[int]:
        return self._before.setdefault((store.metadata.store_id, cloud), store.collector.under_way())

    def trouble_at(self, cloud: int, *, is_lost: bool) -> str | None:
        """Why a value may still be placed there; None when none can. What keeps its keys on a cloud that
        *is_lost* does without it."""
        try:
            keeping = [] if is_lost else self._key_values.on_clouds.keeping(cloud)
            if keeping:
                return (
                    f"containers keep their keys there: {', '.join(keeping)}; kv migrate takes them elsewhere"
                )
            stores = [store for store, _ in self._key_values.menders(used=False)]
        except (HybrisError, CloudsUnavailable) as error:
            return str(error)
        if any(self._were_under_way(one, cloud) & one.collector.under_way() for one in stores):
            return _BEING_WRITTEN
        return None

    def clear(self, cloud: int) -> str | None:
        """Delete what no key names any more. Returns why that failed, None when it is done or when this
        device may not delete, so that it stays."""
        try:
            for store, _ in self._key_values.menders(used=False):
                store.collector.collect()
                if cloud in store.metadata.owing() and not self._key_values.refuses_deletion(cloud):
                    return "it has not deleted the values that are elsewhere now"
        except HybrisError as error:
            return str(error)
        return None

    def rewrite(self, code: Redundancy, go_on: Callable[[], bool]) -> bool:
        """Rewrite the values that are not stored with *code*, as new ones are; False when some are left."""
        if self._clean == code:
            return True
        self.state = None
        try:
            for store, mender in self._key_values.menders():
                self.state = self._rewrite_outdated(store, mender, code, go_on) or self.state
        except HybrisError as error:
            self.state = RewritingState(0, 1, str(error))
        if self.state is None:
            self._clean = code
        return self.state is None

    def _rewrite_outdated(
        self, store: KeyValueStore, mender: ValueMender, code: Redundancy, go_on: Callable[[], bool]
    ) -> RewritingState | None:
        """How far it came; None when nothing was left."""
        identity = store.metadata.store_id
        if identity not in self._code or self._code[identity][0] != code:
            self._code[identity] = code, store.collector.under_way()
        waiting = bool(self._code[identity][1] & store.collector.under_way())
        outdated = store.uploader.is_outdated
        total = sum(one.entry is not None and outdated(one.entry) for one in store.metadata.values())
        if not total and not waiting:
            return None
        self.state = RewritingState(0, total, "")
        troubles: list[str] = []

        def note(done: int) -> None:
            self.state = RewritingState(done, total, troubles[0] if troubles else "")

        self._rewrite(store, mender, outdated, go_on, troubles, note)
        if troubles or waiting or not go_on():
            return self.state
        return self._rewrite_outdated(store, mender, code, go_on)

    @staticmethod
    def _rewrite(
        store: KeyValueStore,
        mender: ValueMender,
        misplaced: Callable[[KeyMetadata], bool],
        go_on: Callable[[], bool],
        troubles: list[str],
        note: Callable[[int], None] = lambda done: None,
    ) -> None:
        """Rewrite all values that are *misplaced*; *troubles* gets what went wrong, *note* how far it
        is."""
        jobs = (
            partial(mender.rewrite, one.place, misplaced)
            for one in store.metadata.values()
            if one.entry is not None and misplaced(one.entry)
        )
        for done, trouble in enumerate(in_parallel(jobs, _WORKERS, "values"), 1):
            troubles += [trouble] if trouble is not None else []
            note(done - len(troubles))
            if not go_on():
                return

    def is_done(self, code: Redundancy) -> bool:
        """Whether all values are stored with *code*, as far as this device has looked."""
        return self.state is None and self._clean == code
