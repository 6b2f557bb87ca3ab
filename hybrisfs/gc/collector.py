"""Garbage collection, in the background at a slow pace, and when a person asks for it."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct, field

from hybrisfs.dispersal.errors import ChunkUnavailable, CloudsUnavailable
from hybrisfs.dispersal.pack import ERASURE_THRESHOLD
from hybrisfs.errors import HybrisError
from hybrisfs.gc.archive import Archive, ArchivePlan
from hybrisfs.gc.disposal import Disposer, Orphans, Trust, Unnamed
from hybrisfs.gc.find import Candidate, Found, Pages, find_candidates, remember
from hybrisfs.gc.limits import GcLimits
from hybrisfs.gc.participant import Participant
from hybrisfs.gc.rewrite import HOT, NeededOrphans, Rewriter, Target
from hybrisfs.parts import Ground, Writing
from hybrisfs.read.fetch import Fetcher
from hybrisfs.registers.proposals import MAX_PACKS, Stray
from hybrisfs.stages import Pause
from hybrisfs.tree.residency import Unplaced
from hybrisfs.versions.thinning import Thinner

__all__ = ["Collection", "Collector"]

log = logging.getLogger(__name__)

_HELD: Final = "transfers with the clouds are paused"
Step = Callable[[str, int, int], None]


class Collection(Struct):
    """What was found and done, for people. Sizes are bytes on all clouds together, roughly."""

    found: Counter[str] = field(default_factory=Counter)
    """How many "empty", "sparse" and "young" packs there are, and under "NAME bytes" the bytes that they
    waste."""
    unnamed: Counter[str] = field(default_factory=Counter)
    """How many "orphans" (packs), "strays", "leftovers" and "young" ones (shares) there are that no register
    names."""
    rewritten: int = 0
    proposed: int = 0
    deleted_packs: int = 0
    deleted_bytes: int = 0
    due_packs: int = 0
    """Packs that are to be deleted as soon as their clouds can be reached."""
    due_bytes: int = 0
    undeletable: int = 0
    """Objects of these that wait for another device, because the cloud refused to delete them for this
    one."""
    waiting: list[dict[str, Any]] = field(default_factory=list)
    trouble: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The facts that `hybrisfs gc --json` prints."""
        kinds = ("empty", "sparse", "young")
        return {
            **{kind: {"packs": self.found[kind], "bytes": self.found[f"{kind} bytes"]} for kind in kinds},
            "unnamed": {kind: self.unnamed[kind] for kind in ("orphans", "strays", "leftovers", "young")},
            "rewritten": self.rewritten,
            "proposed": self.proposed,
            "deleted": {"packs": self.deleted_packs, "bytes": self.deleted_bytes},
            "due": {"packs": self.due_packs, "bytes": self.due_bytes},
            "undeletable": self.undeletable,
            "waiting_for": self.waiting,
            "trouble": self.trouble or None,
        }


