"""Deleting the shares of discarded packs from the clouds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from hybrisfs.dispersal.share import parse_share_name, share_name
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.gc.limits import GcLimits
from hybrisfs.gc.orphans import Trust
from hybrisfs.state.disposals import Disposal
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["Disposer"]

log = logging.getLogger(__name__)

_BATCH: Final = 100  # packs whose shares one request names
_MOST_NAMES: Final = 1_000_000


class Disposer:
    """Deletes the shares of packs that have ended, once the clouds have the update that says so: a device
    that is restored from a backup learns then that the packs are gone. One caller at a time.

    A cloud may refuse that to this device, whose credentials lack the right. Then another one does it that
    finds these shares (`orphans`), and this one looks once in a while whether they are still there.
    """

    def __init__(self, fs: FileSystem, upkeep: Upkeep, trust: Trust) -> None:
        self._fs = fs
        self._pause = fs.environment.limits.of(GcLimits).refused_seconds
        self._monotonic = fs.environment.monotonic
        self._upkeep = upkeep
        self._trust = trust
        self._looked: dict[int, float] = {}  # when, at a cloud that refuses deletions

    def run(self, go_on: Callable[[], bool]) -> int:
        """Delete what can be deleted now; the bytes that this frees on all clouds together, roughly."""
        clouds = self.clouds().difference(self._upkeep.refusing())
        trusted = self._trust.trusted() if clouds else ()
        freed = 0
        for cloud in sorted(clouds):
            if not self._upkeep.is_configured(cloud):
                with self._fs.state.transaction() as tx:
                    tx.disposals.forget(cloud)
            while cloud in trusted and go_on() and (due := self._due(cloud)):
                if not self._delete(cloud, due):
                    break
                freed += sum(one.size for one in due)
        for cloud in self.clouds().intersection(self._upkeep.refusing()):
            if self._monotonic() - self._looked.get(cloud, float("-inf")) >= self._pause:
                self._looked[cloud] = self._monotonic()
                self._forget_gone(cloud)
        return freed

    def look_again(self) -> None:
        """The next time, look at what others may have deleted."""
        self._looked.clear()

    def waiting(self) -> dict[int, int]:
        """How many packs have shares on each cloud that this device may not delete, as far as it knows."""
        with self._fs.state.transaction() as tx:
            counts = tx.disposals.counts()
        refusing = self._upkeep.refusing()
        return {cloud: count for cloud, count in counts.items() if cloud in refusing}

    def clouds(self) -> set[int]:
        """The clouds on which there is something that may be deleted now."""
        with self._fs.state.transaction() as tx:
            return tx.disposals.due_clouds()

    def _due(self, cloud: int) -> list[Disposal]:
        with self._fs.state.transaction() as tx:
            return tx.disposals.due(cloud, _BATCH)

    def _delete(self, cloud: int, due: Sequence[Disposal]) -> bool:
        names = [share_name(one.pack, index) for one in due for index in range(one.shares)]
        failure = self._upkeep.delete(cloud, names)
        if failure is not None:
            log.info("shares of %d packs stay on cloud %d for now: %s", len(due), cloud, failure)
            return False
        for name in names:
            self._upkeep.excuse(cloud, name)
        with self._fs.state.transaction() as tx:
            tx.disposals.done(cloud, [one.pack for one in due])
        return True

    def _forget_gone(self, cloud: int) -> None:
        """Forget what is not on the cloud any more, or never was: other devices have deleted it."""
        names = self._upkeep.names(cloud, "packs/", _MOST_NAMES)
        if names is None:
            return
        listed = {parsed[0] for parsed in map(parse_share_name, names) if parsed is not None}
        with self._fs.state.transaction() as tx:
            tx.disposals.done_but(cloud, listed)
