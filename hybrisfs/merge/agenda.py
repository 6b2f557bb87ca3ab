"""Names that have to be settled anew, folders before what is in them."""

from __future__ import annotations

import heapq

from hybrisfs.merge.resolver import Resolver
from hybrisfs.store.schema import ROOT_ID

__all__ = ["Agenda"]


class Agenda:
    """A queue without duplicates of names by the depth at which they stand."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._heap: list[tuple[int, bytes, bytes]] = []
        self._known: set[tuple[bytes, bytes]] = set()

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, directory: bytes, name: bytes) -> None:
        if (directory, name) not in self._known:
            self._known.add((directory, name))
            heapq.heappush(self._heap, (self._depth(directory), directory, name))

    def take(self) -> tuple[bytes, bytes]:
        """The directory and the name that come next."""
        _, directory, name = heapq.heappop(self._heap)
        self._known.discard((directory, name))
        return directory, name

    def _depth(self, directory: bytes) -> int:
        depth, seen = 0, {directory}
        while directory != ROOT_ID:
            names = self._resolver.names(directory)
            directory = self._resolver.parent(directory, names[0]) if names else ROOT_ID
            if directory in seen:
                break
            seen.add(directory)
            depth += 1
        return depth
