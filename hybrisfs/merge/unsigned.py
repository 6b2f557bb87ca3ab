"""The view's word about registers that have changed since the last signed update (`resolver.Unsigned`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hybrisfs.kinds import NODE, PLACE
from hybrisfs.registers.tree import Attr, Place, attr_key, content_key, place_key, slot_of
from hybrisfs.state.shown_nodes import ino_shown_for
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode

__all__ = ["UnsignedView", "is_withheld", "unsigned_place"]


def unsigned_place(tx: Transaction, fs: FileSystem, key: bytes, ino: int) -> Place | None:
    """The value that the next update gives to a place register that inode *ino* has changed; None for a
    removal. A node under a conflict name must not win the name from its holder just because it is signed
    later."""
    shown = tx.places.at(ino, slot_of(key))
    if shown is None:
        return None
    inode = fs.inodes.get(tx, ino)
    if inode.id != key[NODE] and not inode.is_directory:
        return None  # an equal file that this one has replaced
    return Place(fs.inodes.get(tx, shown.parent).id, shown.plain, yields=shown.wanted is not None)


def is_withheld(
    tx: Transaction, fs: FileSystem, counts: Callable[[bytes, bytes | None], bool], key: bytes, ino: int
) -> bool:
    """Whether the change that inode *ino* made to a register would be void if it were signed now, by
    *counts*."""
    place = unsigned_place(tx, fs, key, ino) if key[0] == PLACE else None
    return not counts(key, None if place is None else place.encode())


class UnsignedView:
    """Reads the view of one volume, which has been flushed."""

    def __init__(self, tx: Transaction, fs: FileSystem) -> None:
        self._fs = fs
        self._tx = tx
        self._pending = fs.changes.unsigned

    def places(self, node: bytes, slots: Iterable[int], *, others: bool = True) -> dict[int, Place | None]:
        known = {0, *slots} if others else {*slots}
        inode = self._inode(node) if others else None
        if inode is not None and not inode.is_directory:
            known.update(self._tx.places.slots(inode.ino))
        found: dict[int, Place | None] = {}
        for slot in known:
            key = place_key(node, slot)
            entry = self._pending.get(key)
            if entry is not None:
                found[slot] = unsigned_place(self._tx, self._fs, key, entry[0])
        return found

    def attr(self, node: bytes) -> Attr | None:
        if attr_key(node) not in self._pending:
            return None
        inode = self._inode(node)
        return None if inode is None else self._fs.attributes.record(self._tx, inode)

    def content(self, node: bytes) -> bool:
        return content_key(node) in self._pending

    def children(self, directory: bytes) -> bool:
        inode = self._inode(directory)
        if inode is None or inode.id != directory:
            return False
        children = self._tx.places.children(inode.ino)
        return any(place_key(one.node, one.slot) in self._pending for one in children)

    def _inode(self, node: bytes) -> Inode | None:
        """The inode that shows the node, its own or one that it is merged with."""
        ino = ino_shown_for(self._tx, node)
        inode = None if ino is None else self._fs.inodes.get(self._tx, ino)
        return None if inode is None or inode.orphan else inode
