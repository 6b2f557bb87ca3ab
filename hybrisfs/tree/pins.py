"""Pins: nodes that this device keeps in full, whether they are used or not (the hoard of Depot 5.2).

A node that is pinned is kept with all that is below it, also what comes there later. Pins are facts of
this device alone: no other device knows them. What this device keeps for the sake of copies that labels ask
for (`hybrisfs.read.copies`) is kept in the same way, or as *precious* content: it stays until enough other
devices have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from hybrisfs.state.database import Reader
from hybrisfs.state.pins import KeptChunk, Precious
from hybrisfs.state.shown_nodes import ino_shown_for
from hybrisfs.state.state import Transaction
from hybrisfs.tree.inodes import Inode, InodeTable
from sync import VersionVector

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
        self.generation = 0  # grows whenever something else is to be kept
        self._copied: frozenset[bytes] = frozenset()
        self._precious: Mapping[bytes, VersionVector | None] = {}

    def __bool__(self) -> bool:
        return bool(self._nodes or self._copied)

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

    def keep_copies(self, copied: Iterable[bytes], precious: Mapping[bytes, VersionVector | None]) -> bool:
        """From now on, keep the nodes *copied* as if they were pinned, and of those in *precious* what is
        here and other devices may not have: see `hybrisfs.state.pins`. False when that was so before."""
        now = frozenset(copied), dict(precious)
        if now == (self._copied, self._precious):
            return False
        self._copied, self._precious = now
        self.generation += 1
        return True

    def copied(self, tx: Transaction) -> list[int]:
        """The inodes of the nodes that are kept for the sake of copies."""
        return sorted(ino for one in self._copied if (ino := ino_shown_for(tx, one)) is not None)

    def precious(self, db: Reader) -> Precious:
        """What is precious, in a look at *db*."""
        shown = ((ino_shown_for(db, node), vector) for node, vector in self._precious.items())
        return Precious(db, {ino: vector for ino, vector in shown if ino is not None})

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

    def kept_in(self, tx: Transaction, segment: int, *, precious: bool = False) -> dict[int, KeptChunk]:
        """The chunks of a journal segment that are to be kept, by number; not the *precious* ones if these
        may go, too."""
        stays = self._precious and not precious
        if not (self or stays):
            return {}
        self._inodes.flush(tx)
        return tx.pins.kept_in(segment, self.copied(tx), self.precious(tx) if stays else None)
