"""A cloud in a local folder: ``file:///absolute/folder``, percent-encoded where needed.

Write order of `put`: temporary file, its fsync, rename over the name, fsync of the folder. Folders on
the way are made as needed and their entries fsynced before the object is acknowledged.

crash after ...        on disk                          repaired by
temporary file         a stale file in .hybrisfs        the first `put` a day later removes it
rename, before fsync   the old or the new object        nobody need: it was not acknowledged

Paths are walked one segment at a time without following symbolic links, so nothing outside ROOT is
ever touched, and files are opened so that a FIFO or device in an object's place cannot block.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Final
from urllib.parse import unquote, urlsplit

from backends.address import without_secrets
from backends.body import BodyError
from backends.credentials import NO_CREDENTIALS, Credentials
from backends.driver import CloudKind
from backends.errors import (
    AuthError,
    CorruptError,
    FullError,
    PermanentError,
    StoreError,
    TransientError,
)
from backends.folder import MARKER, FolderStore, first_page, may_hold
from backends.pacing import piece, received, sending
from backends.store import Buffer, Page, StoredObject, is_name

__all__ = ["FileStore"]

_RENAME_NOREPLACE: Final = 1  # linux/fs.h
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_AT_ONCE: Final = 1 << 20  # bytes that a single read or write asks for at most
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NOT_AN_OBJECT: Final = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO})
_TRANSIENT: Final = frozenset(
    {
        errno.EIO,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.ENOMEM,
        errno.EMFILE,
        errno.ENFILE,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ECONNABORTED,
        errno.ECONNRESET,
        errno.EREMOTEIO,
    }
)


class FileStore(FolderStore[int]):
    """A `backends.store.Store` in a local folder. A call works with the descriptor of the root folder."""

    kind = CloudKind(
        schemes=("file",),
        form="file:///absolute/folder",
        what="a disk, or a network drive",
        keeps_nothing="a folder has no older versions of files; snapshots of its disk are out of its reach",
    )
    when_gone = "is the disk mounted?"

    def __init__(self, url: str, credentials: Credentials = NO_CREDENTIALS) -> None:
        """Take note of the folder; raises `PermanentError` for a malformed URL."""
        super().__init__(url, credentials)
        self._root = _root_of(url)
        self._known_durable: set[str] = set()

    def close(self) -> None:
        """Nothing is kept open."""

    def dismantle(self, folders: Sequence[str]) -> bool:
        """See `backends.store.dismantle`."""
        with self._calling("dismantle", "") as root:
            for name in folders:
                _prune(root, name)
            for name, _ in list(self._leftovers(root)):
                self._remove_leftover(root, name)
            os.rmdir(MARKER, dir_fd=root)
        try:
            self._root.rmdir()
        except OSError:  # something else is in it, or the folder around it is not ours
            return False
        return True

    def _initialise(self) -> None:
        (self._root / MARKER).mkdir(parents=True, exist_ok=True)
        for path in (self._root.resolve(), *self._root.resolve().parents):
            # Parents that already existed may not be ours to open.
            with contextlib.suppress(PermissionError), _opened(str(path)) as folder:
                self._sync_folder(folder)

    @contextlib.contextmanager
    def _calling(self, operation: str, name: str) -> Iterator[int]:
        """Open the root folder, which must carry our mark."""
        with self._translated(operation, name), _opened(str(self._root), follow=True) as root:
            os.stat(MARKER, dir_fd=root, follow_symlinks=False)
            yield root

    def _put(self, root: int, name: str, data: Buffer) -> None:
        self._write(root, name, data, replace=True)

    def _put_if_absent(self, root: int, name: str, data: Buffer) -> bool:
        return self._write(root, name, data, replace=False)

    def _get(self, root: int, name: str, limit: int) -> bytes:
        with _object(root, name) as descriptor:
            size = self._regular_size(descriptor)
            # One byte more than allowed, in case the file grows while it is read.
            data = _read_exactly(descriptor, 0, limit + 1) if size <= limit else b""
        if size > limit or len(data) > limit:
            raise BodyError("long", f"larger than the {limit} bytes expected")
        return data

    def _get_range(self, root: int, name: str, offset: int, length: int) -> bytes:
        with _object(root, name) as descriptor:
            enough = offset + length <= self._regular_size(descriptor)
            return _read_exactly(descriptor, offset, length) if enough else b""

    def _size(self, root: int, name: str) -> int:
        with _object(root, name) as descriptor:
            return self._regular_size(descriptor)

    def _delete(self, root: int, name: str) -> None:
        *folders, last = name.split("/")
        with _descend(root, folders) as folder:
            os.unlink(last, dir_fd=folder)

    def _list(self, root: int, prefix: str, after: str, limit: int) -> Page:
        return first_page(_walk(root, "", prefix, after), limit)

    def _regular_size(self, descriptor: int) -> int:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BodyError("garbled", "not a regular file")
        return status.st_size

    def _write(self, root: int, name: str, data: Buffer, *, replace: bool) -> bool:
        *folders, last = name.split("/")
        with _opened(MARKER, root) as spool, self._make_folders(root, folders) as folder:
            self._sweep(root)
            temporary = self._write_temporary(spool, data)
            stored = True
            try:
                if replace:
                    os.rename(temporary, last, src_dir_fd=spool, dst_dir_fd=folder)
                else:
                    stored = _rename_if_absent(temporary, last, spool, folder)
            finally:
                # Gone already when it was renamed.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=spool)
            self._sync_folder(folder)
        return stored

    def _write_temporary(self, spool: int, data: Buffer) -> str:
        """Write and sync a new file in the folder `spool`; returns its name."""
        temporary = token_hex(12)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, mode=0o666, dir_fd=spool)
        try:
            rest = memoryview(data).cast("B") if len(data) else memoryview(b"")
            while rest:
                part = rest[: piece(min(len(rest), _AT_ONCE))]
                sending(len(part))
                while part:
                    written = os.write(descriptor, part)
                    part, rest = part[written:], rest[written:]
            self._sync(descriptor)
        except BaseException:
            os.unlink(temporary, dir_fd=spool)
            raise
        finally:
            os.close(descriptor)
        return temporary

    def _sync_folder(self, folder: int) -> None:
        try:
            self._sync(folder)
        except OSError as error:
            # Some network mounts cannot sync folders, and need not.
            if error.errno != errno.EINVAL:
                raise

    def _sync(self, descriptor: int) -> None:
        """Make an open file or folder survive a power cut. Raises OSError."""
        os.fsync(descriptor)

    @contextlib.contextmanager
    def _make_folders(self, root: int, folders: Sequence[str]) -> Iterator[int]:
        """Open the folder at `folders`, making what is missing; its entries on the way are durable."""
        with contextlib.ExitStack() as stack:
            current = root
            path = ""
            for segment in folders:
                path = f"{path}/{segment}"
                try:
                    os.mkdir(segment, dir_fd=current)
                    self._known_durable.discard(path)
                except FileExistsError:
                    pass
                if path not in self._known_durable:
                    # Another process may have made it a moment ago and not have synced it yet.
                    self._sync_folder(current)
                    self._known_durable.add(path)
                current = stack.enter_context(_opened(segment, current))
            yield current

    def _leftovers(self, root: int) -> Iterator[tuple[str, float]]:
        with _opened(MARKER, root) as spool, os.scandir(spool) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError, PermissionError):
                    yield entry.name, entry.stat(follow_symlinks=False).st_mtime

    def _remove_leftover(self, root: int, name: str) -> None:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
            os.unlink(f"{MARKER}/{name}", dir_fd=root)

    def _root_trouble(self) -> str:
        """Why the root folder cannot be used; "" when it is there and ours."""
        if not self._root.is_dir():
            return f"folder {self._root} is gone"
        if not (self._root / MARKER).is_dir():
            return f"folder {self._root} is not the one that was set up (no {MARKER} folder in it)"
        return ""

    def _store_error(self, operation: str, name: str, error: Exception) -> StoreError | None:
        if not isinstance(error, OSError):
            return None
        code = error.errno
        reason = os.strerror(code) if code is not None else str(error)
        if code in (errno.ENOENT, errno.ENOTDIR):
            trouble = self._root_trouble()
            if trouble or code == errno.ENOENT:
                return self._absent(operation, name, trouble)
        if code in _NOT_AN_OBJECT:
            return CorruptError(self.url, operation, name, f"something else is in its place: {reason}")
        if code in (errno.ENOSPC, errno.EDQUOT):
            return FullError(self.url, operation, name, reason, f"make room on the disk of {self._root}")
        if code in (errno.EACCES, errno.EPERM):
            return AuthError(self.url, operation, name, reason, f"check the permissions of {self._root}")
        if code in _TRANSIENT:
            return TransientError(self.url, operation, name, reason, f"check the disk of {self._root}")
        return PermanentError(self.url, operation, name, reason)


_ADVICE: Final = f"write {FileStore.kind.form}"


def _root_of(url: str) -> Path:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise PermanentError(without_secrets(url), "open", "", f"malformed: {error}", _ADVICE) from None
    path = unquote(parts.path, errors="surrogateescape")
    problem = ""
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        problem = "names another machine"
    elif parts.query or parts.fragment:
        problem = "has a ? or # in it, which a URL writes as %3F or %23"
    elif not path.startswith("/") or path.strip("/") == "" or "\0" in path or ".." in path.split("/"):
        problem = "needs an absolute path"
    if problem:
        raise PermanentError(without_secrets(url), "open", "", problem, _ADVICE)
    return Path(path)


@contextlib.contextmanager
def _opened(segment: str, parent: int | None = None, *, follow: bool = False) -> Iterator[int]:
    flags = _DIRECTORY if follow else _DIRECTORY | os.O_NOFOLLOW
    descriptor = os.open(segment, flags, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _descend(root: int, folders: Sequence[str]) -> Iterator[int]:
    """Open the folder at `folders` below `root` without following symbolic links."""
    with contextlib.ExitStack() as stack:
        current = root
        for segment in folders:
            current = stack.enter_context(_opened(segment, current))
        yield current


def _prune(parent: int, name: str) -> None:
    """Remove a folder, with the empty folders below it; what holds anything else stays."""
    try:
        with _opened(name, parent) as folder:
            with os.scandir(folder) as entries:
                inner = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            for one in inner:
                _prune(folder, one)
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP):
            raise


@contextlib.contextmanager
def _object(root: int, name: str) -> Iterator[int]:
    """Open an object for reading; the descriptor may turn out not to be a regular file."""
    *folders, last = name.split("/")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with _descend(root, folders) as folder:
        descriptor = os.open(last, flags, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _rename_if_absent(source: str, target: str, source_folder: int, target_folder: int) -> bool:
    """Move `source` to `target` (names in two open folders) in one step, unless `target` exists; say whether
    it moved.

    A hard link does it nearly everywhere, network mounts included; FAT and exFAT have none, but know
    renameat2(2) with RENAME_NOREPLACE. Raises `OSError` when neither works.
    """
    try:
        os.link(source, target, src_dir_fd=source_folder, dst_dir_fd=target_folder)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _rename_noreplace(source, target, source_folder, target_folder)
    os.unlink(source, dir_fd=source_folder)
    return True


def _rename_noreplace(source: str, target: str, source_folder: int, target_folder: int) -> bool:
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    failed = renameat2(
        source_folder, os.fsencode(source), target_folder, os.fsencode(target), _RENAME_NOREPLACE
    )
    if not failed:
        return True
    code = ctypes.get_errno()
    if code == errno.EEXIST:
        return False
    raise OSError(code, os.strerror(code), target)


def _read_exactly(descriptor: int, offset: int, length: int) -> bytes:
    """Read `length` bytes from `offset` on, fewer only at the end of the file."""
    parts: list[bytes] = []
    while length:
        part = os.pread(descriptor, piece(min(length, _AT_ONCE)), offset)
        if not part:
            break
        received(len(part))
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _walk(folder: int, base: str, prefix: str, after: str) -> Iterator[StoredObject]:
    """Yield the objects below an open folder, whose name is `base`, in name order."""
    children: list[tuple[str, os.DirEntry[str]]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = base + entry.name
            if is_name(name):
                # A folder's objects sort where its name with the slash sorts: "a-b" < "a/c".
                children.append((name + "/" if entry.is_dir(follow_symlinks=False) else name, entry))
    children.sort(key=lambda child: child[0])
    for name, entry in children:
        if name.endswith("/"):
            if may_hold(name, prefix, after):
                with contextlib.suppress(FileNotFoundError), _opened(entry.name, folder) as inner:
                    yield from _walk(inner, name, prefix, after)
        elif name > after and name.startswith(prefix):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield StoredObject(name, status.st_size)
