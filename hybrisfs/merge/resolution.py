"""What becomes of nodes that other devices have changed when this device changes them, too.

Saving a file that has concurrent versions beside it makes files of their own of these: what is signed then
supersedes them, and no device may lose work by it. Changing such a version makes a file of its own of it,
too; deleting it resolves the conflict. Equal files of one name become one for good, folders of one name move
and go together. What a program writes to an open file that has lost its name to another device's update
becomes a file beside the one that has the name now, in the folder in which it stood; was that removed, too,
it lives again, as it would have done by an edit of the closed file.
"""

from __future__ import annotations

from functools import partial

from hybrisfs.kinds import PLACE
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.names import Author, name_by_id, number_names
from hybrisfs.merge.origins import LogOrigins
from hybrisfs.merge.rules import MOST_SHOWN, copy_id, standing_place, winner
from hybrisfs.merge.view_rows import Nodes, begin_beside, begin_node
from hybrisfs.registers.tree import content_key, place_key
from hybrisfs.registers.values import Value
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode, Intent
from hybrisfs.tree.names import RENAME_EXCHANGE
from hybrisfs.tree.unseen import Change

__all__ = ["ConflictResolution", "Sparing", "node_shown", "signed_content"]


class ConflictResolution:
    """Of a volume with several devices: only updates of others make conflicts."""

    def __init__(self, fs: FileSystem, arrivals: Arrivals) -> None:
        self._fs = fs
        self._nodes = Nodes(fs)
        self._arrivals = arrivals

    def resolve(self, tx: Transaction, inode: Inode, intent: Intent) -> None:
        """Called before this device changes a node that is part of a conflict."""
        if inode.orphan:
            if intent is Intent.WRITE and inode.ino in self._fs.inodes.lost_names:
                self._name_again(tx, inode)
            return
        if inode.is_conflict_copy:
            self._resolve_copy(tx, inode, intent)
            return
        if intent in (Intent.WRITE, Intent.REMOVE):
            self._release_copies(tx, inode.id)
        for node in tx.conflicts.merged_with(inode.ino):
            if inode.is_directory and intent not in (Intent.MOVE, Intent.REMOVE):
                continue
            if not inode.is_directory or intent is Intent.REMOVE:
                tx.conflicts.part(node)
            for key in tx.registers.with_prefix(PLACE.key(node)):
                self._fs.changes.mark(key, inode.ino)
            if not inode.is_directory and intent is not Intent.REMOVE:
                self._fs.facets.inherit(tx, inode, node)
            if inode.is_file and intent in (Intent.CHANGE, Intent.MOVE):
                # Its content outlives the equal file, also where another device overwrites this one.
                self._fs.changes.mark(content_key(inode.id), inode.ino)

    # -- concurrent versions ---------------------------------------------------------------------

    def _resolve_copy(self, tx: Transaction, inode: Inode, intent: Intent) -> None:
        original = tx.conflicts.original(inode.ino)
        assert original is not None
        if intent is Intent.REMOVE:
            self._forget(tx, inode)
        else:
            self._release(tx, inode, original)
        if not self._release_copies(tx, original):
            self._write_again(tx, original)

    def _release_copies(self, tx: Transaction, node: bytes) -> bool:
        """Make the versions of a node files of their own. Returns whether there were any."""
        copies = tx.conflicts.copies_of(node)
        for ino in copies:
            self._release(tx, self._fs.inodes.get(tx, ino), node)
        if copies:
            self._write_again(tx, node)
        return bool(copies)

    def _release(self, tx: Transaction, inode: Inode, original: bytes) -> None:
        """Make the version of a node a node of its own, under the name that it has."""
        self._forget(tx, inode)
        tx.places.keep_name(inode.ino)
        begin_node(tx, self._fs, inode, original)

    def _forget(self, tx: Transaction, inode: Inode) -> None:
        tx.conflicts.end_copy(inode.ino)
        inode.is_conflict_copy = False
        self._fs.inodes.note_conflict(inode.ino, False)

    def _write_again(self, tx: Transaction, node: bytes) -> None:
        """Sign the content that all devices show once more, so that it supersedes the others."""
        self._fs.inodes.flush(tx)
        original = self._nodes.find(tx, node)
        if original is not None:
            self._fs.changes.mark(content_key(node), original.ino)

    # -- open files without a name ---------------------------------------------------------------

    def _name_again(self, tx: Transaction, inode: Inode) -> None:
        fs = self._fs
        fs.inodes.flush(tx)
        place = fs.inodes.lost_names.pop(inode.ino)
        fs.inodes.note_conflict(inode.ino, False)
        holder = self._nodes.find(tx, place.node)
        shown = None if holder is None else tx.places.first(holder.ino)
        if shown is not None:
            parent, name = shown.parent, shown.plain
        else:
            folder = self._arrivals.folder(tx, place.folder)
            parent, name = (ROOT_INO if folder is None else folder.ino), place.name
        tx.nodes.forget_nameless(inode.ino)
        inode.orphan = False
        fs.total_files += 1
        name = begin_beside(tx, fs, inode, parent, name, LogOrigins(tx).myself(), place.node)
        self._fs.shown([Change(parent, name), Change(parent), Change(inode.ino)])
        if parent != ROOT_INO and not tx.places.is_shown(parent):
            self._fs.shown(self._arrivals.reveal(tx, [place.folder]))
            # It may be merged with another now, until it is signed that the file stands in that one.
            fs.inodes.disturbed.add((tx.places.parent_of(inode.ino), name))


