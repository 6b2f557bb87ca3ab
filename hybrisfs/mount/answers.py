"""What the kernel is told about nodes."""

from __future__ import annotations

import errno
import os
from typing import Final

from hybrisfs.filesystem.inodes import Inode
from hybrisfs.fuse import Attributes, Entry

__all__ = ["BLOCK", "FOREVER", "attributes_of", "entry_of", "sized"]

# The kernel may believe what it was told for long: it hears of changes that do not come through this mount.
FOREVER: Final = 86400.0
BLOCK: Final = 4096


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


def entry_of(inode: Inode) -> Entry:
    """What a name stands for."""
    return Entry(attributes_of(inode), FOREVER, FOREVER)


def sized(value: bytes, size: int) -> bytes | int:
    """The answer to who has room for *size* bytes; 0 asks how many there are. Raises OSError (ERANGE)."""
    if size == 0:
        return len(value)
    if len(value) > size:
        raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
    return value
