"""The rows of the view as updates of other devices make and change them: nodes and their names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hybrisfs.log import Registers
from hybrisfs.merge.names import Author, is_conflict_name, is_kept, number_names
from hybrisfs.registers.tree import Attr, attr_key, content_key, place_key
from hybrisfs.state.nodes import Holder, ShownPlace
from hybrisfs.state.shown_nodes import unmerged_ino
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import STALE, Inode, LostName
from hybrisfs.tree.unseen import Change

__all__ = ["Nodes", "Rows", "begin_beside", "begin_node"]


class Nodes:
    """Changes rows of nodes for the updates of other devices."""

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
        self.set_attr(tx, inode, attr)
        if inode.is_file:
            fs.total_files += 1
        fs.inodes.flush(tx)
        return inode

    def set_attr(self, tx: Transaction, inode: Inode, attr: Attr) -> Attr | None:
        """Show these attributes. Returns the former ones, or None when nothing changed."""
        inode.attr_stamp = 1
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
        """Note whether the node is in a conflict, so that `ConflictResolution` runs before this device
        changes it."""
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
        """Give the node of a file another inode without content: names, attributes and their unsigned changes
        move there. The old inode keeps its content under another id."""
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


# -- the rows of `place` as updates of other devices change them ----------------------------------------


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
        """Take the names from a node that was merged with another one. It may have none: a folder that lives
        again may meet another of its name at once."""
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


# -- making nodes of their own of files that belonged to another node -----------------------------------


def begin_node(tx: Transaction, fs: FileSystem, inode: Inode, former: bytes) -> None:
    """Make a file with one name, which was node *former* or a copy of it, a node of its own in the next
    update."""
    directory = fs.inodes.find(tx, tx.places.parent_of(inode.ino))
    fs.inodes.give_new_id(tx, inode, None if directory is None else fs.borders.inside(tx, directory.id))
    inode.attr_stamp = inode.content_stamp = 0
    fs.inodes.touch(inode)
    for key in (place_key(inode.id, 0), attr_key(inode.id), content_key(inode.id)):
        fs.changes.mark(key, inode.ino)
    fs.facets.inherit(tx, inode, former)


def begin_beside(
    tx: Transaction, fs: FileSystem, inode: Inode, parent: int, name: bytes, author: Author, former: bytes
) -> bytes:
    """`begin_node` for a file without a name: it wants *name* in directory *parent*. If that name is taken,
    the file gets a conflict name, which contains *author*, and its place says so (`unsigned.unsigned_place`).
    Returns the name under which it is shown."""
    places = tx.places
    shown, wanted = name, None
    if places.is_taken(parent, name):
        [shown] = number_names(name, [author], partial(places.is_taken, parent))
        wanted = name
    places.insert(parent, shown, inode.ino, 0, 0, wanted=wanted)
    inode.nlink = 1
    fs.inodes.disturbed.update(((parent, name), (parent, shown)))
    begin_node(tx, fs, inode, former)
    return shown
