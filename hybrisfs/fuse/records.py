"""Answers and how they travel.

Every answer is packed straight into the record that the kernel reads (linux/fuse.h), and handed to libfuse as
the bytes of the reply. That layout is the kernel's own ABI: equal on every architecture and with every
libfuse, which cannot be said of `struct stat`, `struct fuse_file_info` and `struct fuse_entry_param`. Packed
answers are immutable `bytes`, so replies may be built and sent by any number of threads at once.

    fuse_attr       ino size blocks atime mtime ctime (u64), atimensec mtimensec ctimensec mode nlink uid gid
                    rdev blksize flags (u32)                                                       88 bytes
    fuse_entry_out  nodeid generation entry_valid attr_valid (u64), entry_valid_nsec attr_valid_nsec (u32),
                    fuse_attr                                                                     128 bytes
    fuse_attr_out   attr_valid (u64), attr_valid_nsec dummy (u32), fuse_attr                      104 bytes
    fuse_open_out   fh (u64), open_flags padding (u32)                                             16 bytes
    fuse_kstatfs    blocks bfree bavail files ffree (u64), bsize namelen frsize padding spare[6] (u32)  80
    bytes fuse_write_out, fuse_getxattr_out   size padding (u32)                                          8
    bytes fuse_lseek_out  offset (u64)                                                                    8
    bytes
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias

import hybrisfs.fuse.constants as c

__all__ = [
    "Attributes",
    "Buffer",
    "Entry",
    "Opened",
    "StatVfs",
    "attributes_answer",
    "create_answer",
    "entry_answer",
    "offset_answer",
    "open_answer",
    "size_answer",
    "statvfs_answer",
    "xattr_answer",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

_SECOND = 1_000_000_000
_ATTR_FIELDS = "QQQqqqIIIIIIIIII"

ENTRY_OUT = Struct("=QQQQII" + _ATTR_FIELDS)
ATTR_OUT = Struct("=QII" + _ATTR_FIELDS)
OPEN_OUT = Struct("=QII")
STATFS_OUT = Struct("=QQQQQIIII24x")
SIZE_OUT = Struct("=II")
LSEEK_OUT = Struct("=Q")


class Attributes(NamedTuple):
    """What stat(2) tells. Times are nanoseconds since 1970, `blocks` counts 512 bytes, `mode` includes the
    file type.
    """

    ino: int
    mode: int
    nlink: int = 1
    uid: int = 0
    gid: int = 0
    rdev: int = 0
    size: int = 0
    blocks: int = 0
    atime_ns: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    blksize: int = 4096


class Entry(NamedTuple):
    """A name's inode. The inode number is the node id by which the kernel will speak of it, until it forgets
    it.

    The kernel may use the name for `entry_timeout` and the attributes for `attr_timeout` seconds without
    asking.
    """

    attributes: Attributes
    entry_timeout: float = 0.0
    attr_timeout: float = 0.0
    generation: int = 0

    @classmethod
    def negative(cls, timeout: float) -> Entry:
        """The answer that there is no such name, and that this holds for `timeout` seconds."""
        return cls(_NOTHING, timeout)


class Opened(NamedTuple):
    """An open file or directory: `fh` (64 bits) comes back with every request made through it.

    `direct_io` bypasses the page cache, `keep_cache` keeps what is cached from an earlier open,
    `cache_readdir` lets the kernel keep the listing, `nonseekable` forbids lseek, `parallel_direct_writes`
    lets direct writes to one file come at the same time.
    """

    fh: int = 0
    direct_io: bool = False
    keep_cache: bool = False
    cache_readdir: bool = False
    nonseekable: bool = False
    parallel_direct_writes: bool = False


class StatVfs(NamedTuple):
    """What statvfs(3) tells; `blocks`, `bfree` and `bavail` count `frsize` bytes."""

    bsize: int
    frsize: int
    blocks: int
    bfree: int
    bavail: int
    files: int
    ffree: int
    namemax: int = 255


_NOTHING = Attributes(0, 0, 0)


@lru_cache(maxsize=64)
def _split(timeout: float) -> tuple[int, int]:
    seconds = int(timeout)
    return seconds, int((timeout - seconds) * _SECOND)


def entry_answer(entry: Entry) -> bytes:
    """Pack struct fuse_entry_out."""
    attributes, entry_timeout, attr_timeout, generation = entry
    ino, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, blksize = attributes
    entry_valid, entry_nsec = _split(entry_timeout)
    attr_valid, attr_nsec = _split(attr_timeout)
    # fmt: off
    return ENTRY_OUT.pack(
        ino, generation, entry_valid, attr_valid, entry_nsec, attr_nsec,
        ino, size, blocks, atime // _SECOND, mtime // _SECOND, ctime // _SECOND,
        atime % _SECOND, mtime % _SECOND, ctime % _SECOND,
        mode, nlink, uid, gid, rdev & 0xFFFFFFFF, blksize, 0,
    )
    # fmt: on


def attributes_answer(answer: tuple[Attributes, float]) -> bytes:
    """Pack struct fuse_attr_out."""
    attributes, timeout = answer
    ino, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, blksize = attributes
    valid, nsec = _split(timeout)
    # fmt: off
    return ATTR_OUT.pack(
        valid, nsec, 0,
        ino, size, blocks, atime // _SECOND, mtime // _SECOND, ctime // _SECOND,
        atime % _SECOND, mtime % _SECOND, ctime % _SECOND,
        mode, nlink, uid, gid, rdev & 0xFFFFFFFF, blksize, 0,
    )
    # fmt: on


def open_answer(opened: Opened) -> bytes:
    """Pack struct fuse_open_out."""
    fh, direct_io, keep_cache, cache_readdir, nonseekable, parallel = opened
    flags = 0
    if direct_io:
        flags |= c.FOPEN_DIRECT_IO
    if keep_cache:
        flags |= c.FOPEN_KEEP_CACHE
    if cache_readdir:
        flags |= c.FOPEN_CACHE_DIR
    if nonseekable:
        flags |= c.FOPEN_NONSEEKABLE
    if parallel:
        flags |= c.FOPEN_PARALLEL_DIRECT_WRITES
    return OPEN_OUT.pack(fh, flags, 0)


def create_answer(answer: tuple[Entry, Opened]) -> bytes:
    """Pack struct fuse_entry_out followed by struct fuse_open_out."""
    entry, opened = answer
    return entry_answer(entry) + open_answer(opened)


def statvfs_answer(v: StatVfs) -> bytes:
    """Pack struct fuse_kstatfs."""
    return STATFS_OUT.pack(v.blocks, v.bfree, v.bavail, v.files, v.ffree, v.bsize, v.namemax, v.frsize, 0)


def size_answer(size: int) -> bytes:
    """Pack struct fuse_write_out: how many bytes were written or copied."""
    return SIZE_OUT.pack(size, 0)


def xattr_answer(answer: Buffer | int) -> Buffer:
    """The value, or struct fuse_getxattr_out when only its size was asked for."""
    return SIZE_OUT.pack(answer, 0) if isinstance(answer, int) else answer


def offset_answer(offset: int) -> bytes:
    """Pack struct fuse_lseek_out."""
    return LSEEK_OUT.pack(offset)
