"""Discarding what nobody needs, in the background at a slow pace, and when somebody asks."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hybrisfs.dispersal.errors import ChunkUnavailable, CloudsUnavailable
from hybrisfs.errors import HybrisError
from hybrisfs.gc.assembly import Assembly
from hybrisfs.gc.dispose import Disposer
from hybrisfs.gc.find import Found, Idle, find_idle, remember
from hybrisfs.gc.limits import GcLimits
from hybrisfs.gc.needed import NeededOrphans
from hybrisfs.gc.orphans import Orphans, Unnamed
from hybrisfs.gc.pages import Pages
from hybrisfs.gc.propose import Proposer
from hybrisfs.gc.rewrite import Rewriter
from hybrisfs.gc.vote import Voter
from hybrisfs.registers.ballots import MAX_PACKS, Stray
from hybrisfs.signals import Pause, Signals
from hybrisfs.tree.commit import Committer
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.unplaced import Unplaced
from hybrisfs.versions.thinning import Thinner

__all__ = ["Collection", "Collector", "Parts"]

log = logging.getLogger(__name__)

_HELD: Final = "transfers with the clouds are paused"
Step = Callable[[str, int, int], None]


@dataclass(slots=True)
class Collection:
    """What was found and done, for people. Sizes are bytes on all clouds together, roughly."""

    found: Counter[str] = field(default_factory=Counter)
    """Of "empty", "sparse" and "young" packs: how many, and under "NAME bytes" what they take in vain."""
    unnamed: Counter[str] = field(default_factory=Counter)
    """Of "orphans" (packs), "strays", "leftovers" and "young" ones (shares): how many no register names."""
    rewritten: int = 0
    proposed: int = 0
    deleted_packs: int = 0
    deleted_bytes: int = 0
    due_packs: int = 0
    """Packs that are to be deleted as soon as their clouds can be reached."""
    due_bytes: int = 0
    undeletable: int = 0
    """Objects of these that wait for a device that may delete; this one was refused."""
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


@dataclass(frozen=True, slots=True)
class Parts:
    """The workers of a collector."""

    assembly: Assembly
    pages: Pages
    voter: Voter
    proposer: Proposer
    rewriter: Rewriter
    disposer: Disposer
    orphans: Orphans
    needed: NeededOrphans
    thinner: Thinner
    settle: Callable[[Iterable[int]], None]
    """See `Fetcher.settle`."""


class Collector:
    """One look or step at a time, from any thread. *grace*: seconds for which nothing must have been needed.

    *flush* brings to the clouds what is signed, within some seconds; *names* tells what devices are called
    and when they were seen last, *is_lacking* whether something is shown here whose bytes nobody is expected
    to bring. *moment_of*: see `UpdateLog.moment_of`.
    """

    def __init__(
        self,
        fs: FileSystem,
        committer: Committer,
        signals: Signals,
        parts: Parts,
        grace: float,
        flush: Callable[[float], object],
        names: Callable[[], Mapping[bytes, tuple[str, float | None]]],
        is_lacking: Callable[[], bool],
        moment_of: Callable[[bytes, int], int],
    ) -> None:
        self._is_lacking = is_lacking
        self._fs = fs
        self._limits = fs.environment.limits.of(GcLimits)
        self._monotonic = fs.environment.monotonic
        self._time_ns = fs.environment.time_ns
        self._committer = committer
        self._signals = signals
        self._parts = parts
        self._grace_ns = int(grace * 1e9)
        self._flush = flush
        self._names = names
        self._moment_of = moment_of
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
        """Go on with what is to be discarded, and look for more when that is due."""
        collection = Collection()
        with self._busy:
            try:
                self._advance()
                self._bring_lacking()
                self._look_for_unproven()
                if self._monotonic() >= self._look_due and not self._signals.held:
                    self._look_due = self._monotonic() + self._limits.look_seconds
                    self._look(collection, self._pause, self._is_listing_due())
                if self._monotonic() >= self._dispose_due and not self._signals.held:
                    self._dispose(collection)
                    left = self._parts.disposer.clouds()
                    self._dispose_due = self._monotonic() + (self._limits.later_seconds if left else 0.0)
            except (ChunkUnavailable, CloudsUnavailable, OSError) as error:
                log.info("what nobody needs stays for now: %s", error)
                return Pause(self._limits.later_seconds)
        return Pause(self._limits.step_seconds)

    def collect(self, step: Step, *, dry_run: bool) -> Collection:
        """Look for what nobody needs now, and go as far as can be gone; with *dry_run*, only look.

        Raises HybrisError while another one is at it.
        """
        if not self._busy.acquire(timeout=1.0):
            raise HybrisError("unneeded packs are being looked for already", "", "Try again in a while.")
        collection = Collection()
        try:
            if dry_run:
                self._count(collection, self._find(self._go_on))
                self._find_unnamed(collection, self._go_on)
            else:
                self._parts.disposer.look_again()
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
        self._look(collection, self._go_on, not self._signals.held)
        step(stages[2], 2, len(stages))
        if self._signals.held:
            collection.trouble = _HELD
        elif self._due()[0]:
            self._flush(self._limits.shipped_within)
            self._dispose(collection)
        step(stages[2], 3, len(stages))

    def _find(self, pause: Callable[[], bool]) -> Found:
        """Lists of chunks that have yet to be read are brought only when there is something to be found."""
        found = self._scan(pause)
        if found and self._parts.pages.list_files():
            found = self._scan(pause)
        if found.claimed and not self._signals.held:
            self._parts.settle(found.claimed)
            found = self._scan(pause)
        return found

    def _scan(self, pause: Callable[[], bool]) -> Found:
        parts = self._parts
        self._committer.commit_now()
        with self._fs.db.snapshot() as snapshot:
            return find_idle(
                snapshot,
                parts.assembly.device,
                parts.pages.read,
                self._time_ns(),
                self._grace_ns,
                pause,
                self._limits,
            )

    def undeletable(self) -> dict[int, int]:
        """How many objects on each cloud wait for a device that may delete there; this one may not."""
        return self._parts.disposer.waiting()

    def count_unnamed(self) -> int:
        """How many packs and single shares the clouds have that no register names; nothing is changed."""
        look, _ = self._parts.orphans.look(self._committer.commit_now, self._time_ns(), 0, self._go_on)
        return look.count

    def _look_for_unproven(self) -> None:
        """What is on the clouds by now is not to be called unsafe until packs are looked through."""
        if self._monotonic() < self._unproven_due or self._signals.held:
            return
        with self._fs.lock:
            unproven = self._unplaced.unproven()
        self._parts.settle(unproven)
        self._unproven_due = self._monotonic() + self._limits.unproven_seconds

    def _bring_lacking(self) -> None:
        if not self._is_lacking():
            self._parts.needed.rest()
        elif not self._signals.held:
            self._parts.needed.look_again(self._orphans, self._monotonic())

    def _orphans(self) -> dict[bytes, list[tuple[int, int]]]:
        """The packs that no register names, however new they are, and where clouds show shares of them."""
        found, sightings = self._parts.orphans.look(
            self._committer.commit_now, self._time_ns(), 0, self._go_on
        )
        places: dict[bytes, list[tuple[int, int]]] = {pack: [] for pack in found.orphans}
        for seen in sightings:
            if seen.pack in places:
                places[seen.pack].append((seen.cloud, seen.share))
        return places

    def _is_listing_due(self) -> bool:
        """Whether the clouds are to be listed now: once a day is enough, by one device for all.

        The others list them now and then. So what one may not delete is found by another that may.
        """
        with self._fs.lock:
            lowest = self._parts.assembly.is_lowest
        every = self._limits.list_seconds if lowest else self._limits.others_list_seconds
        if self._monotonic() - self._listed < every:
            return False
        self._listed = self._monotonic()
        return True

    def _find_unnamed(self, collection: Collection, pause: Callable[[], bool]) -> Unnamed:
        orphans = self._parts.orphans
        now = self._time_ns()
        found, sightings = orphans.look(self._committer.commit_now, now, self._grace_ns, pause)
        with self._fs.lock:
            orphans.remember(sightings)
        collection.unnamed.update(
            orphans=len(found.orphans),
            strays=len(found.strays),
            leftovers=len(found.leftovers),
            young=found.young,
        )
        return found

    def _look(self, collection: Collection, pause: Callable[[], bool], listing: bool) -> None:
        self._committer.commit_now()
        self._parts.thinner.thin(self._time_ns())
        found = self._find(pause)
        self._count(collection, found)
        if not self._may_propose():
            return
        with self._fs.lock:
            remember(self._fs, found)
        empty = list(found.empty)
        if found.sparse and not self._signals.held:
            collection.rewritten = self._parts.rewriter.rewrite(found.sparse, self._limits.rewritten_bytes)
            empty += found.sparse[: collection.rewritten]
        packs = [one.pack for one in empty]
        orphans, strays = self._unnamed(collection, pause) if listing else ([], [])
        while packs or orphans or strays:
            room = MAX_PACKS - len(orphans) - len(strays)
            proposed = self._parts.proposer.propose(packs[:room], orphans, strays)
            if not proposed:
                return
            collection.proposed += proposed
            packs, orphans, strays = packs[room:], [], []
            self._advance()  # a device that is alone can go on with the rest

    def _unnamed(self, collection: Collection, pause: Callable[[], bool]) -> tuple[list[bytes], list[Stray]]:
        """Orphaned packs and strays that are to be proposed; what was discarded long ago is deleted."""
        found = self._find_unnamed(collection, pause)
        with self._fs.lock:
            self._parts.orphans.dispose_leftovers(found.leftovers)
        return self._parts.orphans.proven(found, MAX_PACKS // 2)

    def _advance(self) -> None:
        """Answer, and end what all have agreed on; what is signed must not be taken back by a crash."""
        while self._may_sign() and (self._parts.voter.step() or self._concludes()):
            self._committer.commit_now()

    def _concludes(self) -> bool:
        return self._may_propose() and self._parts.proposer.conclude()

    def _may_propose(self) -> bool:
        with self._fs.lock:
            return self._may_sign() and self._parts.assembly.may_propose

    def _may_sign(self) -> bool:
        with self._fs.lock:
            return not self._signals.stopping and self._parts.assembly.may_sign

    def _dispose(self, collection: Collection) -> None:
        before, _ = self._due()
        collection.deleted_bytes += self._parts.disposer.run(self._go_on)
        collection.deleted_packs += before - self._due()[0]

    def _due(self) -> tuple[int, int]:
        """How many packs are to be deleted from some cloud, and how many bytes that frees, roughly."""
        with self._fs.lock:
            return self._fs.disposals.total()

    def _count(self, collection: Collection, found: Found) -> None:
        kinds: dict[str, list[Idle]] = {"empty": found.empty, "sparse": found.sparse, "young": found.young}
        for kind, packs in kinds.items():
            collection.found[kind] = len(packs)
            with self._fs.lock:
                for one in packs:
                    pack = self._fs.packs.numbered(one.pack)
                    if pack is not None:
                        collection.found[f"{kind} bytes"] += one.needed.dead * pack.n // pack.k

    def awaited(self) -> dict[bytes, float]:
        """The devices that have yet to agree to what somebody proposes to discard, and since when that waits
        for them, in seconds since the epoch; this device is not among them."""
        with self._fs.lock:
            return {
                device: min(self._moment_of(one.writer, one.clock) for one in stamps) / 1e9
                for device, stamps in self._parts.assembly.awaited().items()
            }

    def _tell(self, collection: Collection) -> None:
        """Add what is to be waited for."""
        collection.due_packs, collection.due_bytes = self._due()
        collection.undeletable = sum(self.undeletable().values())
        known = self._names()
        for device, since in sorted(self.awaited().items()):
            name, seen = known.get(device, (device.hex()[:8], None))
            collection.waiting.append({"device": name, "last_seen": seen, "since": since})
