"""Attributes of nodes, as the kernel gets and sends them."""

from __future__ import annotations

import errno
from typing import Final

from hybrisfs import fuse
from hybrisfs.errors import failure
from hybrisfs.fuse import Attributes, StatVfs
from hybrisfs.state.state import Transaction
from hybrisfs.tree.content import BLOCK
from hybrisfs.tree.filesystem import FileSystem, Space
from hybrisfs.tree.inodes import Inode

__all__ = ["FOREVER", "attributes_of", "change_attributes", "sized", "statvfs_of"]

# The kernel may keep answers for long: it is notified of changes that do not come through this mount.
FOREVER: Final = 86400.0


def attributes_of(inode: Inode) -> Attributes:
    """What stat(2) shows."""
    return Attributes(
        inode.ino,
        inode.mode,
        inode.nlink,
        inode.uid,
        inode.gid,
        inode.rdev,
        inode.size,
        inode.blocks,
        inode.atime,
        inode.mtime,
        inode.ctime,
        BLOCK,
    )


def change_attributes(
    tx: Transaction, fs: FileSystem, inode: Inode, attributes: Attributes, to_set: int
) -> None:
    """Obey setattr, but for the size."""
    now = fs.inodes.now()
    fs.attributes.change(
        tx,
        inode,
        mode=attributes.mode if to_set & fuse.FUSE_SET_ATTR_MODE else None,
        uid=attributes.uid if to_set & fuse.FUSE_SET_ATTR_UID else None,
        gid=attributes.gid if to_set & fuse.FUSE_SET_ATTR_GID else None,
        atime=now
        if to_set & fuse.FUSE_SET_ATTR_ATIME_NOW
        else attributes.atime_ns
        if to_set & fuse.FUSE_SET_ATTR_ATIME
        else None,
        mtime=now
        if to_set & fuse.FUSE_SET_ATTR_MTIME_NOW
        else attributes.mtime_ns
        if to_set & fuse.FUSE_SET_ATTR_MTIME
        else None,
    )


def statvfs_of(space: Space) -> StatVfs:
    """What statvfs(2) shows."""
    free = space.free // BLOCK
    return StatVfs(
        bsize=BLOCK,
        frsize=BLOCK,
        blocks=space.total // BLOCK,
        bfree=free,
        bavail=free,
        files=space.files + free,
        ffree=free,
    )


def sized(value: bytes, size: int) -> bytes | int:
    """The answer for a caller with room for *size* bytes; 0 asks how many there are. Raises OSError
    (ERANGE)."""
    if size == 0:
        return len(value)
    if len(value) > size:
        raise failure(errno.ERANGE)
    return value
