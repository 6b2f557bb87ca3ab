"""Names that have to be settled again, folders before their entries."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from hybrisfs.merge.resolver import Resolver
from hybrisfs.registers.node_id import ROOT_ID

__all__ = ["Agenda"]


@dataclass(slots=True)
class _Names:
    """The names in a directory: a heap of them, and the nodes of each."""

    order: list[bytes] = field(default_factory=list)
    nodes: dict[bytes, set[bytes]] = field(default_factory=dict)


class Agenda:
    """A queue of names, each once, by the depth at which they stand; with the nodes for whose sake.

    As long as no folder is among these nodes, the depth does not matter, and is not asked for.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._folders: dict[bytes, _Names] = {}
        self._heap: list[tuple[int, bytes]] = []  # the directories, but for `_fresh`
        self._fresh: list[bytes] = []  # those of which the depth has not been asked for
        self._depths: dict[bytes, int] = {ROOT_ID: 0}
        self._has_folders = False

    def __bool__(self) -> bool:
        return bool(self._folders)

    def add(self, directory: bytes, name: bytes, nodes: Iterable[bytes] = ()) -> None:
        """*nodes* want the name there, or do so no more, for all that is known."""
        names = self._folders.get(directory)
        if names is None:
            names = self._folders[directory] = _Names()
            self._fresh.append(directory)
        if name not in names.nodes:
            names.nodes[name] = set()
            heapq.heappush(names.order, name)
        for node in nodes:
            names.nodes[name].add(node)
            self._has_folders = self._has_folders or self._resolver.is_directory(node)

    def take(self) -> tuple[bytes, bytes, set[bytes]]:
        """The directory and the name that come next, and the nodes."""
        if len(self._folders) == 1 or not self._has_folders:
            directory = next(iter(self._folders))
        else:
            for fresh in self._fresh:
                heapq.heappush(self._heap, (self._depth(fresh), fresh))
            self._fresh.clear()
            while (directory := self._heap[0][1]) not in self._folders:
                heapq.heappop(self._heap)
        names = self._folders[directory]
        name = heapq.heappop(names.order)
        nodes = names.nodes.pop(name)
        if not names.order:
            del self._folders[directory]
        return directory, name, nodes

    def _depth(self, directory: bytes) -> int:
        way: dict[bytes, None] = {}
        while directory not in self._depths and directory not in way:
            way[directory] = None
            names = self._resolver.names(directory)
            directory = self._resolver.parent(directory, names[0]) if names else ROOT_ID
        depth = self._depths.get(directory, 0)
        for one in reversed(way):
            depth += 1
            self._depths[one] = depth
        return self._depths[next(iter(way), directory)]
