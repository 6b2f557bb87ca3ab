"""The entries that were read or written last, in memory.

Readers must never go back in time: whoever has seen a new entry, be it here or in the database, makes every
later reader see it. So what a transaction changes is taken out before it commits and put in when it has, and
what is read from the database meanwhile is not kept.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from hybrisfs.kv.record import KeyMetadata

__all__ = ["Place", "RecentEntries"]

Place: TypeAlias = tuple[int, bytes]
"""The number of a container, and a key in it."""

_GENERATION: Final = 50_000  # entries, of about half a KiB each


class RecentEntries:
    """Two generations of entries; the older one is dropped when the younger is full. Thread-safe.

    None is kept for a key that there is not.
    """

    def __init__(self, generation: int = _GENERATION) -> None:
        self._size = generation
        self._young: dict[Place, KeyMetadata | None] = {}
        self._old: dict[Place, KeyMetadata | None] = {}
        self._lock = threading.Lock()
        self._commits = 0  # odd while one is under way

    def find(self, place: Place) -> KeyMetadata | None:
        """The entry. Raises KeyError when it is not here, and must be looked up in the database."""
        try:
            return self._young[place]
        except KeyError:
            pass
        with self._lock:
            if place in self._young:
                return self._young[place]
            entry = self._old.pop(place)
            self._keep(place, entry)
            return entry

    @property
    def moment(self) -> int:
        """To be asked for before the database is read, and given to `learn`."""
        return self._commits

    def learn(self, moment: int, place: Place, entry: KeyMetadata | None) -> None:
        """Keep what the database said, unless it may have changed since."""
        with self._lock:
            if self._commits == moment and not moment & 1 and place not in self._young:
                self._keep(place, entry)

    def begin(self, places: Iterable[Place]) -> None:
        """A transaction that changes these is about to commit."""
        with self._lock:
            self._commits += 1
            for place in places:
                self._young.pop(place, None)
                self._old.pop(place, None)

    def end(self, entries: Mapping[Place, KeyMetadata]) -> None:
        """It has committed, with these; with none when it failed."""
        with self._lock:
            for place, entry in entries.items():
                self._keep(place, entry)
            self._commits += 1

    def _keep(self, place: Place, entry: KeyMetadata | None) -> None:
        if len(self._young) >= self._size:
            self._old, self._young = self._young, {}
        self._young[place] = entry
