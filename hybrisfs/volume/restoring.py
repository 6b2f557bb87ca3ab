"""Putting back what files and folders were: an ordinary change of the tree, made here and now.

The bytes are named, not copied: nothing is uploaded again. What is there now becomes a version in its turn,
and what has come since and was not there then stays.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

from hybrisfs.errors import HybrisError, UsageError
from hybrisfs.registers.tree import Attr, attr_key, content_key
from hybrisfs.shown import shown
from hybrisfs.state.schema import ROOT_INO
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from hybrisfs.tree.inodes import Inode, Intent
from hybrisfs.tree.view import Aspect, Change
from hybrisfs.versions.contents import content_of
from hybrisfs.versions.tree import PastNode

__all__ = ["Restorer"]


class Restorer:
    """Changes the view of one volume; each call takes the volume's lock for one file or folder."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.files = 0
        """How many files have been put back."""

    def put(self, path: Sequence[bytes], node: PastNode) -> None:
        """Let there be at a path what *node* was; its folders are made where they are missing.

        Raises HybrisError when something else is in the way or bytes are gone, OSError.
        """
        if stat.S_ISDIR(node.attr.mode):
            self._put_folder(path, node.attr)
        else:
            self._put_file(path, node.attr, node.content)

    def put_content(self, path: Sequence[bytes], content: bytes | None, attr: Attr) -> None:
        """Let the file at a path have this content; it gets *attr* when there is none."""
        self._put_file(path, attr, content)

    def _put_folder(self, path: Sequence[bytes], attr: Attr) -> None:
        with self._fs.state.transaction() as tx:
            if not path:
                return
            parent, name, inode = self._locate(tx, path)
            if inode is None:
                self._made(
                    tx, parent, name, self._fs.make(tx, parent, name, attr.mode, attr.uid, attr.gid), attr
                )
            elif not inode.is_directory:
                raise self._in_the_way(path)

    def _put_file(self, path: Sequence[bytes], attr: Attr, content: bytes | None) -> None:
        with self._fs.state.transaction() as tx:
            self._require_bytes(tx, path, content)
            parent, name, inode = self._locate(tx, path)
            if inode is None:
                inode = self._fs.make(
                    tx,
                    parent,
                    name,
                    attr.mode,
                    attr.uid,
                    attr.gid,
                    rdev=attr.rdev,
                    target=attr.target or None,
                )
                self._made(tx, parent, name, inode, attr)
                if inode.is_file:
                    self._show_content(tx, inode, content, attr.mtime)
            elif not (inode.is_file and stat.S_ISREG(attr.mode)):
                if stat.S_IFMT(inode.mode) != stat.S_IFMT(attr.mode) or inode.target != (attr.target or None):
                    raise self._in_the_way(path)
            else:
                self._show_content(tx, inode, content, self._fs.inodes.now())
            self.files += 1

    def _made(self, tx: Transaction, parent: int, name: bytes, inode: Inode, attr: Attr) -> None:
        for key, value in attr.xattrs:
            self._fs.set_xattr(tx, inode, key, value, 0)
        inode.mtime = attr.mtime
        self._fs.inodes.touch(inode)
        self._fs.flush(tx)
        self._fs.shown([Change(parent, name), Change(parent)])

    def _show_content(self, tx: Transaction, inode: Inode, content: bytes | None, mtime: int) -> None:
        fs = self._fs
        fs.inodes.intend(tx, inode, Intent.WRITE)
        fs.received.show(tx, inode, content)
        inode.mtime, inode.ctime = mtime, fs.inodes.now()
        fs.changes.mark(content_key(inode.id), inode.ino)
        fs.changes.mark(attr_key(inode.id), inode.ino)
        fs.flush(tx)
        self._fs.shown([Change(inode.ino, aspect=Aspect.CONTENT)])

    def _locate(self, tx: Transaction, path: Sequence[bytes]) -> tuple[int, bytes, Inode | None]:
        """The folder, the name in it, and what is there; missing folders on the way are made."""
        parent = ROOT_INO
        for index, name in enumerate(path[:-1]):
            inode = self._fs.lookup(tx, parent, name)
            if inode is None:
                above = self._fs.get(tx, parent)
                inode = self._fs.make(tx, parent, name, stat.S_IFDIR | 0o755, above.uid, above.gid)
                self._fs.shown([Change(parent, name), Change(parent)])
            if not inode.is_directory:
                raise self._in_the_way(path[: index + 1])
            parent = inode.ino
        return parent, path[-1], self._fs.lookup(tx, parent, path[-1])

    def _require_bytes(self, tx: Transaction, path: Sequence[bytes], content: bytes | None) -> None:
        for run in content_of(content).runs:
            if run.chunk is not None and tx.chunks.find(run.chunk) is None:
                raise HybrisError(
                    f"that version of {_named(path)} cannot be restored",
                    "no cloud has its bytes",
                    "hybrisfs versions list shows the others.",
                )

    @staticmethod
    def _in_the_way(path: Sequence[bytes]) -> UsageError:
        return UsageError(
            f"{_named(path)} cannot be restored", "something else has that name now", "Choose another: --as."
        )


def _named(path: Sequence[bytes]) -> str:
    return shown(os.fsdecode(b"/".join(path))) if path else os.strerror(errno.ENOENT)
