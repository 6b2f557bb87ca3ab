"""What can be done with the served folder: files and folders of it, by paths below it.

A path is a tuple of names, () for the folder itself. Symbolic links and special files are not there for
anybody: no path leads to one or through one. They go with the folder that is removed with them in it. Errors
are OSErrors, and a HybrisError when the volume is not mounted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, NamedTuple, Protocol, TypeAlias

from hybrisfs.client import HybrisError
from hybrisfs.registers.served import VIA_XATTR, Via
from serving.beneath import is_served, open_beneath, opened, parent_of, rename_to_free
from serving.unfinished import TEMPORARY, Unfinished

__all__ = ["Attributes", "Entry", "Folder", "Path", "Root", "Space", "Upload", "Writer"]

Path: TypeAlias = tuple[str, ...]

# Control characters, halves of surrogates, and what is not a character.
_NO_TEXT: Final = re.compile("[\\x00-\\x1f\\ud800-\\udfff\\ufffe\\uffff]")
_NO_NAME: Final = re.compile(f"[/\\x00]|^{re.escape(TEMPORARY)}")
_PAST: Final = ".hybrisfs"
_PIECE: Final = 1 << 20  # bytes copied at a time
_LONGEST: Final = 4096  # bytes of a path
_KEPT_ATTRIBUTES: Final = ("user.", "system.posix_acl_access")
_NO_RANGES: Final = (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Root(Protocol):
    """Where the folder is."""

    names: Path
    """Its path in the volume."""

    def open(self) -> contextlib.AbstractContextManager[int]:
        """The folder, open for names below it."""


class Entry(NamedTuple):
    """What is in a folder."""

    name: str
    status: os.stat_result


class Space(NamedTuple):
    """Bytes of the volume."""

    used: int
    free: int


class Writer(NamedTuple):
    """Who writes, for the log of the volume."""

    protocol: str
    """One of `hybrisfs.registers.served.PROTOCOLS`."""
    user: str

    def sign(self, file: int | str) -> None:
        """Note it in an open file or folder, or by a path, where that can be."""
        value = Via(self.protocol, time.time_ns(), self.user).encode()
        with contextlib.suppress(OSError):
            os.setxattr(file, VIA_XATTR, value)


class Attributes(NamedTuple):
    """What is to be set of a file or a folder; None for what stays."""

    size: int | None = None
    mode: int | None = None
    times: tuple[int, int] | None = None
    """When it was read and changed, in seconds since the epoch."""

    def apply(self, file: int | str) -> None:
        """Set them of an open file, or by a path. Raises OSError."""
        if self.size is not None:
            os.truncate(file, self.size)
        if self.mode is not None:
            os.chmod(file, self.mode & 0o777)  # noqa: PTH101 - it may be a number
        if self.times is not None:
            os.utime(file, self.times)


def _failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Folder:
    """Thread-safe."""

    def __init__(self, root: Root, unfinished: Unfinished, largest: int | None = None) -> None:
        """*largest* is how many bytes a file may have."""
        self._root = root
        self._unfinished = unfinished
        self._largest = largest

    def status(self, path: Path) -> os.stat_result:
        """Of a file or a folder."""
        self._check(path)
        with self._root.open() as root, opened(open_beneath(root, path, os.O_PATH)) as found:
            status = os.fstat(found)
        if not is_served(status):
            raise _failure(errno.ENOENT)
        return status

    def entries(self, path: Path) -> list[Entry]:
        """The files and folders in a folder, without what is in the making, and names that are not text."""
        self._check(path)
        found = []
        with self._folder(path) as folder, os.scandir(folder) as listed:
            for one in listed:
                if one.name.startswith(TEMPORARY) or not _is_text(one.name):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = one.stat(follow_symlinks=False)
                    if is_served(status):
                        found.append(Entry(one.name, status))
        return sorted(found)

    def read(self, path: Path) -> BinaryIO:
        """A file, open."""
        self._check(path)
        with self._root.open() as root:
            file = os.fdopen(open_beneath(root, path, os.O_RDONLY), "rb")
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise _failure(errno.EISDIR)
        return file

    def open_in_place(self, path: Path, flags: int, mode: int = 0o666) -> int:
        """A file, open with flags of open(2) for reading or for changing it where it is: a descriptor."""
        self._check(path)
        with self._root.open() as root:
            # What is there is cut to nothing only when it is known to be a file.
            file = open_beneath(root, path, flags & ~os.O_TRUNC, mode & 0o777 if flags & os.O_CREAT else 0)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise _failure(errno.EISDIR)
            if flags & os.O_TRUNC:
                os.truncate(file, 0)
        except BaseException:
            os.close(file)
            raise
        return file

    def statistics(self) -> os.statvfs_result:
        """Of the volume, as statvfs(2) has them."""
        with self._root.open() as root:
            return os.fstatvfs(root)

    def space(self) -> Space:
        """How much there is, and how much there may be."""
        found = self.statistics()
        return Space((found.f_blocks - found.f_bfree) * found.f_frsize, found.f_bavail * found.f_frsize)

    def upload(self, path: Path, writer: Writer | None = None) -> Upload:
        """A file that is about to be there, or to take the place of the one that is. *writer*: who is named
        for it in the log."""
        with self._parent(path) as (folder, name):
            place = (*self._root.names, *path[:-1])
            return Upload(os.dup(folder), name, self._unfinished, place, self._largest, writer)

    def make_folder(self, path: Path, mode: int = 0o777, writer: Writer | None = None) -> None:
        """Make an empty folder."""
        with self._parent(path) as (folder, name):
            os.mkdir(name, mode & 0o777, dir_fd=folder)
            if writer is not None:
                with contextlib.suppress(OSError), opened(open_beneath(folder, (name,), os.O_RDONLY)) as made:
                    writer.sign(made)

    def set_modified(self, path: Path, seconds: int) -> None:
        """Say when something was last changed, in seconds since the epoch."""
        with self._parent(path) as (folder, name):
            os.utime(name, (seconds, seconds), dir_fd=folder, follow_symlinks=False)

    def set_attributes(self, path: Path, attributes: Attributes) -> None:
        """Change attributes of a file or a folder."""
        self._check(path)
        with self._root.open() as root, opened(open_beneath(root, path, os.O_PATH)) as found:
            if not is_served(os.fstat(found)):
                raise _failure(errno.ENOENT)
            attributes.apply(f"/proc/self/fd/{found}")

    def remove_file(self, path: Path, writer: Writer | None = None) -> None:
        """Remove a file, and nothing else. *writer*: who is named for it in the log."""
        with self._parent(path) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not is_served(status):
                raise _failure(errno.ENOENT)
            if stat.S_ISDIR(status.st_mode):
                raise _failure(errno.EISDIR)
            os.unlink(name, dir_fd=folder)
            _sign_removal(folder, writer)

    def remove_empty_folder(self, path: Path, writer: Writer | None = None) -> None:
        """Remove a folder with nothing in it. *writer*: who is named for it in the log."""
        with self._parent(path) as (folder, name):
            if not is_served(os.stat(name, dir_fd=folder, follow_symlinks=False)):
                raise _failure(errno.ENOENT)
            os.rmdir(name, dir_fd=folder)
            _sign_removal(folder, writer)

    def rename(self, source: Path, target: Path, writer: Writer | None = None) -> None:
        """As rename(2): in one step, also in the place of a file or of an empty folder. *writer*: who is
        named for it in the log."""
        with (
            self._parent(source) as (folder, name),
            self._parent(target) as (into, new),
            _signed(folder, name, writer),
        ):
            if not is_served(os.stat(name, dir_fd=folder, follow_symlinks=False)):
                raise _failure(errno.ENOENT)
            with contextlib.suppress(FileNotFoundError):
                if not is_served(os.stat(new, dir_fd=into, follow_symlinks=False)):
                    raise _failure(errno.EACCES)
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=into)

    def remove(self, path: Path, writer: Writer | None = None) -> None:
        """Remove a file, or a folder with all that is in it. *writer*: who is named for it in the log."""
        with self._parent(path) as (folder, name):
            if not is_served(os.stat(name, dir_fd=folder, follow_symlinks=False)):
                raise _failure(errno.ENOENT)
            _remove(folder, name)
            _sign_removal(folder, writer)

    def move(self, source: Path, target: Path, *, replace: bool, writer: Writer | None = None) -> None:
        """Give something another path; with *replace*, in the place of what has it. *writer*: who is named
        for it in the log."""
        with (
            self._parent(source) as (folder, name),
            self._parent(target) as (into, new),
            _signed(folder, name, writer),
        ):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not is_served(status):
                raise _failure(errno.ENOENT)
            _place(folder, name, status, into, new, replace=replace)

    def copy(
        self, source: Path, target: Path, *, replace: bool, with_members: bool, writer: Writer | None = None
    ) -> None:
        """Copy a file, or a folder, without what is in it unless *with_members*. Nobody sees half of it.
        *writer*: who is named for all of it in the log."""
        with self._parent(source) as (folder, name), self._parent(target) as (into, new):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not is_served(status):
                raise _failure(errno.ENOENT)
            making = self._unfinished.begin((*self._root.names, *target[:-1]))
            try:
                _copy(folder, name, into, making, with_members=with_members, writer=writer)
                _place(into, making, status, into, new, replace=replace)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    _remove(into, making)
                raise
            finally:
                self._unfinished.end(making)

    def remove_left(self, volume: Root) -> None:
        """Remove what an earlier process was making when it ended. *volume* is all of the volume."""
        for path in self._unfinished.left():
            with (
                contextlib.suppress(OSError, HybrisError),
                volume.open() as root,
                parent_of(root, path) as (folder, name),
            ):
                _remove(folder, name)

    # -- paths ---------------------------------------------------------------------------------------------

    def _check(self, path: Path) -> None:
        if any(name in ("", ".", "..") or _NO_NAME.search(name) for name in path):
            raise _failure(errno.ENOENT)
        if len(os.fsencode("/".join(path))) >= _LONGEST:
            raise _failure(errno.ENAMETOOLONG)
        if path[:1] == (_PAST,) and not self._root.names:
            raise _failure(errno.ENOENT)

    @contextmanager
    def _parent(self, path: Path) -> Iterator[tuple[int, str]]:
        self._check(path)
        if not path:
            raise _failure(errno.EACCES)
        with self._root.open() as root, parent_of(root, path) as found:
            yield found

    @contextmanager
    def _folder(self, path: Path) -> Iterator[int]:
        with self._root.open() as root:
            folder = open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY)
        with opened(folder):
            yield folder


class Upload:
    """A file in the making, beside the name that it is for: whole or not at all for everybody else."""

    def __init__(
        self,
        folder: int,
        name: str,
        unfinished: Unfinished,
        place: Path,
        largest: int | None,
        writer: Writer | None,
    ) -> None:
        """Takes over the descriptor of the folder. Raises OSError."""
        self._writer = writer
        self._folder = folder
        self._name = name
        self._unfinished = unfinished
        self._left = largest
        try:
            self._making = unfinished.begin(place)
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._file = os.fdopen(os.open(self._making, flags, 0o666, dir_fd=folder), "wb", buffering=0)
            except OSError:
                unfinished.end(self._making)
                raise
        except OSError:
            os.close(folder)
            raise

    def write(self, data: bytes) -> None:
        """Add bytes. Raises OSError: EFBIG when they are too many."""
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise _failure(errno.EFBIG)
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        """All has been written."""

    def finish(self, *, replace: bool = True) -> None:
        """Let it be seen, with mode and attributes of the file whose place it takes. Raises OSError:
        FileExistsError when there is something that it is not to *replace*."""
        try:
            try:
                old: os.stat_result | None = os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            except FileNotFoundError:
                old = None
            if old is not None and stat.S_ISREG(old.st_mode):
                self._take_attributes(old)
            if self._writer is not None:
                self._writer.sign(self._file.fileno())
            self._file.close()
            status = os.stat(self._making, dir_fd=self._folder, follow_symlinks=False)
            _place(
                self._folder, self._making, status, self._folder, self._name, replace=replace, only_file=True
            )
        except OSError:
            self.discard()
            raise
        self._end()

    def discard(self) -> None:
        """Leave nothing of it."""
        self._file.close()
        with contextlib.suppress(OSError):
            os.unlink(self._making, dir_fd=self._folder)
        self._end()

    def _end(self) -> None:
        self._unfinished.end(self._making)
        os.close(self._folder)

    def _take_attributes(self, old: os.stat_result) -> None:
        new = self._file.fileno()
        if os.geteuid() == 0:
            os.fchown(new, old.st_uid, old.st_gid)
        os.fchmod(new, old.st_mode & 0o777)
        # One that this user cannot read has attributes that this user cannot read, either.
        with (
            contextlib.suppress(OSError),
            opened(open_beneath(self._folder, (self._name,), os.O_RDONLY)) as before,
        ):
            for name in os.listxattr(before):
                if name.startswith(_KEPT_ATTRIBUTES):
                    os.setxattr(new, name, os.getxattr(before, name))


def _is_text(name: str) -> bool:
    """Whether it can stand in XML and in a URL."""
    return _NO_TEXT.search(name) is None


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as listed:
        return [one.name for one in listed]


def _place(
    folder: int,
    name: str,
    status: os.stat_result,
    into: int,
    new: str,
    *,
    replace: bool,
    only_file: bool = False,
) -> None:
    """Rename; in the place of what is there if wanted, of a file only with *only_file*."""
    try:
        rename_to_free(folder, name, into, new)
        return
    except FileExistsError:
        if not replace:
            raise
    there = os.stat(new, dir_fd=into, follow_symlinks=False)
    if not is_served(there) or (only_file and not stat.S_ISREG(there.st_mode)):
        raise _failure(errno.EACCES)
    if stat.S_ISREG(there.st_mode) and stat.S_ISREG(status.st_mode):
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=into)
    else:
        _remove(into, new)
        rename_to_free(folder, name, into, new)


def _remove(folder: int, name: str) -> None:
    """Remove anything. Nothing that is mounted within is entered."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    with opened(open_beneath(folder, (name,), os.O_RDONLY | os.O_DIRECTORY)) as inside:
        for member in _names(inside):
            _remove(inside, member)
    os.rmdir(name, dir_fd=folder)


