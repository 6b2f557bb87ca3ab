"""Changes of direct facets (`hybrisfs.state.direct`), whichever these are: by programs, by other devices that
write at the same time, and when nodes become others.

Of concurrent values the greatest counts. An unsigned change will be signed as one that has seen all that is
here by then. So when a greater value comes from another device, which the change has not seen, it gives way.
"""

from __future__ import annotations

from typing import Final

from hybrisfs.kinds import KINDS, NODE, Kind, Trait
from hybrisfs.state.state import Transaction
from hybrisfs.tree.changes import Changes
from hybrisfs.tree.inodes import Inode

__all__ = ["Facets"]

_DIRECT: Final = [kind for kind in KINDS if Trait.DIRECT in kind.traits]
_BEYOND: Final = b"\xff" * 64


class Facets:
    """The direct facets of the nodes of one volume."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def of(self, tx: Transaction, kind: Kind, node: bytes) -> dict[bytes, bytes]:
        """What the registers of one kind say of a node here, by their keys."""
        return tx.direct.between(kind.key(node), kind.key(node, _BEYOND))

    def write(self, tx: Transaction, inode: Inode, key: bytes, value: bytes) -> None:
        """A program has changed a register of what is seen as this node."""
        tx.direct.put(key, value)
        self._changes.mark(key, inode.ino)

    def inherit(self, tx: Transaction, inode: Inode, node: bytes) -> None:
        """Let a node say what another one says, of which it was a version, or with which it was seen as one;
        where both say something, the greater value."""
        for kind in _DIRECT:
            own = self.of(tx, kind, inode.id)
            for key, value in self.of(tx, kind, node).items():
                mine = kind.key(inode.id, key[NODE.stop :])
                if value > own.get(mine, b""):
                    self.write(tx, inode, mine, value)

    def heard(self, tx: Transaction, key: bytes, value: bytes | None) -> None:
        """Another device has written this to the register of a direct facet."""
        if key not in self._changes.unsigned or value is None:
            return
        unsigned = tx.direct.unsigned(key)
        if unsigned is not None and value > unsigned:
            self._changes.drop(key)
            tx.direct.forget([key])