class Collector:
    """One look or step at a time, from any thread."""

    def __init__(
        self,
        ground: Ground,
        fetcher: Fetcher,
        writing: Writing,
        thinner: Thinner,
        trust: Trust,
        archive: Archive,
    ) -> None:
        self._archive = archive
        self._to_archive = deque[Candidate]()
        fs, signals, clouds = ground.fs, ground.signals, writing.clouds
        self._fs = fs
        self._following = writing.following
        self._sharing = sharing = ground.sharing
        self._writing = writing
        self._fetcher = fetcher
        self._thinner = thinner
        upkeep = clouds.engine.upkeep
        self._pages = Pages(fs, fetcher)
        self._rewriter = Rewriter(fs, sharing.signer, signals, clouds.packs, fetcher)
        self._orphans = Orphans(fs, upkeep, trust)
        self._needed = NeededOrphans(fs, upkeep, clouds.engine, signals)
        self._disposer = Disposer(fs, upkeep, trust)
        self._participant = Participant(
            fs,
            sharing.signer,
            signals,
            ground.committer,
            fetcher,
            self._orphans,
            self._needed,
            clouds.engine,
        )
        self._limits = fs.environment.limits.of(GcLimits)
        self._monotonic = fs.environment.monotonic
        self._time_ns = fs.environment.time_ns
        self._committer = ground.committer
        self._signals = signals
        self._grace_ns = int(ground.config.discard_hours * 3600e9)
        self._busy = threading.Lock()
        self._listed = float("-inf")
        self._look_due = self._monotonic() + self._limits.first_look
        self._dispose_due = 0.0
        self._unplaced = Unplaced(fs)
        self._unproven_due = 0.0

    @property
    def first(self) -> Pause:
        """How long it is until the first step."""
        return Pause(self._limits.step_seconds)

    def step(self) -> Pause:
        """Continue with proposals under way, and look for more packs when that is due."""
        collection = Collection()
        with self._busy:
            try:
                self._advance()
                self._bring_lacking()
                self._look_for_unproven()
                self._archive_some()
                if self._monotonic() >= self._look_due and not self._signals.transfers_paused:
                    self._look_due = self._monotonic() + self._limits.look_seconds
                    self._look(collection, self._pause, self._is_listing_due())
                if self._monotonic() >= self._dispose_due and not self._signals.transfers_paused:
                    self._dispose(collection)
                    left = self._disposer.clouds()
                    self._dispose_due = self._monotonic() + (self._limits.later_seconds if left else 0.0)
            except (ChunkUnavailable, CloudsUnavailable, OSError) as error:
                log.info("what nobody needs stays for now: %s", error)
                return Pause(self._limits.later_seconds)
        return Pause(0.0 if self._to_archive else self._limits.step_seconds)

    def collect(self, step: Step, *, dry_run: bool) -> Collection:
        """Look now for packs that nothing needs, and do all that can be done; with *dry_run*, only look.
        Raises HybrisError while another call runs.
        """
        if not self._busy.acquire(timeout=1.0):
            raise HybrisError("unneeded packs are being looked for already", "", "Try again in a while.")
        collection = Collection()
        try:
            if dry_run:
                self._count(collection, self._find(self._go_on))
                self._find_unnamed(collection, self._go_on)
            else:
                self._disposer.look_again()
                self._collect(collection, step)
        except (ChunkUnavailable, CloudsUnavailable, OSError) as error:
            collection.trouble = str(error)
        finally:
            self._busy.release()
        self._tell(collection)
        return collection

    def _go_on(self) -> bool:
        return not self._signals.stopping

    def _pause(self) -> bool:
        """Give way to others, in the background."""
        return self._signals.pause(self._limits.pause)

    def _collect(self, collection: Collection, step: Step) -> None:
        stages = ("agreeing", "looking", "deleting")
        step(stages[0], 0, len(stages))
        self._advance()
        step(stages[1], 1, len(stages))
        self._look(collection, self._go_on, not self._signals.transfers_paused)
        step(stages[2], 2, len(stages))
        if self._signals.transfers_paused:
            collection.trouble = _HELD
        elif self._due()[0]:
            self._writing.uploads.wait(self._limits.shipped_within, lambda done, total: None)
            self._dispose(collection)
        while self._to_archive and self._go_on():
            self._archive_some()
        step(stages[2], 3, len(stages))

    def _find(self, pause: Callable[[], bool]) -> Found:
        """Lists of chunks that have not been read yet are fetched only when there is something to find."""
        found = self._scan(pause)
        if found and self._pages.list_files():
            found = self._scan(pause)
        if found.claimed and not self._signals.transfers_paused:
            self._fetcher.prove(found.claimed)
            found = self._scan(pause)
        return found

    def _scan(self, pause: Callable[[], bool]) -> Found:
        self._committer.commit_now()
        with self._fs.state.snapshot() as snapshot:
            return find_candidates(
                snapshot,
                self._sharing.device,
                self._pages,
                self._time_ns(),
                self._grace_ns,
                pause,
                self._limits,
                self._archive.plan(),
            )

    def undeletable(self) -> dict[int, int]:
        """How many objects on each cloud wait for a device that may delete there; this one may not."""
        return self._disposer.waiting()

    def count_unnamed(self) -> int:
        """How many packs and single shares on the clouds no register names; changes nothing."""
        look, _ = self._orphans.look(self._committer.commit_now, self._time_ns(), 0, self._go_on)
        return look.count

    def _look_for_unproven(self) -> None:
        """Find chunks that have reached the clouds, so that they are not called unsafe until the next look
        through packs."""
        if self._monotonic() < self._unproven_due or self._signals.transfers_paused:
            return
        with self._fs.state.transaction() as tx:
            unproven = self._unplaced.unproven(tx)
        self._fetcher.prove(unproven)
        self._unproven_due = self._monotonic() + self._limits.unproven_seconds

    def _bring_lacking(self) -> None:
        if not self._writing.relayer.is_lacking:
            self._needed.rest()
        elif not self._signals.transfers_paused:
            self._needed.look_again(self._unnamed_packs, self._monotonic())

    def _unnamed_packs(self) -> dict[bytes, list[tuple[int, int]]]:
        """The packs that no register names, however new they are, and the clouds that list shares of them."""
        found, sightings = self._orphans.look(self._committer.commit_now, self._time_ns(), 0, self._go_on)
        places: dict[bytes, list[tuple[int, int]]] = {pack: [] for pack in found.orphans}
        for seen in sightings:
            if seen.pack in places:
                places[seen.pack].append((seen.cloud, seen.share))
        return places

    def _is_listing_due(self) -> bool:
        """Whether to list the clouds now. One device lists them daily for all. The others list them now and
        then, so that one of them can delete what the first may not.
        """
        with self._fs.state.transaction() as tx:
            lowest = self._participant.assembly(tx).is_lowest
        every = self._limits.list_seconds if lowest else self._limits.others_list_seconds
        if self._monotonic() - self._listed < every:
            return False
        self._listed = self._monotonic()
        return True

    def _find_unnamed(self, collection: Collection, pause: Callable[[], bool]) -> Unnamed:
        orphans = self._orphans
        now = self._time_ns()
        found, sightings = orphans.look(self._committer.commit_now, now, self._grace_ns, pause)
        with self._fs.state.transaction() as tx:
            orphans.remember(tx, sightings)
        collection.unnamed.update(
            orphans=len(found.orphans),
            strays=len(found.strays),
            leftovers=len(found.leftovers),
            young=found.young,
        )
        return found

    def _look(self, collection: Collection, pause: Callable[[], bool], listing: bool) -> None:
        self._committer.commit_now()
        self._thinner.thin(self._time_ns())
        found = self._find(pause)
        self._count(collection, found)
        if not self._may_propose():
            return
        with self._fs.state.transaction() as tx:
            remember(tx, found, self._time_ns())
        empty = list(found.empty)
        plan = self._archive.plan()
        if not self._signals.transfers_paused:
            for some, target in self._targets(found.sparse, plan):
                done = self._rewriter.rewrite(some, self._limits.rewritten_bytes, target)
                collection.rewritten += done
                empty += some[:done]
            self._rewriter.rewrite(found.used_again, self._limits.rewritten_bytes)
        self._to_archive = deque(found.rested)
        packs = [one.pack for one in empty]
        orphans, strays = self._unnamed(collection, pause) if listing else ([], [])
        while packs or orphans or strays:
            room = MAX_PACKS - len(orphans) - len(strays)
            proposed = self._participant.propose(packs[:room], orphans, strays)
            if not proposed:
                return
            collection.proposed += proposed
            packs, orphans, strays = packs[room:], [], []
            self._advance()  # a device that is alone can go on with the rest

    @staticmethod
    def _targets(
        sparse: Sequence[Candidate], plan: ArchivePlan | None
    ) -> Iterator[tuple[list[Candidate], Target]]:
        """How to pack these again: what is archived stays so."""
        archived = [one for one in sparse if plan is not None and plan.is_archived(one.k)]
        if archived and plan is not None:
            yield archived, Target(plan.code, plan.clouds, 0)
        if hot := [one for one in sparse if one not in archived]:
            yield hot, HOT

    def _archive_some(self) -> None:
        """Archive some of what has rested. What is too little for a pack waits for more; what cannot be
        archived now, for the next look."""
        if not self._to_archive:
            return
        plan, clouds = self._archive.plan(), self._writing.clouds
        # A pack that cannot be put as a whole would be put in vain.
        can_put = plan is not None and clouds.can_take(plan.clouds, sum(plan.code))
        if plan is None or not can_put or self._signals.transfers_paused or not self._may_propose():
            self._to_archive.clear()
            return
        some, size = list[Candidate](), 0
        while self._to_archive and size < self._limits.archived_bytes:
            some.append(self._to_archive.popleft())
            size += some[-1].needed.live
        done = self._rewriter.rewrite(some, size, Target(plan.code, plan.clouds, ERASURE_THRESHOLD))
        if done and self._to_archive:
            self._to_archive.extendleft(reversed(some[done:]))

    def _unnamed(self, collection: Collection, pause: Callable[[], bool]) -> tuple[list[bytes], list[Stray]]:
        """The orphaned packs and strays to propose. Leftovers of packs that ended long ago are deleted."""
        found = self._find_unnamed(collection, pause)
        with self._fs.state.transaction() as tx:
            self._orphans.dispose_leftovers(tx, found.leftovers)
        return self._orphans.proven(found, MAX_PACKS // 2)

    def _advance(self) -> None:
        """Answer proposals, and end what all have agreed on. A crash must not take back what is signed, so it
        is committed."""
        while self._go_on() and self._participant.step():
            self._committer.commit_now()

    def _may_propose(self) -> bool:
        with self._fs.state.transaction() as tx:
            return self._go_on() and self._participant.assembly(tx).may_propose

    def _dispose(self, collection: Collection) -> None:
        before, _ = self._due()
        collection.deleted_bytes += self._disposer.run(self._go_on)
        collection.deleted_packs += before - self._due()[0]

    def _due(self) -> tuple[int, int]:
        """How many packs are to be deleted from some cloud, and how many bytes that frees, roughly."""
        with self._fs.state.transaction() as tx:
            return tx.disposals.total()

    def _count(self, collection: Collection, found: Found) -> None:
        kinds: dict[str, list[Candidate]] = {
            "empty": found.empty,
            "sparse": found.sparse,
            "young": found.young,
        }
        for kind, packs in kinds.items():
            collection.found[kind] = len(packs)
            with self._fs.state.transaction() as tx:
                for one in packs:
                    pack = tx.packs.numbered(one.pack)
                    if pack is not None:
                        collection.found[f"{kind} bytes"] += one.needed.dead * pack.n // pack.k

    def awaited(self) -> dict[bytes, float]:
        """The other devices that have yet to agree to a proposal, and since when it waits for them, in
        seconds since the epoch."""
        with self._fs.state.transaction() as tx:
            return {
                device: min(tx.updates.moment_of(one.branch, one.clock) for one in stamps) / 1e9
                for device, stamps in self._participant.assembly(tx).awaited().items()
            }

    def _tell(self, collection: Collection) -> None:
        """Add what is to be waited for."""
        collection.due_packs, collection.due_bytes = self._due()
        collection.undeletable = sum(self.undeletable().values())
        known = {bytes.fromhex(one.id): one for one in self._following.devices()}
        for device, since in sorted(self.awaited().items()):
            one = known.get(device)
            name, seen = (device.hex()[:8], None) if one is None else (one.name, one.seen)
            collection.waiting.append({"device": name, "last_seen": seen, "since": since})
