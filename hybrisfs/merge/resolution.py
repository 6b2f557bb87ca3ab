"""What becomes of nodes in a conflict when this device changes one of them.

Saving a file that has concurrent versions beside it makes files of their own of these: what is signed then
supersedes them, and no device may lose work by it. Changing such a version makes a file of its own of it,
too; deleting it resolves the conflict. Equal files of one name become one for good, folders of one name move
and go together. What a program writes to an open file that has lost its name to another device's update
becomes a file beside the one that has the name now, in the folder in which it stood; was that removed, too,
it lives again, as it would have done by an edit of the closed file.
"""

from __future__ import annotations

from hybrisfs.kinds import PLACE
from hybrisfs.merge.arrivals import Arrivals
from hybrisfs.merge.beginning import begin_beside, begin_node
from hybrisfs.merge.nodes import Nodes
from hybrisfs.merge.origins import LogOrigins
from hybrisfs.registers.tree import content_key
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode, Intent
from hybrisfs.tree.view import Change

__all__ = ["ConflictResolution"]


class ConflictResolution:
    """`InodeTable.resolve` of a volume with several devices."""

    def __init__(self, fs: FileSystem, arrivals: Arrivals) -> None:
        self._fs = fs
        self._nodes = Nodes(fs)
        self._arrivals = arrivals

    def __call__(self, tx: Transaction, inode: Inode, intent: Intent) -> None:
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
        """Make files of their own of the versions of a node; whether there were any."""
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
            # It may be seen as one with another now, until it is signed that the file stands in that one.
            fs.inodes.disturbed.add((tx.places.parent_of(inode.ino), name))
