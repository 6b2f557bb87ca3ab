"""A process that makes system calls, each in two folders, and tells what came of it in both."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import multiprocessing
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from mmap import mmap
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

__all__ = ["Player"]

_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW = -100, 0x100
_OMIT = (1 << 30) - 2  # UTIME_OMIT
_BEFORE_NOW = 10**18  # nanoseconds: a time before 2001 was set by a test, a later one is the clock's
_A_TIME = 7 * 10**9
_ANSWER_SECONDS = 90.0
_BRIEF = 64  # bytes of content that are told as they are
_KEPT = ("user.", "system.posix_acl_")  # attributes, as far as they are not the system's affair


def _time(nanoseconds: int) -> int | str:
    return nanoseconds if nanoseconds < _BEFORE_NOW else "now"


def _facts(seen: os.stat_result) -> tuple[object, ...]:
    """What two filesystems must agree upon: not numbers of inodes, sizes of directories, times of reading."""
    size = None if stat.S_ISDIR(seen.st_mode) else seen.st_size
    owner = seen.st_uid, seen.st_gid
    # The kernel does not tell FUSE of writes into a FIFO.
    modified = None if stat.S_ISFIFO(seen.st_mode) else _time(seen.st_mtime_ns)
    return oct(seen.st_mode), seen.st_nlink, owner, size, seen.st_rdev, modified


class _Tree:
    """The calls, in one of the folders. `slots` are the open files."""

    def __init__(self, root: Path, *, exact: bool) -> None:
        """*exact*: the time of a change differs from that of the one before."""
        self._root = str(root)
        self._exact = exact
        self._slots: dict[int, int] = {}
        self._maps: dict[int, tuple[mmap, int]] = {}  # with a descriptor of the file
        self._changed: dict[int, int] = {}  # when each node was changed, as last seen

    def enter(self, name: str) -> None:
        """From now on work in this folder of the root."""
        self.leave()
        self._folder = f"{self._root}/{name}"

    def leave(self) -> None:
        for slot in list(self._slots):
            self.close(slot)
        for memory, fd in self._maps.values():
            memory.close()
            os.close(fd)
        self._maps.clear()

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}"

    def _fd(self, slot: int) -> int:
        try:
            return self._slots[slot]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    # -- open files ----------------------------------------------------------------------------------------

    def open(self, slot: int, path: str, flags: int, mode: int) -> tuple[object, ...]:
        self.close(slot)
        self._slots[slot] = os.open(self._at(path), flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
        return _facts(os.fstat(self._slots[slot]))

    def close(self, slot: int) -> None:
        if slot in self._slots:
            os.close(self._slots.pop(slot))

    def read(self, slot: int, size: int) -> bytes:
        return os.read(self._fd(slot), size)

    def pread(self, slot: int, size: int, offset: int) -> bytes:
        return os.pread(self._fd(slot), size, offset)

    def write(self, slot: int, data: bytes) -> tuple[int, int]:
        return os.write(self._fd(slot), data), os.lseek(self._fd(slot), 0, os.SEEK_CUR)

    def pwrite(self, slot: int, data: bytes, offset: int) -> int:
        return os.pwrite(self._fd(slot), data, offset)

    def seek(self, slot: int, offset: int, whence: int) -> int:
        return os.lseek(self._fd(slot), offset, whence)

    def ftruncate(self, slot: int, size: int) -> None:
        os.ftruncate(self._fd(slot), size)

    def fallocate(self, slot: int, mode: int, offset: int, size: int) -> None:
        _check(_LIBC.fallocate(self._fd(slot), mode, ctypes.c_long(offset), ctypes.c_long(size)))
        os.utime(self._fd(slot), ns=(_A_TIME, _A_TIME))  # filesystems differ in whether it is a change

    def map(self, slot: int, offset: int, data: bytes) -> bytes:
        fd = self._fd(slot)
        if not os.fstat(fd).st_size:
            return b""
        with mmap(fd, 0) as memory:
            end = min(offset + len(data), len(memory))
            if offset < end:
                memory[offset:end] = data[: end - offset]
            memory.flush()
            seen = bytes(memory)
        os.utime(fd, ns=(_A_TIME, _A_TIME))  # when the pages are found dirty is the kernel's affair
        return seen

    def attach(self, slot: int) -> int:
        """Keep the file mapped, in the slot of mappings of this number."""
        fd = os.dup(self._fd(slot))
        try:
            memory = mmap(fd, 0)
        except (OSError, ValueError) as error:  # ValueError: the file is empty
            os.close(fd)
            raise OSError(getattr(error, "errno", None) or errno.EINVAL, str(error)) from None
        if slot in self._maps:
            old, old_fd = self._maps.pop(slot)
            old.close()
            os.close(old_fd)
        self._maps[slot] = memory, fd
        return len(memory)

    def _mapped(self, slot: int) -> tuple[mmap, int, int]:
        """A mapping, its file, and how much of it may be touched: the file may have become shorter."""
        try:
            memory, fd = self._maps[slot]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
        return memory, fd, min(len(memory), os.fstat(fd).st_size)

    def poke(self, slot: int, offset: int, data: bytes) -> None:
        memory, fd, size = self._mapped(slot)
        end = min(offset + len(data), size)
        if offset < end:
            memory[offset:end] = data[: end - offset]
        memory.flush()
        os.utime(fd, ns=(_A_TIME, _A_TIME))  # when the pages are found dirty is the kernel's affair

    def peek(self, slot: int) -> bytes:
        memory, _, size = self._mapped(slot)
        return memory[:size]

    def copy(self, source: int, target: int, size: int, offset: int, to: int) -> int:
        return os.copy_file_range(self._fd(source), self._fd(target), size, offset, to)

    def fsync(self, slot: int, data_only: bool) -> None:
        (os.fdatasync if data_only else os.fsync)(self._fd(slot))

    def fstat(self, slot: int) -> tuple[object, ...]:
        return _facts(os.fstat(self._fd(slot)))

    def fchmod(self, slot: int, mode: int) -> None:
        os.fchmod(self._fd(slot), mode)

    def fchown(self, slot: int, uid: int, gid: int) -> None:
        os.fchown(self._fd(slot), uid, gid)

    def fsetxattr(self, slot: int, name: str, value: bytes) -> tuple[list[str], bytes]:
        fd = self._fd(slot)
        os.setxattr(fd, name, value)
        return sorted(os.listxattr(fd)), os.getxattr(fd, name)

    def within(self, slot: int, path: str) -> list[str]:
        fd = self._fd(slot)
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK, 0o640, dir_fd=fd))
        return sorted(os.listdir(fd))  # noqa: PTH208

    def flock(self, slot: int, kind: int) -> None:
        fcntl.flock(self._fd(slot), kind | fcntl.LOCK_NB)

    def lock(self, slot: int, command: int, kind: int, start: int, length: int) -> None:
        """fcntl(2) with F_SETLK or F_OFD_SETLK."""
        record = struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0)
        fcntl.fcntl(self._fd(slot), command, record)

    # -- names ---------------------------------------------------------------------------------------------

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self._at(path), mode)  # noqa: PTH102

    def rmdir(self, path: str) -> None:
        os.rmdir(self._at(path))  # noqa: PTH106

    def unlink(self, path: str) -> None:
        os.unlink(self._at(path))  # noqa: PTH108

    def rename(self, old: str, new: str, flags: int) -> None:
        paths = os.fsencode(self._at(old)), os.fsencode(self._at(new))
        _check(_LIBC.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], flags))

    def link(self, old: str, new: str, follow: bool) -> None:
        os.link(self._at(old), self._at(new), follow_symlinks=follow)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, self._at(path))  # noqa: PTH211

    def readlink(self, path: str) -> str:
        return os.readlink(self._at(path))  # noqa: PTH115

    def mkfifo(self, path: str, mode: int) -> None:
        os.mkfifo(self._at(path), mode)

    def mknod(self, path: str, mode: int) -> None:
        os.mknod(self._at(path), mode)

    # -- attributes ----------------------------------------------------------------------------------------

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self._at(path), size)

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self._at(path), mode)  # noqa: PTH101

    def chown(self, path: str, uid: int, gid: int) -> None:
        os.chown(self._at(path), uid, gid, follow_symlinks=False)

    def utime(self, path: str, accessed: int, modified: int, follow: bool) -> tuple[int, int]:
        os.utime(self._at(path), ns=(accessed, modified), follow_symlinks=follow)
        seen = os.stat(self._at(path), follow_symlinks=follow)  # noqa: PTH116
        return seen.st_atime_ns, seen.st_mtime_ns

    def touch(self, path: str, modified: int, follow: bool) -> int | str:
        """utimensat(2) with *modified* for nanoseconds, also UTIME_NOW or UTIME_OMIT; atime is left alone."""
        name, flags = os.fsencode(self._at(path)), 0 if follow else _AT_SYMLINK_NOFOLLOW
        wanted = (ctypes.c_long * 4)(0, _OMIT, 0, modified)
        _check(_LIBC.utimensat(_AT_FDCWD, name, wanted, flags))
        return _time(os.stat(self._at(path), follow_symlinks=follow).st_mtime_ns)  # noqa: PTH116

    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        os.setxattr(self._at(path), name, value, flags)

    def getxattr(self, path: str, name: str) -> bytes:
        return os.getxattr(self._at(path), name)

    def listxattr(self, path: str) -> list[str]:
        return sorted(os.listxattr(self._at(path)))

    def removexattr(self, path: str, name: str) -> None:
        os.removexattr(self._at(path), name)

    def access(self, path: str, mode: int) -> bool:
        return os.access(self._at(path), mode)

    def stat(self, path: str, follow: bool) -> tuple[object, ...]:
        return _facts(os.stat(self._at(path), follow_symlinks=follow))  # noqa: PTH116

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(self._at(path)))  # noqa: PTH208

    # -- everything ----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """What was done so far survives the filesystem's sudden end."""
        fd = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def all(self) -> dict[str, tuple[object, ...]]:
        """Every name with what stands there; names of one file have the first of them in common."""
        firsts: dict[int, str] = {}
        found: dict[str, tuple[object, ...]] = {}
        for path, seen in _walk(self._folder, ""):
            first = firsts.setdefault(seen.st_ino, path)
            found[path] = (
                *_facts(seen),
                first,
                self._has_changed(seen),
                *_content(f"{self._folder}/{path}", seen),
            )
        return found

    def _has_changed(self, seen: os.stat_result) -> bool:
        """Whether the time of change is another one than when it was last asked for."""
        before = self._changed.get(seen.st_ino)
        self._changed[seen.st_ino] = seen.st_ctime_ns
        return self._exact and not stat.S_ISFIFO(seen.st_mode) and before != seen.st_ctime_ns


