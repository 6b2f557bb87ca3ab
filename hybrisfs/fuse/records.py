"""What the kernel is answered: attributes, entries, numbers, listings.

Every answer is packed straight into the record that the kernel reads (linux/fuse.h). That layout is the
kernel's own ABI, equal on every architecture. Packed answers are immutable `bytes`, so they may be built and
sent by any number of threads at once. What the kernel asks is in requests.py.

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

__all__ = [
    "Attributes",
    "Buffer",
    "Entry",
    "Listing",
    "ListingPlus",
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
        flags |= FOPEN_DIRECT_IO
    if keep_cache:
        flags |= FOPEN_KEEP_CACHE
    if cache_readdir:
        flags |= FOPEN_CACHE_DIR
    if nonseekable:
        flags |= FOPEN_NONSEEKABLE
    if parallel:
        flags |= FOPEN_PARALLEL_DIRECT_WRITES
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


# -- numbers under the names that Linux gives them (linux/fuse.h, linux/fs.h, linux/xattr.h) -----------


# Bits of `to_set` in setattr. ATIME_NOW and MTIME_NOW come with ATIME and MTIME and mean that the time given
# is void and the current time is to be taken.
FATTR_MODE = 1 << 0
FATTR_UID = 1 << 1
FATTR_GID = 1 << 2
FATTR_SIZE = 1 << 3
FATTR_ATIME = 1 << 4
FATTR_MTIME = 1 << 5
FATTR_FH = 1 << 6  # not for handlers: it says whether there is a handle
FATTR_ATIME_NOW = 1 << 7
FATTR_MTIME_NOW = 1 << 8
FATTR_CTIME = 1 << 10
FATTR_KILL_SUIDGID = 1 << 11
FATTR_ALL = (
    FATTR_MODE
    | FATTR_UID
    | FATTR_GID
    | FATTR_SIZE
    | FATTR_ATIME
    | FATTR_MTIME
    | FATTR_ATIME_NOW
    | FATTR_MTIME_NOW
    | FATTR_CTIME
    | FATTR_KILL_SUIDGID
)
"""What handlers see."""

# Flags of renameat2(2) and setxattr(2).
RENAME_NOREPLACE = 1 << 0
RENAME_EXCHANGE = 1 << 1
RENAME_WHITEOUT = 1 << 2
XATTR_CREATE = 1
XATTR_REPLACE = 2

# Modes of fallocate(2).
FALLOC_FL_PUNCH_HOLE = 0x02
FALLOC_FL_ZERO_RANGE = 0x10

# Capabilities: what kernel and filesystem agree upon when the mount starts.
FUSE_ASYNC_READ = 1 << 0
FUSE_BIG_WRITES = 1 << 5
FUSE_DONT_MASK = 1 << 6
FUSE_DO_READDIRPLUS = 1 << 13
FUSE_READDIRPLUS_AUTO = 1 << 14
FUSE_PARALLEL_DIROPS = 1 << 18
FUSE_POSIX_ACL = 1 << 20
FUSE_MAX_PAGES = 1 << 22
FUSE_CACHE_SYMLINKS = 1 << 23
FUSE_EXPLICIT_INVAL_DATA = 1 << 25
# Without this, Linux asks for the attribute security.capability before each write. With it, the filesystem
# has to clear that and the set-user-id and set-group-id bits itself, on write, truncate and chown.
FUSE_HANDLE_KILLPRIV_V2 = 1 << 28

FUSE_ROOT_ID = 1

# Flags of fuse_open_out.
FOPEN_DIRECT_IO = 1 << 0
FOPEN_KEEP_CACHE = 1 << 1
FOPEN_NONSEEKABLE = 1 << 2
FOPEN_CACHE_DIR = 1 << 3
FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6

# Flags of a write.
FUSE_WRITE_KILL_SUIDGID = 1 << 2

# What notices to the kernel are about.
FUSE_NOTIFY_INVAL_INODE = 2
FUSE_NOTIFY_INVAL_ENTRY = 3


# -- directory listings in the form that the kernel reads -----------------------------------------------
# fuse_dirent      ino off (u64), namelen type (u32), name, zeros up to a multiple of 8
# fuse_direntplus  fuse_entry_out (128 bytes), fuse_dirent


_DIRENT = Struct("=QQII")
_HEADER = _DIRENT.size
_HEADER_PLUS = 128 + _HEADER
_PADDING = tuple(bytes(-length % 8) for length in range(8))
_UNKNOWN_ENTRY = Entry(Attributes(0, 0, 0))


class Listing:
    """The answer to readdir: names until `size` bytes are full."""

    __slots__ = ("_parts", "_room")

    def __init__(self, size: int) -> None:
        self._room = size
        self._parts: list[bytes] = []

    def add(self, name: bytes, ino: int, mode: int, next_offset: int) -> bool:
        """Append a name, unless it does not fit: then answer False.

        Of `mode` only the file type counts. `next_offset` (1 to 2**63-1) is where the listing goes on after
        this name: the kernel passes it back as the offset of the next readdir.
        """
        length = len(name)
        padding = _PADDING[length & 7]
        room = self._room - _HEADER - length - len(padding)
        if room < 0:
            return False
        self._room = room
        self._parts += (_DIRENT.pack(ino, next_offset, length, (mode >> 12) & 15), name, padding)
        return True

    def getvalue(self) -> bytes:
        """What was added so far, as the kernel reads it; empty means the end of the directory."""
        return b"".join(self._parts)


class ListingPlus:
    """The answer to readdirplus: names with their attributes until `size` bytes are full."""

    __slots__ = ("_parts", "_room")

    def __init__(self, size: int) -> None:
        self._room = size
        self._parts: list[bytes] = []

    def add(self, name: bytes, entry: Entry, next_offset: int) -> bool:
        """Append a name, unless it does not fit: then answer False.

        A name that was taken counts as one lookup of its inode (a forget will come), but `.` and `..` do not:
        add them with `add_name`.
        """
        attributes = entry[0]
        return self._add(name, entry_answer(entry), attributes[0], attributes[1], next_offset)

    def add_name(self, name: bytes, ino: int, mode: int, next_offset: int) -> bool:
        """Append a name without attributes: no lookup is counted."""
        return self._add(name, entry_answer(_UNKNOWN_ENTRY), ino, mode, next_offset)

    def _add(self, name: bytes, entry: bytes, ino: int, mode: int, next_offset: int) -> bool:
        length = len(name)
        padding = _PADDING[length & 7]
        room = self._room - _HEADER_PLUS - length - len(padding)
        if room < 0:
            return False
        self._room = room
        self._parts += (entry, _DIRENT.pack(ino, next_offset, length, (mode >> 12) & 15), name, padding)
        return True

    def getvalue(self) -> bytes:
        """What was added so far, as the kernel reads it; empty means the end of the directory."""
        return b"".join(self._parts)
