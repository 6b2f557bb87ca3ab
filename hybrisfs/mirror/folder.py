"""The folder on the disk as one side of a mirror.

Everything is done relative to open directories, and no symbolic link is ever followed. A new file has a
name of its own until it is complete and durable. A file that it replaces, or that is removed, is checked once
more after it has lost its name, and is put back when it is not the expected one.

A program may change a new file at any moment. So the agreed state is the one that was written, not the one
found there afterwards: where the two differ, the stamp is `_NO_STAMP`, and the next look finds what has
changed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from msgspec.structs import replace

from hybrisfs.chunk_namer import ChunkNamer
from hybrisfs.environment import Environment
from hybrisfs.mirror.engine import Held, Listing, Original
from hybrisfs.mirror.file_access import (
    DISK,
    Disk,
    LocalFile,
    digest_of,
    is_mirrored,
    open_below,
    read_xattrs,
    write_whole,
    write_xattrs,
)
from hybrisfs.mirror.ignore import TEMPORARY, Ignored
from hybrisfs.mirror.model import (
    PERMISSIONS,
    ChangedError,
    Facts,
    Glimpse,
    InUseError,
    Kind,
    Seen,
    join,
    name_of,
    own_bits,
    parent_of,
)

__all__ = ["Care", "Folder"]

_STAMP: Final = struct.Struct(">qqIq")  # size and mtime (0 for directories), mode, ctime
_NO_STAMP: Final = b""  # of what is to be looked into the next time, whatever it looks like from outside
_IDENTITY: Final = struct.Struct(">Q")
_KINDS: Final = {stat.S_IFDIR: Kind.DIRECTORY, stat.S_IFREG: Kind.FILE, stat.S_IFLNK: Kind.LINK}
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_LINK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Care:
    """The care for programs that use the folder at the same time: none, unless a subclass takes some."""

    def rests(self, path: bytes, stamp: bytes, changed: int, /) -> bool:
        """Whether a file may be taken; *changed*: when it was changed last, ns since the epoch."""
        return True

    def entering(self, path: bytes, /) -> None:
        """A directory is about to be listed."""

    def conflict_name(self, name: bytes, number: int, /) -> bytes:
        """The conflict name with this number of a name."""
        return name


class Folder:
    """The folder that *root* is open as; it stays so until the owner closes it. One that
    *tidies* removes what a mirror that was killed left behind.
    """

    def __init__(
        self,
        root: int,
        ignored: Ignored,
        namer: ChunkNamer,
        care: Care,
        environment: Environment,
        *,
        tidies: bool = True,
        disk: Disk = DISK,
    ) -> None:
        self._root = root
        self._device = os.fstat(root).st_dev
        self._ignored = ignored
        self._namer = namer
        self._care = care
        self._fsync = environment.fsync
        self._random_bytes = environment.random_bytes
        self._tidies = tidies
        self._disk = disk
        self._unsynced: set[bytes] = set()

    # -- looking ---------------------------------------------------------------------------------

    def names(self, path: bytes) -> Listing | None:
        """See `engine.Place`; so are all of these."""
        self._care.entering(path)
        try:
            folder = open_below(self._root, path, _OPEN_DIRECTORY)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise
        found: Listing = {}
        try:
            if os.fstat(folder).st_dev != self._device:
                raise OSError(errno.EXDEV, "another filesystem is mounted there")
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name)
                    with contextlib.suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        found[name] = self._glimpse(join(path, name), folder, status)
        finally:
            os.close(folder)
        return found

    def _glimpse(self, path: bytes, folder: int, status: os.stat_result) -> Glimpse | Held:
        kind = _KINDS.get(stat.S_IFMT(status.st_mode))
        if (path, kind is Kind.DIRECTORY) in self._ignored:
            if self._tidies and name_of(path).startswith(TEMPORARY):
                _tidy(folder, name_of(path), kind)
            return Held()
        if kind is None:
            return Held("is a device, a socket or a pipe: these are not mirrored")
        if status.st_dev != self._device:
            return Held("another filesystem is mounted there")
        stamp = _stamp(status)
        if kind is Kind.FILE and not self._care.rests(path, stamp, status.st_ctime_ns):
            return Held(later=True)
        return Glimpse(kind, _identity(status), stamp, status.st_nlink)

    @staticmethod
    def size_of(glimpse: Glimpse) -> int:
        """The size of a file, in bytes, as it was glimpsed."""
        return int(_STAMP.unpack(glimpse.stamp)[0])

    def examine(self, path: bytes, glimpse: Glimpse, *, content: bool) -> Seen:
        with self._opened(path, Seen(glimpse.identity, glimpse.stamp, Facts(glimpse.kind))) as original:
            if content and glimpse.kind is Kind.FILE:
                for _ in original.blocks():
                    pass
            return original.seen

    @contextmanager
    def read(self, path: bytes, seen: Seen) -> Iterator[LocalFile]:
        with self._opened(path, seen) as original:
            yield original

    @contextmanager
    def _opened(self, path: bytes, seen: Seen) -> Iterator[LocalFile]:
        """What is at a path, open if it can be opened. Raises ChangedError unless it is what was *seen*."""
        is_link = seen.facts.kind is Kind.LINK
        try:
            descriptor = open_below(self._root, path, _OPEN_LINK if is_link else _OPEN)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
                raise ChangedError(f"{path!r} is gone") from error
            raise
        try:
            status = os.fstat(descriptor)
            is_same = stat.S_ISDIR(status.st_mode) or _stamp(status) == seen.stamp
            if (
                _identity(status) != seen.identity or not is_same
            ):  # a directory changes whenever a name in it does
                raise ChangedError(f"{path!r} has changed")
            target = os.readlink(b"", dir_fd=descriptor) if is_link else b""
            xattrs = {} if is_link else read_xattrs(descriptor)
            now = self._seen(status, target, xattrs)
            yield LocalFile(descriptor, now, xattrs, self._namer)
        finally:
            os.close(descriptor)

    @staticmethod
    def _seen(status: os.stat_result, content: bytes | None, xattrs: Mapping[bytes, bytes]) -> Seen:
        kind = _KINDS[stat.S_IFMT(status.st_mode)]
        mode = 0 if kind is Kind.LINK else status.st_mode & PERMISSIONS
        kept = digest_of({name: value for name, value in xattrs.items() if is_mirrored(name)})
        if kind is Kind.FILE:
            facts = Facts(kind, mode, status.st_mtime_ns, status.st_size, content or None, kept)
        else:
            facts = Facts(kind, mode, 0, 0, content, kept)
        return Seen(_identity(status), _stamp(status), facts, status.st_nlink)

    # -- changing --------------------------------------------------------------------------------

    @contextmanager
    def _parent(self, path: bytes) -> Iterator[int]:
        """The directory that a path is in, open; it will be synced."""
        try:
            folder = open_below(self._root, parent_of(path), _OPEN_DIRECTORY)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise ChangedError(f"the folder of {path!r} is gone") from error
            raise
        try:
            yield folder
            self._unsynced.add(parent_of(path))
        finally:
            os.close(folder)

    def _expect(self, folder: int, path: bytes, seen: Seen | None) -> None:
        try:
            status = os.stat(name_of(path), dir_fd=folder, follow_symlinks=False)
            found = _identity(status), _stamp(status)
        except FileNotFoundError:
            found = None
        if found != (None if seen is None else (seen.identity, seen.stamp)):
            raise ChangedError(f"{path!r} has changed")

    def write(self, path: bytes, original: Original, replaces: Seen | None) -> Seen:
        with self._parent(path) as folder:
            self._expect(folder, path, replaces)
            kind = original.seen.facts.kind
            if kind is Kind.DIRECTORY:
                return self._make_directory(folder, path, original)
            if kind is Kind.LINK:
                return self._make_link(folder, path, original, replaces)
            return self._write_file(folder, path, original, replaces)

    def _make_directory(self, folder: int, path: bytes, original: Original) -> Seen:
        temporary = self._new_name()
        os.mkdir(temporary, 0o700, dir_fd=folder)
        try:
            with _open(temporary, _OPEN_DIRECTORY, folder) as made:
                write_xattrs(made, original.xattrs)
                self._set_permissions(made, original.seen.facts.mode)
                self._fsync(made)
                written = self._look_at(made, b"")
                self._put(folder, temporary, path, None)
                return _unless_changed(written, self._look_at(made, b""))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(temporary, dir_fd=folder)

    def _make_link(self, folder: int, path: bytes, original: Original, replaces: Seen | None) -> Seen:
        target = original.seen.facts.content or b""
        with self._temporary(folder) as temporary:
            os.symlink(target, temporary, dir_fd=folder)
            with _open(temporary, _OPEN_LINK, folder) as made:
                written = self._look_at(made, target)
                self._put(folder, temporary, path, replaces)
                return _unless_changed(written, self._look_at(made, target))

    def _write_file(self, folder: int, path: bytes, original: Original, replaces: Seen | None) -> Seen:
        with self._temporary(folder) as temporary, _open(temporary, _CREATE, folder) as made:
            for offset, data in original.blocks():
                write_whole(made, data, offset)
            facts = original.seen.facts
            os.ftruncate(made, facts.size)
            write_xattrs(made, original.xattrs)
            self._set_permissions(made, facts.mode)
            self._disk.set_time(made, facts.mtime)
            self._fsync(made)
            written = self._look_at(made, facts.content)
            self._put(folder, temporary, path, replaces)
            return _unless_changed(written, self._look_at(made, facts.content))

    def _look_at(self, descriptor: int, content: bytes | None) -> Seen:
        """What is open, with the identity of its content. The stamp is read first: what changes afterwards
        has another one."""
        status = os.fstat(descriptor)
        xattrs = {} if stat.S_ISLNK(status.st_mode) else read_xattrs(descriptor)
        return self._seen(status, content, xattrs)

    def _put(self, folder: int, temporary: bytes, path: bytes, replaces: Seen | None) -> None:
        """Let what is complete have its name. What had it is removed only if it is what was to be
        replaced."""
        name = name_of(path)
        if replaces is None:
            try:
                self._disk.rename_to_free_name(folder, temporary, folder, name)
            except FileExistsError as error:
                raise ChangedError(f"{path!r} has appeared") from error
            return
        self._check_unused(folder, path)
        self._expect(folder, path, replaces)
        try:
            exchanged = self._disk.exchange(folder, temporary, name)
        except FileNotFoundError as error:
            raise ChangedError(f"{path!r} is gone") from error
        if not exchanged:
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        elif not self._is(folder, temporary, replaces) or self._is_being_changed(folder, temporary):
            self._take_back(folder, temporary, path)

    def _check_unused(self, folder: int, path: bytes) -> None:
        """Raises InUseError."""
        if self._is_being_changed(folder, name_of(path)):
            raise InUseError

    def _is_being_changed(self, folder: int, name: bytes) -> bool:
        try:
            with _open(name, _OPEN, folder) as file:
                return stat.S_ISREG(os.fstat(file).st_mode) and self._disk.is_being_changed(file)
        except OSError:  # a link, gone, or not for this user to read
            return False

    def _is(self, folder: int, name: bytes, seen: Seen) -> bool:
        """Whether the thing is as it was *seen*, but for what renaming it changes."""
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return (_identity(status), _lasting(status)) == (seen.identity, _lasting_of(seen.stamp))

    def _take_back(self, folder: int, temporary: bytes, path: bytes) -> None:
        """A program saved a version between the last look and now: it goes back to its name. Should there be
        yet another one by then, both are kept."""
        try:
            mine = os.stat(name_of(path), dir_fd=folder, follow_symlinks=False)
            self._disk.exchange(folder, temporary, name_of(path))
        except OSError as error:  # the program has moved or removed what it found under the name
            self._give_back(folder, temporary, path)
            raise ChangedError(f"{path!r} was saved a moment ago") from error
        now = os.stat(temporary, dir_fd=folder, follow_symlinks=False)
        if (mine.st_ino, _lasting(mine)) != (now.st_ino, _lasting(now)):
            self._rename_aside(folder, temporary, folder, path)
        raise ChangedError(f"{path!r} was saved a moment ago")

    def _give_back(self, folder: int, temporary: bytes, path: bytes) -> None:
        """Give what was taken away its name again, or a conflict name when something else has that now."""
        try:
            self._disk.rename_to_free_name(folder, temporary, folder, name_of(path))
        except FileExistsError:
            self._rename_aside(folder, temporary, folder, path)

    def link(self, path: bytes, existing: bytes, seen: Seen, replaces: Seen | None) -> Seen:
        with self._parent(path) as folder, self._parent(existing) as other:
            self._expect(folder, path, replaces)
            self._expect(other, existing, seen)
            with self._temporary(folder) as temporary:
                names = name_of(existing), temporary
                os.link(*names, src_dir_fd=other, dst_dir_fd=folder, follow_symlinks=False)
                with _open(temporary, _OPEN_LINK if seen.facts.kind is Kind.LINK else _OPEN, folder) as made:
                    self._put(folder, temporary, path, replaces)
                    return _unless_changed(seen, self._look_at(made, seen.facts.content))

    def set_attributes(self, path: bytes, original: Original, target: Seen) -> Seen:
        facts = original.seen.facts
        if facts.kind is Kind.LINK:
            return target
        with self._opened(path, target) as mine:
            before, xattrs = mine.seen.facts, write_xattrs(mine.descriptor, original.xattrs)
            self._set_permissions(mine.descriptor, facts.mode)
            dated = facts.kind is Kind.FILE and facts.mtime != before.mtime
            if dated:
                self._disk.set_time(mine.descriptor, facts.mtime)
            now = self._look_at(mine.descriptor, target.facts.content)
        mode, mtime = facts.mode, facts.mtime if dated else before.mtime
        if (now.facts.mode, now.facts.mtime) != (mode, mtime):
            mode, kept = self._kept(path, facts)
            mtime = kept if dated else mtime
        changed = before._replace(
            mode=mode, mtime=mtime, content=target.facts.content, xattrs=digest_of(xattrs)
        )
        # A program that saved the content right before the time was set has left no trace outside of it.
        return _unless_changed(replace(now, facts=changed), now, look_again=dated)

    def _set_permissions(self, descriptor: int, mode: int) -> None:
        """Set these, and leave the other bits: another device grants no user this user's rights."""
        self._disk.set_mode(descriptor, mode & PERMISSIONS | own_bits(os.fstat(descriptor).st_mode))

    def _kept(self, path: bytes, facts: Facts) -> tuple[int, int]:
        """What this filesystem makes of permissions and a time: tried on something that nothing else changes,
        as what it makes of them looks like what a program does."""
        with self._parent(path) as folder:
            temporary = self._new_name()
            if facts.kind is Kind.DIRECTORY:
                os.mkdir(temporary, 0o700, dir_fd=folder)
                flags, remove = _OPEN_DIRECTORY, os.rmdir
            else:
                flags, remove = _CREATE, os.unlink
            try:
                with _open(temporary, flags, folder) as made:
                    self._set_permissions(made, facts.mode)
                    if facts.kind is Kind.FILE:
                        self._disk.set_time(made, facts.mtime)
                    kept = self._look_at(made, b"").facts
                    return kept.mode, kept.mtime
            finally:
                with contextlib.suppress(FileNotFoundError):
                    remove(temporary, dir_fd=folder)

    def remove(self, path: bytes, target: Seen) -> None:
        with self._parent(path) as folder:
            if target.facts.kind is Kind.DIRECTORY:
                self._remove_directory(folder, path, target)
                return
            self._check_unused(folder, path)
            self._expect(folder, path, target)
            temporary = self._new_name()
            try:
                self._disk.rename_to_free_name(folder, name_of(path), folder, temporary)
            except FileNotFoundError as error:
                raise ChangedError(f"{path!r} is gone") from error
            if self._is(folder, temporary, target) and not self._is_being_changed(folder, temporary):
                os.unlink(temporary, dir_fd=folder)
                return
            self._give_back(folder, temporary, path)
            raise ChangedError(f"{path!r} was saved a moment ago")

    def _remove_directory(self, folder: int, path: bytes, target: Seen) -> None:
        try:
            status = os.stat(name_of(path), dir_fd=folder, follow_symlinks=False)
            if _identity(status) != target.identity:
                raise ChangedError(f"{path!r} has changed")
            os.rmdir(name_of(path), dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY, errno.ENOTDIR, errno.EEXIST):
                raise ChangedError(f"{path!r} is not empty, or gone") from error
            raise

    def rename(self, old: bytes, new: bytes, target: Seen) -> None:
        with self._parent(old) as folder, self._parent(new) as new_folder:
            try:
                status = os.stat(name_of(old), dir_fd=folder, follow_symlinks=False)
                if _identity(status) != target.identity:
                    raise ChangedError(f"{old!r} has changed")
                self._disk.rename_to_free_name(folder, name_of(old), new_folder, name_of(new))
            except (FileNotFoundError, FileExistsError) as error:
                raise ChangedError(f"{old!r} is gone, or {new!r} has appeared") from error

    def set_aside(self, path: bytes, target: Seen) -> bytes:
        with self._parent(path) as folder:
            status = os.stat(name_of(path), dir_fd=folder, follow_symlinks=False)
            if _identity(status) != target.identity:
                raise ChangedError(f"{path!r} has changed")
            return self._rename_aside(folder, name_of(path), folder, path)

    def _rename_aside(self, folder: int, name: bytes, new_folder: int, path: bytes) -> bytes:
        number = 1
        while True:
            aside = self._care.conflict_name(name_of(path), number)
            try:
                self._disk.rename_to_free_name(folder, name, new_folder, aside)
            except FileExistsError:
                number += 1
            except FileNotFoundError as error:
                raise ChangedError(f"{path!r} is gone") from error
            else:
                return join(parent_of(path), aside)

    def sync(self) -> None:
        """Make the names that were changed survive a power cut."""
        for path in self._unsynced:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                folder = open_below(self._root, path, _OPEN_DIRECTORY)
                try:
                    self._fsync(folder)
                finally:
                    os.close(folder)
        self._unsynced.clear()

    @contextmanager
    def _temporary(self, folder: int) -> Iterator[bytes]:
        """A free name in a directory. What has it at the end is removed, unless it is a directory."""
        name = self._new_name()
        try:
            yield name
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)

    def _new_name(self) -> bytes:
        return TEMPORARY + self._random_bytes(8).hex().encode()