def node_shown(tx: Transaction, inode: Inode) -> bytes:
    """The node that a file is, or is a version of."""
    if not inode.is_conflict_copy:
        return inode.id
    original = tx.conflicts.original(inode.ino)
    assert original is not None
    return original


def signed_content(tx: Transaction, inode: Inode) -> Value | None:
    """The signed content that a file shows, or that the version of one shows."""
    node = node_shown(tx, inode)
    values = tx.registers.values(content_key(node))
    if not inode.is_conflict_copy:
        return winner(values)
    return winner([one for one in values if copy_id(node, one.value) == inode.id])


# -- what programs do to files that other devices have changed under their eyes (`tree.unseen`) ---------
# It is done to what the program could know, as it would have been had the program come first: the two changes
# are concurrent then, and both are kept. A file that loses its name to another one stands beside it under a
# conflict name; a file whose name is removed stays; of one that is overwritten a copy is made, which names
# the same chunks. All devices see that like any other conflict.


class Sparing:
    """Asked before the filesystem does what a program wants."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._nodes = Nodes(fs)

    def before_rename(
        self, tx: Transaction, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> None:
        """A program is about to rename a file. A file that the program cannot know gives up the new name. A
        file that the program cannot know and moves aside stays unknown to it."""
        unseen = self._fs.unseen
        moved = self._fs.names.find(tx, parent, name) if unseen else None
        if moved is None:
            return
        there = self._fs.names.find(tx, new_parent, new_name)
        unseen.renamed(moved.ino, (parent, name), (new_parent, new_name))
        if there is None or there is moved:
            return
        if flags == RENAME_EXCHANGE:
            unseen.renamed(there.ino, (new_parent, new_name), (parent, name))
        elif not (flags or moved.is_directory or there.is_directory):
            self._make_way(tx, there, new_parent, new_name)

    def before_unlink(self, tx: Transaction, parent: int, name: bytes) -> bool:
        """A program is about to remove a name; False when it means a file that is not there any more, so
        that there is nothing to remove."""
        inode = self._fs.names.find(tx, parent, name) if self._fs.unseen else None
        if inode is None or inode.is_directory:
            return True
        if not self._fs.unseen.may_remove_unseen(parent, name, inode.ino):
            return True
        self._fs.unseen.spared(inode.ino)
        self._fs.shown([Change(parent, name), Change(parent), Change(inode.ino)])
        return False

    def before_overwrite(self, tx: Transaction, inode: Inode, start: int) -> None:
        """A program is about to change the bytes of a file from *start* on, or to cut them off."""
        if not self._fs.unseen or inode.orphan or start >= inode.size:
            return
        if self._fs.unseen.may_overwrite_unseen(inode.ino):
            self._fs.unseen.spared(inode.ino)
            if content_key(inode.id) not in self._fs.changes.unsigned:
                self._copy_beside(tx, inode)

    def _make_way(self, tx: Transaction, inode: Inode, parent: int, name: bytes) -> None:
        """Show the file beside its name if the program that gives the name to another file cannot know it.
        The register of the file, if it has one, goes on wanting the name."""
        if not self._fs.unseen.may_replace_unseen(parent, name, inode.ino):
            return
        self._fs.unseen.spared(inode.ino)
        holder = tx.places.holder(parent, name)
        assert holder is not None
        wanted = holder.shown.plain
        shown = self._name_beside(tx, inode, holder.slot, parent, wanted)
        tx.places.put_beside(parent, name, shown)
        self._fs.inodes.disturbed.update(((parent, wanted), (parent, shown)))
        self._fs.shown([Change(parent, shown), Change(parent), Change(inode.ino)])

    def _name_beside(self, tx: Transaction, inode: Inode, slot: int, parent: int, wanted: bytes) -> bytes:
        if tx.places.are_beside(parent, wanted, MOST_SHOWN):  # not all are looked at to decide names
            return name_by_id(wanted, inode.id, slot)
        author = self._author_of(tx, inode, slot)
        [shown] = number_names(wanted, [author], partial(tx.places.is_taken, parent))
        return shown

    def _author_of(self, tx: Transaction, inode: Inode, slot: int) -> Author:
        """The device that gave the file its name, or that wrote the version."""
        if inode.is_conflict_copy:
            version = signed_content(tx, inode)
            stamp = version.stamp if version is not None else None
        else:
            standing = standing_place(tx.registers.values(place_key(inode.id, slot)))
            stamp = standing[0] if standing is not None else None
        return LogOrigins(tx).myself() if stamp is None else LogOrigins(tx).author(stamp)

    def _copy_beside(self, tx: Transaction, inode: Inode) -> None:
        """Make a file of the signed content of this one, which has a name."""
        content = signed_content(tx, inode)
        if content is None:
            return
        fs = self._fs
        beside = tx.places.first(inode.ino)
        assert beside is not None
        parent, wanted = beside.parent, beside.plain
        copy = self._nodes.make(tx, fs.inodes.new_id(inode.mode), fs.attributes.record(tx, inode))
        fs.received.show(tx, copy, content.value)
        shown = begin_beside(
            tx, fs, copy, parent, wanted, LogOrigins(tx).author(content.stamp), node_shown(tx, inode)
        )
        fs.flush(tx)
        self._fs.shown([Change(parent, shown), Change(parent)])
