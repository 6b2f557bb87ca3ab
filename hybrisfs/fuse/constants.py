"""Numbers of the FUSE low-level interface, under the names that libfuse and Linux give them."""

from __future__ import annotations

# Bits of `to_set` in setattr (fuse_lowlevel.h). ATIME_NOW and MTIME_NOW come with ATIME and MTIME
# and mean that the time given is void and the current time is to be taken.
FUSE_SET_ATTR_MODE = 1 << 0
FUSE_SET_ATTR_UID = 1 << 1
FUSE_SET_ATTR_GID = 1 << 2
FUSE_SET_ATTR_SIZE = 1 << 3
FUSE_SET_ATTR_ATIME = 1 << 4
FUSE_SET_ATTR_MTIME = 1 << 5
FUSE_SET_ATTR_ATIME_NOW = 1 << 7
FUSE_SET_ATTR_MTIME_NOW = 1 << 8
FUSE_SET_ATTR_CTIME = 1 << 10
FUSE_SET_ATTR_KILL_SUID = 1 << 11
FUSE_SET_ATTR_KILL_SGID = 1 << 12

# Flags of renameat2(2) and setxattr(2).
RENAME_NOREPLACE = 1 << 0
RENAME_EXCHANGE = 1 << 1
RENAME_WHITEOUT = 1 << 2
XATTR_CREATE = 1
XATTR_REPLACE = 2

# Modes of fallocate(2).
FALLOC_FL_KEEP_SIZE = 0x01
FALLOC_FL_PUNCH_HOLE = 0x02
FALLOC_FL_ZERO_RANGE = 0x10

# Capabilities (fuse_common.h): what kernel and filesystem agree upon when the mount starts.
FUSE_CAP_ASYNC_READ = 1 << 0
FUSE_CAP_ATOMIC_O_TRUNC = 1 << 3
FUSE_CAP_DONT_MASK = 1 << 6
FUSE_CAP_AUTO_INVAL_DATA = 1 << 12
FUSE_CAP_READDIRPLUS = 1 << 13
FUSE_CAP_READDIRPLUS_AUTO = 1 << 14
FUSE_CAP_ASYNC_DIO = 1 << 15
FUSE_CAP_WRITEBACK_CACHE = 1 << 16
FUSE_CAP_PARALLEL_DIROPS = 1 << 18
FUSE_CAP_POSIX_ACL = 1 << 19
# Without this, Linux asks for the attribute security.capability before each write. With it, the filesystem
# has to clear that and the set-user-id and set-group-id bits itself, on write, truncate and chown.
FUSE_CAP_HANDLE_KILLPRIV_V2 = 1 << 21
FUSE_CAP_CACHE_SYMLINKS = 1 << 23
FUSE_CAP_EXPLICIT_INVAL_DATA = 1 << 25

FUSE_ROOT_ID = 1

# Flags of the kernel's struct fuse_open_out (linux/fuse.h).
FOPEN_DIRECT_IO = 1 << 0
FOPEN_KEEP_CACHE = 1 << 1
FOPEN_NONSEEKABLE = 1 << 2
FOPEN_CACHE_DIR = 1 << 3
FOPEN_PARALLEL_DIRECT_WRITES = 1 << 6
