"""Files that are shown here and whose bytes no cloud has, as far as this device knows, though another device
made them: it has yet to tell where it put them.

That is so for a moment whenever a link brings a change. It stays so when the maker reaches no cloud, or is
lost: then whoever holds the bytes claims them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.state.chunk_states import ELSEWHERE

__all__ = ["UNPROVEN", "Unplaced", "UnplacedContent"]

_SHARE: Final = 10  # of the time, at most one part in so many goes into counting
_CHUNKS: Final = f"chunk c CROSS JOIN file_chunk f ON f.chunk = c.number WHERE c.pack = {ELSEWHERE}"
_PAGES: Final = f"chunk c CROSS JOIN content_page f ON f.chunk = c.number WHERE c.pack = {ELSEWHERE}"
UNPROVEN: Final = (
    f"SELECT number FROM chunk c WHERE pack = {ELSEWHERE} AND segment IS NOT NULL "
    "AND EXISTS (SELECT 1 FROM spare s WHERE s.chunk = c.number)"
)
"""Query for what `Unplaced.unproven` returns."""
_DEVICES: Final = "writer w JOIN log_branch b ON b.id = w.branch"


class UnplacedContent(NamedTuple):
    """How many files there are, the bytes of theirs that no cloud is known to have, and the devices that
    wrote these files, by id."""

    files: int
    size: int
    devices: tuple[bytes, ...]


_NOTHING: Final = UnplacedContent(0, 0, ())


class Unplaced:
    """Looks at what no cloud is known to have, under the volume's lock.

    It takes time in proportion to how much that is; files that the clouds have cost nothing.
    """

    def __init__(self, fs: FileSystem, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._fs = fs
        self._monotonic = monotonic
        self._last = _NOTHING
        self._again = 0.0

    def count(self) -> UnplacedContent:
        """As it is now; as it was counted last when counting takes so long that it may not be done again yet.

        It never says that there is nothing when there is something.
        """
        now = self._monotonic()
        if now >= self._again or not (self._last.files and self.is_left()):
            self._last = self._count()
            self._again = now + (self._monotonic() - now) * _SHARE
        return self._last

    def _count(self) -> UnplacedContent:
        self._fs.flush()
        rows = self._fs.db.execute(
            f"SELECT n.content_stamp & 65535, count(*) FROM (SELECT f.ino FROM {_CHUNKS} UNION "
            f"SELECT f.ino FROM {_PAGES}) u CROSS JOIN node n ON n.ino = u.ino GROUP BY 1"
        ).fetchall()
        if not rows:
            return _NOTHING
        (listed,) = self._fs.db.execute(
            f"SELECT total(length) FROM chunk WHERE pack = {ELSEWHERE} AND EXISTS "
            "(SELECT 1 FROM file_chunk f WHERE f.chunk = number)"
        ).fetchone()
        (unlisted,) = self._fs.db.execute(
            f"SELECT total(n.size) FROM (SELECT DISTINCT f.ino FROM {_PAGES}) p "
            "JOIN unlisted u ON u.ino = p.ino JOIN node n ON n.ino = p.ino"
        ).fetchone()
        devices = {
            device
            for writer, _ in rows
            for (device,) in self._fs.db.execute(
                f"SELECT b.device FROM {_DEVICES} WHERE w.number = ?", (writer,)
            )
        }
        return UnplacedContent(
            sum(files for _, files in rows), int(listed + unlisted), tuple(sorted(devices))
        )

    def newest(self) -> int:
        """The number of the newest chunk, see `is_left`."""
        (number,) = self._fs.db.execute("SELECT ifnull(max(number), 0) FROM chunk").fetchone()
        return int(number)

    def is_left(self, through: int | None = None) -> bool:
        """Whether there is any such content; with *through*, among the chunks up to that number."""
        self._fs.flush()
        until = self.newest() if through is None else through
        query = " UNION ALL ".join(
            f"SELECT 1 FROM {rows} AND c.number <= :until" for rows in (_CHUNKS, _PAGES)
        )
        return self._fs.db.execute(f"{query} LIMIT 1", {"until": until}).fetchone() is not None

    def unproven(self) -> list[int]:
        """The numbers of these chunks that are here and that members say to be on the clouds: by reading
        them there one finds out (`Fetcher.settle`)."""
        return [number for (number,) in self._fs.db.execute(UNPROVEN).fetchall()]

    def claim(self, devices: Collection[bytes], branches: Collection[bytes] = ()) -> bool:
        """Have this device bring to the clouds what it holds of the files that these devices wrote, or that
        were written on these branches; False when it holds none of that."""
        self._fs.flush()
        wanted = f"b.device IN ({_literals(devices)}) OR b.id IN ({_literals(branches)})"
        # The plus has SQLite go by the index of what is elsewhere, and not by that of all that is cached.
        held = " UNION ".join(
            f"SELECT c.number FROM (SELECT c.number, f.ino FROM {rows} AND +c.segment IS NOT NULL) c "
            "CROSS JOIN node n ON n.ino = c.ino WHERE n.content_stamp & 65535 IN "
            f"(SELECT w.number FROM {_DEVICES} WHERE {wanted})"
            for rows in (_CHUNKS, _PAGES)
        )
        found = self._fs.db.execute(held).fetchall()
        for (number,) in found:
            self._fs.chunks.claim(number)
        return bool(found)


def _literals(ids: Collection[bytes]) -> str:
    return ", ".join(f"x'{one.hex()}'" for one in ids)
