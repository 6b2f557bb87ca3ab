"""What becomes of nodes that are entangled with others when this device changes one of them.

Saving a file that has concurrent versions beside it makes files of their own of these: what is signed then
supersedes them, and nobody is to lose work by it. Changing such a version makes a file of its own of it, too;
deleting it settles the conflict. Equal files of one name become one for good, folders of one name move and go
together.
"""

from __future__ import annotations

import os

from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.filesystem.inodes import Inode, Intent
from hybrisfs.filesystem.registers import attr_key, content_key, place_key
from hybrisfs.merge.nodes import Nodes

__all__ = ["Settlement"]


class Settlement:
    """`InodeTable.settle` of a volume with several devices; called with the volume's lock held."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._db = fs.db
        self._nodes = Nodes(fs)

    def __call__(self, inode: Inode, intent: Intent) -> None:
        if inode.derived:
            self._settle_copy(inode, intent)
            return
        if intent is not Intent.MOVE:
            self._release_copies(inode)
        for (node,) in self._db.execute("SELECT id FROM joined WHERE ino = ?", (inode.ino,)).fetchall():
            if not inode.is_directory:
                self._db.execute("DELETE FROM joined WHERE id = ?", (node,))
            elif intent is Intent.CHANGE:
                continue
            self._fs.changes.mark(place_key(node, 0), inode.ino)

    def _settle_copy(self, inode: Inode, intent: Intent) -> None:
        (original,) = self._db.execute("SELECT id FROM copy WHERE ino = ?", (inode.ino,)).fetchone()
        if intent is not Intent.REMOVE:
            self._release(inode)
        else:
            self._forget(inode)
        self._write_again(original)

    def _release_copies(self, inode: Inode) -> None:
        copies = self._db.execute("SELECT ino FROM copy WHERE id = ?", (inode.id,)).fetchall()
        for (ino,) in copies:
            self._release(self._fs.inodes.get(ino))
        if copies:
            self._write_again(inode.id)

    def _release(self, inode: Inode) -> None:
        """Make the version a node of its own, under the name that it has."""
        changes = self._fs.changes
        self._forget(inode)
        self._fs.inodes.identify(inode, os.urandom(16))
        inode.attr_stamp = inode.content_stamp = 0
        self._db.execute("UPDATE place SET wanted = NULL, stamp = 0 WHERE ino = ?", (inode.ino,))
        self._fs.inodes.touch(inode)
        for key in (place_key(inode.id, 0), attr_key(inode.id), content_key(inode.id)):
            changes.mark(key, inode.ino)

    def _forget(self, inode: Inode) -> None:
        self._db.execute("DELETE FROM copy WHERE ino = ?", (inode.ino,))
        inode.derived = False
        self._fs.inodes.entangle(inode.ino, False)

    def _write_again(self, node: bytes) -> None:
        """Sign the content that everybody sees once more, so that it supersedes the others."""
        self._fs.inodes.flush()
        original = self._nodes.find(node)
        if original is not None:
            self._fs.changes.mark(content_key(node), original.ino)
