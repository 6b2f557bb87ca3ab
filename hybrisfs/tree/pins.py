"""Pins: nodes that this device keeps in full, whether they are used or not (the hoard of Depot 5.2).

A node that is pinned is kept with all that is below it, also what comes there later. Pins are facts of
this device alone: no other device knows them.
"""

from __future__ import annotations

from enum import Enum

from hybrisfs.state.pins import KeptChunk
from hybrisfs.state.state import Transaction
from hybrisfs.tree.inodes import Inode, InodeTable

__all__ = ["Pins", "Pinned"]


class Pinned(Enum):
    """Whether a node's content is kept here: because of itself, of a folder above it, or not at all."""

    YES = "yes"
    INHERITED = "inherited"
    NO = "no"


class Pins:
    """The pins of one volume."""

    def __init__(self, tx: Transaction, inodes: InodeTable) -> None:
        self._inodes = inodes
        self._nodes = tx.pins.nodes()
        self.generation = 0  # grows whenever something is pinned or unpinned

    def __bool__(self) -> bool:
        return bool(self._nodes)

    # -- pins ------------------------------------------------------------------------------------

    def add(self, tx: Transaction, inode: Inode) -> None:
        """Pin a node that has a name."""
        self._inodes.flush(tx)
        tx.pins.put(inode.id, inode.ino)
        self._nodes.add(inode.id)
        self.generation += 1

    def remove(self, tx: Transaction, inode: Inode) -> None:
        """Unpin a node, and the nodes that are merged with it."""
        for node in self._pinned(tx, inode):
            self._forget(tx, node)

    def _forget(self, tx: Transaction, node: bytes) -> None:
        tx.pins.remove(node)
        self._nodes.discard(node)
        self.generation += 1

    def roots(self, tx: Transaction) -> list[int]:
        """The inodes of the nodes that are pinned themselves and are seen here."""
        self._inodes.flush(tx)
        return tx.pins.inodes()

    def follow(self, tx: Transaction) -> None:
        """Note where pinned nodes are now; the node that has taken the place of one that is gone is pinned
        instead."""
        self._inodes.flush(tx)
        for node, heir in tx.pins.follow().items():
            self._forget(tx, node)
            self.add(tx, self._inodes.get(tx, heir))

    def _pinned(self, tx: Transaction, inode: Inode) -> list[bytes]:
        """The pinned ones among the node of an inode and the nodes merged with it."""
        return [node for node in (inode.id, *tx.conflicts.merged_with(inode.ino)) if node in self._nodes]

    # -- what they keep --------------------------------------------------------------------------

    def standing(self, tx: Transaction, inode: Inode) -> Pinned:
        """Whether the node is kept, and why."""
        if not self._nodes:
            return Pinned.NO
        if self._pinned(tx, inode):
            return Pinned.YES
        self._inodes.flush(tx)
        return Pinned.INHERITED if tx.pins.covers(inode.ino) else Pinned.NO

    def keeper(self, tx: Transaction, inode: Inode) -> Inode | None:
        """The pinned folder next above a node that is kept because of one."""
        self._inodes.flush(tx)
        keeper = tx.pins.keeper(inode.ino)
        return None if keeper is None else self._inodes.get(tx, keeper)

    def kept_in(self, tx: Transaction, segment: int) -> dict[int, KeptChunk]:
        """The chunks of a journal segment that pinned files show, by number."""
        if not self._nodes:
            return {}
        self._inodes.flush(tx)
        return tx.pins.kept_in(segment)
