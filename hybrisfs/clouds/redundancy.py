"""Changing f and k of a volume: what was written with other values is rewritten in the background.

The device that changed them does that, and each device for the packs that are its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hybrisfs.clouds.recode import Recoder
from hybrisfs.clouds.segment_repair import SegmentMender
from hybrisfs.dispersal.engine import Engine
from hybrisfs.dispersal.pack import ERASURE_THRESHOLD, Redundancy
from hybrisfs.state.packs import Pack, PackTable
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["Rewriting", "RewritingState"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RewritingState:
    """How many packs or values are rewritten, of how many, and what keeps the rest from it."""

    done: int
    total: int
    trouble: str


class Rewriting:
    """The background job; its state may be read from any thread."""

    def __init__(self, fs: FileSystem, recoder: Recoder, segments: SegmentMender, engine: Engine) -> None:
        self._segments = segments
        self._engine = engine
        self._fs = fs
        self._recoder = recoder
        self._clean: tuple[Redundancy, int] | None = (
            None  # nothing was to be done for this code and these packs
        )
        self.state: RewritingState | None = None

    def run(
        self, code: Redundancy, own: Collection[bytes], go_on: Callable[[], bool], *, everything: bool
    ) -> bool:
        """Rewrite the packs that do not have *code*, with which packs are made now: those of the *own*
        branches first, then, with *everything*, those of others.

        True when nothing is left; stops when *go_on* says so.
        """
        with self._fs.state.transaction() as tx:
            newest = tx.packs.newest()
        if self._clean == (code, newest):
            return True
        trouble = self._spread_log(code, go_on)
        if trouble is not None:
            self.state = RewritingState(0, 1, trouble)
            return False
        outdated = self._outdated(code)
        todo = [one for one in outdated if one.branch in own]
        todo += [one for one in outdated if one.branch not in own] if everything else []
        troubles: list[str] = []
        for done, former in enumerate(todo):
            self.state = RewritingState(done, len(todo), troubles[0] if troubles else "")
            if not go_on():
                return False
            trouble = self._recoder.rewrite(former)
            if trouble is not None:
                troubles.append(trouble)
                log.warning("pack %s is not written anew: %s", former.id.hex()[:16], trouble)
        if troubles:
            self.state = RewritingState(len(todo) - len(troubles), len(todo), troubles[0])
            return False
        self.state = None
        if not todo:
            self._clean = code, newest
        return not todo or self.run(code, own, go_on, everything=everything)

    def is_done(self, code: Redundancy) -> bool:
        """Whether all packs that this device has looked at have *code*."""
        return self.state is None and self._clean is not None and self._clean[0] == code

    def _spread_log(self, code: Redundancy, go_on: Callable[[], bool]) -> str | None:
        """Put more copies of own log segments onto the clouds where they are too few; what went wrong."""
        troubles = [
            self._segments.spread(name, code.f + code.k, writable=self._engine.in_use)
            for name in self._segments.short_of(code.f + code.k)
            if go_on()
        ]
        return next((one for one in troubles if one is not None), None)

    def _outdated(self, code: Redundancy) -> list[Pack]:
        """All chunks are gone over: without the volume's lock."""
        self._fs.journal.sync()
        with self._fs.state.transaction() as tx:
            self._fs.commit(tx)
        with self._fs.state.snapshot() as database:
            return PackTable(database).coded_otherwise(code.f, code.k, ERASURE_THRESHOLD)
