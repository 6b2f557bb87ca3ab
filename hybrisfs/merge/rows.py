"""The rows of `place` as updates of other devices change them, with the counters that follow from them."""

from __future__ import annotations

from collections.abc import Callable

from hybrisfs.log.registers import Registers
from hybrisfs.merge.names import is_conflict_name, is_kept
from hybrisfs.registers.tree import place_key
from hybrisfs.state.places import Holder, ShownPlace
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode, LostName
from hybrisfs.tree.view import Change

__all__ = ["Rows"]


class Rows:
    """Changes names, and notes the changes to report to the kernel (`changes`)."""

    def __init__(self, fs: FileSystem, registers: Registers) -> None:
        self._fs = fs
        self._registers = registers
        self.changes: list[Change] = []
        self._numbers: dict[tuple[int, bytes], int] = {}  # of names that have been taken away
        self.last: dict[int, LostName] = {}  # by inode that lost a name: that name
        self.lost: list[int] = []  # the inodes, as often as they lost one, and those that are to have none
        self.freed: list[tuple[int, bytes]] = []  # names that an inode had, or kept from others

    def remove(self, tx: Transaction, inode: Inode, slot: int) -> None:
        withdrawn = tx.places.withdraw(inode.ino, slot)
        if withdrawn is None:
            return
        (parent, name, wanted), number = withdrawn
        self._numbers[parent, name] = number
        self.last[inode.ino] = LostName(inode.id, self._fs.inodes.get(tx, parent).id, name)
        self.lost.append(inode.ino)
        if is_conflict_name(name) and (wanted is None or is_kept(name)):
            self.freed.append((parent, name))
        self._counted(tx, parent, inode, -1)
        self.changes.append(Change(parent, name, (inode.ino, inode.mode)))

    def remove_all(self, tx: Transaction, inode: Inode) -> None:
        """Take its names from a node that is seen as another one now. It may not have had any: a folder that
        has been made to live again may meet another of its name at once."""
        for slot in tx.places.slots(inode.ino):
            self.remove(tx, inode, slot)
        self.lost.append(inode.ino)

    def put(
        self,
        tx: Transaction,
        inode: Inode,
        slot: int,
        shown: ShownPlace,
        evict: Callable[[Transaction, Holder], None],
    ) -> None:
        """Show the inode there, and nowhere else by this slot; *evict* takes the name from another holder."""
        parent, name, wanted = shown
        holder = tx.places.holder(parent, name)
        if holder == (inode.ino, slot, shown):
            if place_key(inode.id, slot) in self._fs.changes.unsigned:
                tx.places.told(inode.ino, slot, self._told(inode, slot))
            return
        if holder is not None and holder[:2] != (inode.ino, slot):
            evict(tx, holder)
        self.remove(tx, inode, slot)
        number = self._numbers.get((parent, name))
        tx.places.insert(parent, name, inode.ino, slot, self._told(inode, slot), number, wanted)
        self._counted(tx, parent, inode, 1)
        self.changes.append(Change(parent, name))

    def _told(self, inode: Inode, slot: int) -> int:
        """The stamp of a name: one that no update has named can be taken back without an update."""
        return 1 if self._registers.values(place_key(inode.id, slot)) else 0

    def _counted(self, tx: Transaction, parent: int, inode: Inode, by: int) -> None:
        directory = self._fs.inodes.get(tx, parent)
        if inode.is_directory:
            directory.nlink += by
        else:
            inode.nlink += by
            self.changes.append(Change(inode.ino))
        self._fs.inodes.touch(inode)
        self._fs.inodes.touch(directory)
        self.changes.append(Change(parent))
