"""Nodes of the view made from register values: their rows, attributes and contents."""

from __future__ import annotations

from hybrisfs.registers.tree import Attr, attr_key, place_key
from hybrisfs.state.shown_nodes import unmerged_ino
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import STALE, Inode, LostName

__all__ = ["Nodes"]


class Nodes:
    """Changes node rows as another device's updates want them."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs

    def find(self, tx: Transaction, node: bytes) -> Inode | None:
        """The inode of a node that has its own, and is not merged with another."""
        ino = unmerged_ino(tx, node)
        if ino is None:
            return None
        inode = self._fs.inodes.get(tx, ino)
        if not inode.orphan:
            return inode
        # A program still has the node open, which has no name here any more: should it get one again,
        # that program keeps what it has.
        self._fs.inodes.give_new_id(tx, inode)
        return None

    def showing(self, tx: Transaction, node: bytes) -> Inode | None:
        """The inode that shows a node: its own, or the one that it is merged with."""
        inode = self.find(tx, node)
        if inode is not None:
            return inode
        ino = tx.conflicts.merged_into(node)
        return None if ino is None else self._fs.inodes.get(tx, ino)

    def make(self, tx: Transaction, node: bytes, attr: Attr) -> Inode:
        """A new inode, without a name."""
        fs = self._fs
        inode = fs.inodes.create(tx, attr.mode, attr.uid, attr.gid, attr.rdev, attr.target or None)
        fs.inodes.identify(tx, inode, node)
        inode.nlink = 2 if inode.is_directory else 0
        self.set_attr(tx, inode, attr, 1)
        if inode.is_file:
            fs.total_files += 1
        fs.inodes.flush(tx)
        return inode

    def set_attr(self, tx: Transaction, inode: Inode, attr: Attr, stamp: int) -> Attr | None:
        """Show these attributes; those that the inode had, or None when it had these already."""
        inode.attr_stamp = stamp
        self._fs.inodes.touch(inode)
        before = self._fs.attributes.record(tx, inode)
        if before == attr:
            return None
        inode.mode, inode.uid, inode.gid, inode.rdev = attr.mode, attr.uid, attr.gid, attr.rdev
        inode.mtime, inode.target = attr.mtime, attr.target or None
        inode.ctime = self._fs.inodes.now()
        if inode.xattrs or attr.xattrs:
            tx.nodes.clear_xattrs(inode.ino)
            tx.nodes.add_xattrs((inode.ino, name, value) for name, value in attr.xattrs)
            inode.xattrs = len(attr.xattrs)
        return before

    def set_content(self, tx: Transaction, inode: Inode, value: bytes | None, stamp: int) -> None:
        """Show this content instead of what is there. The inode has no open handle."""
        inode.content_stamp = stamp
        inode.dirty_since = 0.0
        if inode.looked_up:
            inode.kernel_cache = STALE
        self._fs.received.show(tx, inode, value)
        self._fs.inodes.flush(tx)

    def note_conflict(self, tx: Transaction, inode: Inode) -> None:
        """Note whether others hang on the node: `ConflictResolution` runs before this device changes it."""
        is_part = inode.is_conflict_copy or tx.conflicts.is_conflict(inode.ino, inode.id)
        self._fs.inodes.note_conflict(inode.ino, is_part)

    def move_names(self, tx: Transaction, inode: Inode) -> Inode:
        """Move all names of an open file to a new inode, which is returned. The programs that have it open
        keep the old inode, without a name."""
        node = inode.id
        shown = tx.places.first(inode.ino)
        assert shown is not None
        fresh = self.replace(tx, inode)
        self.unname(tx, inode, LostName(node, self._fs.inodes.get(tx, shown.parent).id, shown.plain))
        return fresh

    def replace(self, tx: Transaction, inode: Inode) -> Inode:
        """Another inode for the node of a file, without its content: names, attributes and their unsigned
        changes go there. The old one keeps its content, under another id."""
        fs, changes = self._fs, self._fs.changes
        node = inode.id
        attr, nlink, stamp = fs.attributes.record(tx, inode), inode.nlink, inode.attr_stamp
        fs.inodes.give_new_id(tx, inode)
        fresh = self.make(tx, node, attr)
        fresh.attr_stamp, fresh.nlink = stamp, nlink
        slots = tx.places.slots(inode.ino)
        tx.places.move_to(inode.ino, fresh.ino)
        tx.conflicts.merge_instead(inode.ino, fresh.ino)
        changes.reassign([attr_key(node), *(place_key(node, slot) for slot in slots)], fresh.ino)
        self.note_conflict(tx, fresh)
        return fresh

    def unname(self, tx: Transaction, inode: Inode, last: LostName | None) -> None:
        """The node has no name any more, or never had one (*last* is None). It goes, or stays for programs
        that have it open: what they write goes to a file with the last name (`ConflictResolution`)."""
        tx.conflicts.forget(inode.ino)
        inode.nlink = 0
        inode.orphan = True
        inode.is_conflict_copy = False
        self._fs.inodes.note_conflict(inode.ino, False)
        if inode.handles and last is not None:
            self._fs.inodes.give_new_id(tx, inode)
            self._fs.inodes.note_conflict(inode.ino, True)
            self._fs.inodes.lost_names[inode.ino] = last
        self._fs.unnamed(tx, inode)