@contextmanager
def _signed(folder: int, name: str, writer: Writer | None) -> Iterator[None]:
    """Sign what has the name now, once the block has given it another one. Raises OSError."""
    with opened(open_beneath(folder, (name,), os.O_PATH)) as named:
        yield
        if writer is not None:
            writer.sign(f"/proc/self/fd/{named}")


def _sign_removal(folder: int, writer: Writer | None) -> None:
    """What is removed keeps no attribute, so the folder gets it in which it was."""
    if writer is not None:
        writer.sign(f"/proc/self/fd/{folder}")


def _copy(folder: int, name: str, into: int, new: str, *, with_members: bool, writer: Writer | None) -> None:
    with opened(open_beneath(folder, (name,), os.O_RDONLY)) as source:
        status = os.fstat(source)
        if stat.S_ISREG(status.st_mode):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with opened(os.open(new, flags, 0o600, dir_fd=into)) as target:
                _copy_bytes(source, target)
                if writer is not None:
                    writer.sign(target)
                os.fchmod(target, status.st_mode & 0o777)
        elif stat.S_ISDIR(status.st_mode):
            os.mkdir(new, 0o700, dir_fd=into)
            with opened(open_beneath(into, (new,), os.O_RDONLY | os.O_DIRECTORY)) as target:
                for member in _names(source) if with_members else ():
                    if is_served(os.stat(member, dir_fd=source, follow_symlinks=False)):
                        _copy(source, member, target, member, with_members=True, writer=writer)
                if writer is not None:
                    writer.sign(target)
                os.fchmod(target, status.st_mode & 0o777)
        else:
            return
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=into, follow_symlinks=False)


def _copy_bytes(source: int, target: int) -> None:
    try:
        while os.copy_file_range(source, target, 1 << 30):
            pass
        return
    except OSError as error:
        if error.errno not in _NO_RANGES:
            raise
    while data := os.read(source, _PIECE):
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(target, rest) :]
