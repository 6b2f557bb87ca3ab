"""Nodes of the view made from register values: their rows, attributes and contents."""

from __future__ import annotations

from hybrisfs.registers.tree import Attr, attr_key, place_key
from hybrisfs.state.shown_nodes import unmerged_ino
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import STALE, Inode, LostName

__all__ = ["Nodes"]


class Nodes:
    """Changes node rows as another device's updates want them, under the volume's lock."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._db = fs.db
        self._places = fs.places
        self._conflicts = fs.conflicts

    def find(self, node: bytes) -> Inode | None:
        """The inode of a node that has its own, and is not merged with another."""
        ino = unmerged_ino(self._db, node)
        if ino is None:
            return None
        inode = self._fs.inodes.get(ino)
        if not inode.orphan:
            return inode
        # A program still has the node open, which has no name here any more: should it get one again,
        # that program keeps what it has.
        self._fs.inodes.give_new_id(inode)
        return None

    def showing(self, node: bytes) -> Inode | None:
        """The inode that shows a node: its own, or the one that it is merged with."""
        inode = self.find(node)
        if inode is not None:
            return inode
        ino = self._conflicts.merged_into(node)
        return None if ino is None else self._fs.inodes.get(ino)

    def make(self, node: bytes, attr: Attr) -> Inode:
        """A new inode, without a name."""
        fs = self._fs
        inode = fs.inodes.create(attr.mode, attr.uid, attr.gid, attr.rdev, attr.target or None)
        fs.inodes.identify(inode, node)
        inode.nlink = 2 if inode.is_directory else 0
        self.set_attr(inode, attr, 1)
        if inode.is_file:
            fs.total_files += 1
        fs.inodes.flush()
        return inode

    def set_attr(self, inode: Inode, attr: Attr, stamp: int) -> Attr | None:
        """Show these attributes; those that the inode had, or None when it had these already."""
        inode.attr_stamp = stamp
        self._fs.inodes.touch(inode)
        before = self._fs.attributes.record(inode)
        if before == attr:
            return None
        inode.mode, inode.uid, inode.gid, inode.rdev = attr.mode, attr.uid, attr.gid, attr.rdev
        inode.mtime, inode.target = attr.mtime, attr.target or None
        inode.ctime = self._fs.inodes.now()
        if inode.xattrs or attr.xattrs:
            self._fs.nodes.clear_xattrs(inode.ino)
            self._fs.nodes.add_xattrs((inode.ino, name, value) for name, value in attr.xattrs)
            inode.xattrs = len(attr.xattrs)
        return before

    def set_content(self, inode: Inode, value: bytes | None, stamp: int) -> None:
        """Show this content instead of what is there. The inode has no open handle."""
        inode.content_stamp = stamp
        inode.dirty_since = 0.0
        if inode.looked_up:
            inode.kernel_cache = STALE
        self._fs.received.show(inode, value)
        self._fs.inodes.flush()

    def note_conflict(self, inode: Inode) -> None:
        """Note whether others hang on the node: `ConflictResolution` runs before this device changes it."""
        is_part = inode.is_conflict_copy or self._conflicts.is_conflict(inode.ino, inode.id)
        self._fs.inodes.note_conflict(inode.ino, is_part)

    def move_names(self, inode: Inode) -> Inode:
        """Move all names of an open file to a new inode, which is returned. The programs that have it open
        keep the old inode, without a name."""
        node = inode.id
        shown = self._places.first(inode.ino)
        assert shown is not None
        fresh = self.replace(inode)
        self.unname(inode, LostName(node, self._fs.inodes.get(shown.parent).id, shown.plain))
        return fresh

    def replace(self, inode: Inode) -> Inode:
        """Another inode for the node of a file, without its content: names, attributes and their unsigned
        changes go there. The old one keeps its content, under another id."""
        fs, changes = self._fs, self._fs.changes
        node = inode.id
        attr, nlink, stamp = fs.attributes.record(inode), inode.nlink, inode.attr_stamp
        fs.inodes.give_new_id(inode)
        fresh = self.make(node, attr)
        fresh.attr_stamp, fresh.nlink = stamp, nlink
        slots = self._places.slots(inode.ino)
        self._places.move_to(inode.ino, fresh.ino)
        self._conflicts.merge_instead(inode.ino, fresh.ino)
        changes.reassign([attr_key(node), *(place_key(node, slot) for slot in slots)], fresh.ino)
        self.note_conflict(fresh)
        return fresh

    def unname(self, inode: Inode, last: LostName | None) -> None:
        """The node has no name any more, or never had one (*last* is None). It goes, or stays for programs
        that have it open: what they write goes to a file with the last name (`ConflictResolution`)."""
        self._conflicts.forget(inode.ino)
        inode.nlink = 0
        inode.orphan = True
        inode.is_conflict_copy = False
        self._fs.inodes.note_conflict(inode.ino, False)
        if inode.handles and last is not None:
            self._fs.inodes.give_new_id(inode)
            self._fs.inodes.note_conflict(inode.ino, True)
            self._fs.inodes.lost_names[inode.ino] = last
        self._fs.unnamed(inode)
