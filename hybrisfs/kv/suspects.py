"""Keys of whose values something was found wrong: the few that `status` looks at, instead of all."""

from __future__ import annotations

import threading
from typing import Final

from hybrisfs.kv.recent import Place

__all__ = ["Suspects"]

_MOST: Final = 1000


class Suspects:
    """A bounded set, kept in memory: what is wrong is found again. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: set[Place] = set()

    def add(self, place: Place) -> None:
        """A share of this key's value is wrong, or the value could not be read."""
        with self._lock:
            if len(self._places) < _MOST:
                self._places.add(place)

    def clear(self, place: Place) -> None:
        """Nothing is wrong with this key's value any more."""
        with self._lock:
            self._places.discard(place)

    def all(self) -> list[Place]:
        """The keys, in no particular order."""
        with self._lock:
            return list(self._places)
