"""Values in memory, for reads that need not go to the clouds (Hybris 3.10 and 4.4)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from enum import Flag, auto
from typing import Final

from hybrisfs.kv.recent import Place
from hybrisfs.kv.record import Timestamp
from hybrisfs.kv.rmds import MetadataStore

__all__ = ["CachePolicy", "Copy", "ValueCache"]

_OVERHEAD: Final = 512  # bytes that a copy takes beside its value, roughly


class CachePolicy(Flag):
    """What is cached: what is written, what is read, both, or nothing."""

    NOTHING = 0
    WRITES = auto()  # write-through
    READS = auto()  # write-around, caching on read
    BOTH = WRITES | READS


@dataclass(slots=True)
class Copy:
    """A cached value. It was the newest at `fresh_at`, and `behind` newer ones have been written since."""

    value: bytes
    timestamp: Timestamp
    fresh_at: float
    behind: int = 0


class ValueCache:
    """The values used last, one per key, of `budget` bytes together. Thread-safe."""

    def __init__(self, budget: int, policy: CachePolicy, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._budget = budget
        self._policy = policy
        self._lock = threading.Lock()
        self._copies: OrderedDict[Place, Copy] = OrderedDict()
        self._bytes = 0

    @property
    def size(self) -> int:
        """The bytes that the copies take."""
        return self._bytes

    def find(self, place: Place) -> Copy | None:
        """The copy of a key's value, which may be out of date."""
        with self._lock:
            copy = self._copies.get(place)
            if copy is not None:
                self._copies.move_to_end(place)
            return copy

    def confirm(self, place: Place, timestamp: Timestamp, moment: float) -> bytes | None:
        """The value, if it is the one with this timestamp, which was the newest at *moment*."""
        with self._lock:
            copy = self._copies.get(place)
            if copy is None or copy.timestamp != timestamp:
                return None
            self._copies.move_to_end(place)
            copy.fresh_at = max(copy.fresh_at, moment)
            return copy.value

    def read(self, place: Place, value: bytes, timestamp: Timestamp, moment: float) -> None:
        """A value has been fetched that was the newest at *moment*."""
        if CachePolicy.READS in self._policy:
            self._keep(place, value, timestamp, moment)

    def written(self, place: Place, value: bytes | None, timestamp: Timestamp, moment: float) -> None:
        """A value was written after *moment*; None: the key was deleted."""
        with self._lock:
            copy = self._copies.get(place)
            if copy is not None and copy.timestamp < timestamp:
                copy.behind += 1
        if value is None:
            self._drop(place, timestamp)
        elif CachePolicy.WRITES in self._policy:
            self._keep(place, value, timestamp, moment)

    def _keep(self, place: Place, value: bytes, timestamp: Timestamp, moment: float) -> None:
        if len(value) + _OVERHEAD > self._budget:
            return
        with self._lock:
            # A thread that writes a newer one from here on finds this copy and counts; one before has not.
            entry = self._metadata.read(place)
            if entry is None or entry.timestamp != timestamp:
                return
            copy = self._copies.get(place)
            if copy is not None:
                if copy.timestamp >= timestamp:
                    return
                self._bytes -= len(copy.value) + _OVERHEAD
            self._copies[place] = Copy(value, timestamp, moment)
            self._copies.move_to_end(place)
            self._bytes += len(value) + _OVERHEAD
            while self._bytes > self._budget:
                _, dropped = self._copies.popitem(last=False)
                self._bytes -= len(dropped.value) + _OVERHEAD

    def _drop(self, place: Place, timestamp: Timestamp) -> None:
        with self._lock:
            copy = self._copies.get(place)
            if copy is not None and copy.timestamp < timestamp:
                del self._copies[place]
                self._bytes -= len(copy.value) + _OVERHEAD