@contextmanager
def _open(name: bytes, flags: int, folder: int) -> Iterator[int]:
    """What has a name in a directory, open."""
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _tidy(folder: int, name: bytes, kind: Kind | None) -> None:
    """Remove what a mirror that was killed was about to give its name; no directory in which something is."""
    if kind is Kind.DIRECTORY:
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=folder)
    elif kind is Kind.FILE:
        os.unlink(name, dir_fd=folder)


def _unless_changed(written: Seen, now: Seen, *, look_again: bool = False) -> Seen:
    """What is agreed of what was *written*, and looks so *now*: see the module."""
    same = (now.identity, now.facts) == (written.identity, written.facts)
    return now if same and not look_again else replace(written, stamp=_NO_STAMP)


def _identity(status: os.stat_result) -> bytes:
    return _IDENTITY.pack(status.st_ino)


def _stamp(status: os.stat_result) -> bytes:
    size, mtime = (0, 0) if stat.S_ISDIR(status.st_mode) else (status.st_size, status.st_mtime_ns)
    return _STAMP.pack(size, mtime, status.st_mode, status.st_ctime_ns)


def _lasting(status: os.stat_result) -> tuple[int, int, int]:
    """What renaming does not change: size, time of the last change of content, mode."""
    return _lasting_of(_stamp(status))


def _lasting_of(stamp: bytes) -> tuple[int, int, int]:
    size, mtime, mode, _ = _STAMP.unpack(stamp)
    return size, mtime, mode
