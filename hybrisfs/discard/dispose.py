"""Deleting the shares of discarded packs from the clouds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from hybrisfs.dispersal.share import share_name
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.filesystem.filesystem import FileSystem

__all__ = ["Disposer"]

log = logging.getLogger(__name__)

_BATCH: Final = 100  # packs whose shares one request names


class _Row(NamedTuple):
    """A pack, how many shares it had, and the bytes on this cloud."""

    pack: bytes
    shares: int
    size: int


class Disposer:
    """Deletes what `disposal` names, once the clouds have the update that says so: a device that is restored
    from a backup learns then that the packs are gone. One caller at a time."""

    def __init__(self, fs: FileSystem, upkeep: Upkeep, trusted: Callable[[], Collection[int]]) -> None:
        """*trusted* looks which clouds are this volume's: a disk that is not mounted would forget nothing."""
        self._fs = fs
        self._upkeep = upkeep
        self._trusted = trusted

    def run(self, go_on: Callable[[], bool]) -> int:
        """Delete what can be deleted now; the bytes that this frees on all clouds together, roughly."""
        clouds = self.clouds()
        trusted = self._trusted() if clouds else ()
        freed = 0
        for cloud in sorted(clouds):
            if not self._upkeep.is_configured(cloud):
                self._forget(cloud)
            while cloud in trusted and go_on() and (rows := self._due(cloud)):
                if not self._delete(cloud, rows):
                    break
                freed += sum(row.size for row in rows)
        return freed

    def clouds(self) -> set[int]:
        """The clouds on which there is something that may be deleted now."""
        with self._fs.lock:
            rows = self._fs.db.execute(
                "SELECT DISTINCT cloud FROM disposal WHERE clock <= ?", (self._fs.db.meta("published"),)
            ).fetchall()
        return {cloud for (cloud,) in rows}

    def _due(self, cloud: int) -> list[_Row]:
        with self._fs.lock:
            rows = self._fs.db.execute(
                "SELECT pack, shares, size FROM disposal WHERE cloud = ? AND clock <= ? "
                "ORDER BY pack LIMIT ?",
                (cloud, self._fs.db.meta("published"), _BATCH),
            ).fetchall()
        return [_Row(*row) for row in rows]

    def _delete(self, cloud: int, rows: Sequence[_Row]) -> bool:
        names = [share_name(row.pack, index) for row in rows for index in range(row.shares)]
        failure = self._upkeep.delete(cloud, names)
        if failure is not None:
            log.info("shares of %d packs stay on cloud %d for now: %s", len(rows), cloud, failure)
            return False
        for name in names:
            self._upkeep.excuse(cloud, name)
        with self._fs.lock:
            self._fs.db.executemany(
                "DELETE FROM disposal WHERE cloud = ? AND pack = ?", [(cloud, row.pack) for row in rows]
            )
        return True

    def _forget(self, cloud: int) -> None:
        """The cloud is none of the volume's any more."""
        with self._fs.lock:
            self._fs.db.execute("DELETE FROM disposal WHERE cloud = ?", (cloud,))
