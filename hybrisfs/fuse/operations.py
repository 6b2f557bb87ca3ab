"""The base class of a filesystem served through FUSE."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NoReturn

from hybrisfs.fuse.records import Attributes, Buffer, Entry, Listing, ListingPlus, Opened, StatVfs
from hybrisfs.fuse.request import Later, Request

__all__ = ["Operations"]


def _missing() -> NoReturn:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


class Operations:
    """Handlers of the kernel's requests. Override what the filesystem can do; the rest is answered ENOSYS.

    A handler *returns* its answer, or raises OSError to answer its errno; any other exception is logged and
    answered EIO. It may instead return LATER, and answer through `request.reply` or `request.fail` from any
    thread.

    All handlers run in the one thread that called `MountedSession.run`: one that waits holds up the whole
    mount. None of them may touch the mount itself or call `MountedSession.notify_*`: the kernel would wait
    for the answer. Names, links and paths are bytes. `ino` is what an Entry answered (the root is 1), `fh`
    what `open`, `create` or `opendir` answered, None where the kernel names none.

    Operations that are not here (POSIX locks, flock, ioctl, poll, bmap) are done by the kernel or not at all.
    """

    def init(self) -> None:
        """The mount starts: the first call of all."""

    def destroy(self) -> None:
        """The mount has ended: the last call of all, made by `MountedSession.close`."""

    def forget(self, forgets: Sequence[tuple[int, int]]) -> None:
        """The kernel drops (ino, count) lookups each. An inode is forgotten when all its lookups are dropped:
        each Entry that was answered and each name in a ListingPlus is one. No answer; at unmount none may
        come.
        """

    def lookup(self, request: Request, parent: int, name: bytes) -> Entry | Later:
        """Find a name. Raise ENOENT, or answer `Entry.negative(timeout)` to have the absence cached."""
        _missing()

    def getattr(self, request: Request, ino: int, fh: int | None) -> tuple[Attributes, float] | Later:
        """Answer the attributes and for how many seconds they hold."""
        _missing()

    def setattr(
        self, request: Request, ino: int, attributes: Attributes, to_set: int, fh: int | None
    ) -> tuple[Attributes, float] | Later:
        """Change mode, uid, gid, size, atime_ns, mtime_ns, ctime_ns where `to_set` has the FATTR_*
        bit (the rest of `attributes` is void); answer like getattr. FATTR_KILL_SUIDGID, which only
        FUSE_HANDLE_KILLPRIV_V2 brings, means the same as `kill` in write.
        """
        _missing()

    def readlink(self, request: Request, ino: int) -> bytes | Later:
        """Answer the target of a symbolic link."""
        _missing()

    def mknod(self, request: Request, parent: int, name: bytes, mode: int, rdev: int) -> Entry | Later:
        """Create a file, FIFO, socket or device. With FUSE_DONT_MASK the umask is still to be applied to
        the mode, here and in mkdir and create: see `Request.umask`.
        """
        _missing()

    def mkdir(self, request: Request, parent: int, name: bytes, mode: int) -> Entry | Later:
        """Create a directory; `mode` is without the file type, the umask is applied."""
        _missing()

    def unlink(self, request: Request, parent: int, name: bytes) -> Later | None:
        """Remove a name of something that is not a directory. Its inode lives until it is forgotten."""
        _missing()

    def rmdir(self, request: Request, parent: int, name: bytes) -> Later | None:
        """Remove an empty directory."""
        _missing()

    def symlink(self, request: Request, target: bytes, parent: int, name: bytes) -> Entry | Later:
        """Create a symbolic link."""
        _missing()

    def rename(
        self, request: Request, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int
    ) -> Later | None:
        """Rename, replacing what is there; `flags` are RENAME_*. Raise EINVAL for flags not supported."""
        _missing()

    def link(self, request: Request, ino: int, new_parent: int, new_name: bytes) -> Entry | Later:
        """Give an inode another name."""
        _missing()

    def open(self, request: Request, ino: int, flags: int) -> Opened | Later:
        """Open a file; `flags` are those of open(2) without O_CREAT, O_EXCL and O_NOCTTY, and without O_TRUNC
        unless FUSE_ATOMIC_O_TRUNC was asked for: the kernel truncates with `setattr` then.
        """
        _missing()

    def read(self, request: Request, ino: int, fh: int, offset: int, size: int) -> Buffer | Later:
        """Answer `size` bytes, fewer only at the end of the file. The buffer is sent as it is, without a
        copy.
        """
        _missing()

    def write(
        self, request: Request, ino: int, fh: int, offset: int, data: memoryview, kill: bool
    ) -> int | Later:
        """Write, answer how many bytes. `data` is the loop's own buffer: copy what must outlive the
        handler (a slice is not a copy). A use after the handler has returned raises ValueError.
        FUSE_HANDLE_KILLPRIV_V2 brings `kill`: clear the set-user-id bit, and the set-group-id bit where
        the group may execute the file.
        """
        _missing()

    def flush(self, request: Request, ino: int, fh: int) -> Later | None:
        """A descriptor of the file is closed; there may be others. The caller of close(2) sees the errno.
        When there is nothing to do, leave this out: each close waits for it.
        """
        _missing()

    def release(self, request: Request, ino: int, fh: int, flags: int) -> Later | None:
        """The open file ends: exactly once per `open` and `create`. No program sees the errno."""
        _missing()

    def fsync(self, request: Request, ino: int, fh: int, datasync: bool) -> Later | None:
        """Make durable what was written; with `datasync` the times may wait."""
        _missing()

    def opendir(self, request: Request, ino: int, flags: int) -> Opened | Later:
        """Open a directory."""
        _missing()

    def readdir(self, request: Request, ino: int, fh: int, offset: int, size: int) -> Listing | Later:
        """Answer a Listing(size) of the names after `offset`: 0, or the `next_offset` of the last name
        seen.
        """
        _missing()

    def readdirplus(self, request: Request, ino: int, fh: int, offset: int, size: int) -> ListingPlus | Later:
        """Like readdir, with attributes. The kernel believes in these names as if it had looked them up: give
        none that has gone since opendir.
        """
        _missing()

    def releasedir(self, request: Request, ino: int, fh: int, flags: int) -> Later | None:
        """The open directory ends."""
        _missing()

    def fsyncdir(self, request: Request, ino: int, fh: int, datasync: bool) -> Later | None:
        """Make the names in a directory durable."""
        _missing()

    def statfs(self, request: Request, ino: int) -> StatVfs | Later:
        """Answer size and room of the filesystem."""
        _missing()

    def setxattr(self, request: Request, ino: int, name: bytes, value: bytes, flags: int) -> Later | None:
        """Set an extended attribute; `flags` are XATTR_CREATE or XATTR_REPLACE."""
        _missing()

    def getxattr(self, request: Request, ino: int, name: bytes, size: int) -> Buffer | int | Later:
        """Answer the value, or its size when `size` is 0; raise ERANGE when it is longer than that, ENODATA
        when there is none. When no file ever has attributes, leave this out: Linux asks before each write
        otherwise.
        """
        _missing()

    def listxattr(self, request: Request, ino: int, size: int) -> Buffer | int | Later:
        """Answer the names, each followed by a zero byte; `size` as in getxattr."""
        _missing()

    def removexattr(self, request: Request, ino: int, name: bytes) -> Later | None:
        """Remove an extended attribute."""
        _missing()

    def access(self, request: Request, ino: int, mask: int) -> Later | None:
        """access(2). Not asked with the mount option default_permissions."""
        _missing()

    def create(
        self, request: Request, parent: int, name: bytes, mode: int, flags: int
    ) -> tuple[Entry, Opened] | Later:
        """Create a file and open it; `mode` is complete and has the umask applied."""
        _missing()

    def tmpfile(self, request: Request, parent: int, mode: int, flags: int) -> tuple[Entry, Opened] | Later:
        """Create a file without a name (O_TMPFILE) and open it, like `create`; `link` may give it a name. Not
        asked before Linux 6.1, which answers programs EOPNOTSUPP.
        """
        _missing()

    def fallocate(
        self, request: Request, ino: int, fh: int, offset: int, length: int, mode: int
    ) -> Later | None:
        """fallocate(2); `mode` are FALLOC_FL_*. Raise EOPNOTSUPP for modes not supported."""
        _missing()

    def lseek(self, request: Request, ino: int, fh: int, offset: int, whence: int) -> int | Later:
        """Answer the next data (os.SEEK_DATA) or hole (os.SEEK_HOLE). Raise ENXIO beyond the end."""
        _missing()

    def copy_file_range(
        self,
        request: Request,
        ino: int,
        fh: int,
        offset: int,
        to: tuple[int, int, int],
        size: int,
        flags: int,
    ) -> int | Later:
        """Copy within the filesystem to the (ino, fh, offset) `to`; answer how many bytes."""
        _missing()