def _walk(folder: str, below: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(f"{folder}/{below}") as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            path = below + entry.name
            seen = os.lstat(f"{folder}/{path}")
            assert entry.inode() == seen.st_ino, f"{path} has two numbers"
            yield path, seen
            if stat.S_ISDIR(seen.st_mode):
                yield from _walk(folder, path + "/")


def _content(path: str, seen: os.stat_result) -> tuple[object, ...]:
    if stat.S_ISLNK(seen.st_mode):
        return (os.readlink(path),)  # noqa: PTH115
    names = sorted(name for name in os.listxattr(path) if name.startswith(_KEPT))
    values = [(name, os.getxattr(path, name)) for name in names]
    if not stat.S_ISREG(seen.st_mode):
        return (values,)
    with open(path, "rb") as file:
        content = file.read()
    return (content if len(content) < _BRIEF else hashlib.blake2b(content).hexdigest()), values


def _check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _outcome(call: Callable[..., object], arguments: tuple[object, ...]) -> object:
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


def _tells_every_change(root: Path) -> bool:
    """Linux before 6.13 takes the time of a change from a clock that ticks 100 to 1,000 times a second."""
    folder = os.open(root, os.O_RDONLY)
    try:
        seen = set()
        for _ in range(20):
            os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode))
            seen.add(os.fstat(folder).st_ctime_ns)
        return len(seen) == 20
    except PermissionError:
        return False
    finally:
        os.close(folder)


def _play(connection: Connection, roots: tuple[Path, Path], user: int, umask: int) -> None:
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    os.umask(umask)
    exact = _tells_every_change(roots[1])  # of ours that is to be found out
    trees = [_Tree(root, exact=exact) for root in roots]
    while True:
        try:
            name, arguments = connection.recv()
        except EOFError:
            sys.exit()
        connection.send([_outcome(getattr(tree, name), arguments) for tree in trees])


class Player:
    """The process, seen from the test."""

    def __init__(self, roots: tuple[Path, Path], user: int, umask: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_play, args=(theirs, roots, user, umask), daemon=True)
        self._process.start()
        theirs.close()

    def call(self, name: str, *arguments: object) -> tuple[Any, Any]:
        """What the call comes to in the two folders: its result, or the name of its errno."""
        self._connection.send((name, arguments))
        assert self._connection.poll(_ANSWER_SECONDS), f"{name}{arguments} hangs"
        ours, theirs = self._connection.recv()
        return ours, theirs

    def close(self) -> None:
        self._connection.close()
        self._process.join(_ANSWER_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
