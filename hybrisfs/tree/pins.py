"""Pins: nodes that this device keeps in full, whether they are used or not (the hoard of Depot 5.2).

A node that is pinned is kept with all that is below it, also what comes there later. Pins are facts of
this device alone: no other device knows them.
"""

from __future__ import annotations

from enum import Enum

from hybrisfs.state.conflicts import ConflictTable
from hybrisfs.state.pins import KeptChunk, PinTable
from hybrisfs.tree.inodes import Inode, InodeTable

__all__ = ["Pins", "Pinned"]


class Pinned(Enum):
    """Whether a node's content is kept here: because of itself, of a folder above it, or not at all."""

    YES = "yes"
    INHERITED = "inherited"
    NO = "no"


class Pins:
    """The pins of one volume, under its lock."""

    def __init__(self, pins: PinTable, conflicts: ConflictTable, inodes: InodeTable) -> None:
        self._pins = pins
        self._conflicts = conflicts
        self._inodes = inodes
        self._nodes = pins.nodes()
        self.generation = 0  # grows whenever something is pinned or unpinned

    def __bool__(self) -> bool:
        return bool(self._nodes)

    # -- pins ------------------------------------------------------------------------------------

    def add(self, inode: Inode) -> None:
        """Pin a node that has a name."""
        self._inodes.flush()
        self._pins.put(inode.id, inode.ino)
        self._nodes.add(inode.id)
        self.generation += 1

    def remove(self, inode: Inode) -> None:
        """Unpin a node, and the nodes that are merged with it."""
        for node in self._pinned(inode):
            self._forget(node)

    def _forget(self, node: bytes) -> None:
        self._pins.remove(node)
        self._nodes.discard(node)
        self.generation += 1

    def roots(self) -> list[int]:
        """The inodes of the nodes that are pinned themselves and are seen here."""
        self._inodes.flush()
        return self._pins.inodes()

    def follow(self) -> None:
        """Note where pinned nodes are now; the node that has taken the place of one that is gone is pinned
        instead."""
        self._inodes.flush()
        for node, heir in self._pins.follow().items():
            self._forget(node)
            self.add(self._inodes.get(heir))

    def _pinned(self, inode: Inode) -> list[bytes]:
        """The nodes that are pinned, of that of an inode and those that are seen as one with it."""
        return [node for node in (inode.id, *self._conflicts.merged_with(inode.ino)) if node in self._nodes]

    # -- what they keep --------------------------------------------------------------------------

    def standing(self, inode: Inode) -> Pinned:
        """Whether the node is kept, and why."""
        if not self._nodes:
            return Pinned.NO
        if self._pinned(inode):
            return Pinned.YES
        self._inodes.flush()
        return Pinned.INHERITED if self._pins.covers(inode.ino) else Pinned.NO

    def keeper(self, inode: Inode) -> Inode | None:
        """The pinned folder next above a node that is kept because of one."""
        self._inodes.flush()
        keeper = self._pins.keeper(inode.ino)
        return None if keeper is None else self._inodes.get(keeper)

    def kept_in(self, segment: int) -> dict[int, KeptChunk]:
        """The chunks of a journal segment that pinned files show, by number."""
        if not self._nodes:
            return {}
        self._inodes.flush()
        return self._pins.kept_in(segment)
