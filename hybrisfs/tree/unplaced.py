"""Files that are shown here and whose bytes no cloud has, as far as this device knows, though another device
made them: it has yet to tell where it put them.

That is so for a moment whenever a link brings a change. It stays so when the maker reaches no cloud, or is
lost: then a device that holds the bytes brings them to the clouds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from hybrisfs.state.state import Transaction
from hybrisfs.state.unplaced_chunks import (
    UnplacedContent,
    held_of,
    is_any_unplaced,
    unplaced_content,
    unproven,
)
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["Unplaced"]

_SHARE: Final = 10  # of the time, at most one part in so many goes into counting


_NOTHING: Final = UnplacedContent(0, 0, ())


class Unplaced:
    """Looks at what no cloud is known to have.

    It takes time in proportion to how much that is; files that the clouds have cost nothing.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._last = _NOTHING
        self._again = 0.0

    def count(self, tx: Transaction) -> UnplacedContent:
        """As it is now; as it was counted last when counting takes so long that it may not be done again yet.

        It never says that there is nothing when there is something.
        """
        now = self._monotonic()
        if now >= self._again or not (self._last.files and self.is_left(tx)):
            self._last = self._count(tx)
            self._again = now + (self._monotonic() - now) * _SHARE
        return self._last

    def _count(self, tx: Transaction) -> UnplacedContent:
        self._fs.flush(tx)
        return unplaced_content(tx)

    def newest(self, tx: Transaction) -> int:
        """The number of the newest chunk, see `is_left`."""
        return tx.chunks.newest()

    def is_left(self, tx: Transaction, through: int | None = None) -> bool:
        """Whether there is any such content; with *through*, among the chunks up to that number."""
        self._fs.flush(tx)
        return is_any_unplaced(tx, self.newest(tx) if through is None else through)

    def unproven(self, tx: Transaction) -> list[int]:
        """See `hybrisfs.state.unplaced_chunks.unproven`."""
        return unproven(tx)

    def claim(self, tx: Transaction, devices: Collection[bytes], branches: Collection[bytes] = ()) -> bool:
        """Have this device bring to the clouds what it holds of the files that these devices wrote, or that
        were written on these branches; False when it holds none of that."""
        self._fs.flush(tx)
        found = held_of(tx, devices, branches)
        for number in found:
            tx.chunks.claim(number)
        return bool(found)
