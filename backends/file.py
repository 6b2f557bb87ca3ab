"""A cloud in a local folder: ``file:///absolute/path``, percent-encoded where needed.

On disk an object `a/b/c` is the file ROOT/a/b/c. The folder ROOT/.hybrisfs is made by `initialise`
and says that this is our folder: without it nothing is read or written, for then the disk is most
likely not mounted and ROOT an empty mount point. It also holds files while they are being written.

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
import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Final
from urllib.parse import unquote, urlsplit

from backends.address import without_secrets
from backends.errors import (
    AuthError,
    CorruptError,
    FullError,
    MissingError,
    MissingRootError,
    OversizeError,
    PermanentError,
    StoreError,
    TransientError,
)
from backends.names import check_name, check_prefix, is_name
from backends.pacing import piece, received, sending
from backends.rename import rename_if_absent
from backends.store import MAX_PAGE, Buffer, Entry, Page
from backends.tree import may_hold

__all__ = ["FileStore"]

_FORM: Final = "write file:///absolute/path/to/folder"
_MARKER: Final = ".hybrisfs"
_STALE_AFTER: Final = 24 * 3600.0  # seconds
_READ_SIZE: Final = 1 << 20  # bytes a single read asks for at most
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


class FileStore:
    """A `backends.store.Store` in a local folder."""

    def __init__(self, url: str) -> None:
        """Open the folder named by `url`; raises `PermanentError` for a malformed URL."""
        self.url = url
        self._root = _root_of(url)
        self._known_durable: set[str] = set()
        self._swept = False

    def initialise(self) -> None:
        with self._translated("initialise", ""):
            (self._root / _MARKER).mkdir(parents=True, exist_ok=True)
            for path in (self._root.resolve(), *self._root.resolve().parents):
                # Parents that already existed may not be ours to open.
                with contextlib.suppress(PermissionError), _opened(str(path)) as folder:
                    _fsync_folder(folder)

    def put(self, name: str, data: Buffer) -> None:
        self._write("put", name, data, replace=True)

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        return self._write("put_if_absent", name, data, replace=False)

    def get(self, name: str, *, limit: int) -> bytes:
        return self._read_whole("get", name, limit)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise ValueError(f"negative range: {offset}+{length}")
        with self._translated("get_range", name), self._object(name) as descriptor:
            size = self._regular_size("get_range", name, descriptor)
            if offset + length > size:
                reason = f"has {size} bytes, {offset + length} needed"
                raise CorruptError(self.url, "get_range", name, reason)
            data = _read_exactly(descriptor, offset, length)
        if len(data) < length:
            raise CorruptError(self.url, "get_range", name, "became shorter while being read")
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        # Inode numbers and times are reused within a clock tick; only the content tells for sure.
        data = self._read_whole("get_if_changed", name, limit)
        current = blake2b(data, digest_size=16).hexdigest()
        return None if current == tag else (data, current)

    def delete(self, name: str) -> None:
        check_name(name)
        *folders, last = name.split("/")
        with self._translated("delete", name):
            try:
                with self._open_root() as root, _descend(root, folders) as folder:
                    os.unlink(last, dir_fd=folder)
            except FileNotFoundError:
                self._require_root("delete", name)

    def delete_many(self, names: Iterable[str]) -> None:
        for name in names:
            self.delete(name)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        check_prefix(prefix)
        if not 1 <= limit <= MAX_PAGE:
            raise ValueError(f"limit must be 1 to {MAX_PAGE}: {limit}")
        entries: list[Entry] = []
        with self._translated("list", prefix), self._open_root() as root:
            for entry in _walk(root, "", prefix, after):
                if len(entries) == limit:
                    return Page(tuple(entries), more=True)
                entries.append(entry)
        return Page(tuple(entries), more=False)

    def close(self) -> None:
        """Nothing is kept open."""

    def _read_whole(self, operation: str, name: str, limit: int) -> bytes:
        with self._translated(operation, name), self._object(name) as descriptor:
            size = self._regular_size(operation, name, descriptor)
            # One byte more than allowed, in case the file grows meanwhile.
            data = _read_exactly(descriptor, 0, limit + 1) if size <= limit else b""
        if size > limit or len(data) > limit:
            raise OversizeError(self.url, operation, name, f"larger than the {limit} bytes expected")
        return data

    @contextlib.contextmanager
    def _object(self, name: str) -> Iterator[int]:
        """Open an object for reading; the descriptor may turn out not to be a regular file."""
        check_name(name)
        *folders, last = name.split("/")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with self._open_root() as root, _descend(root, folders) as folder:
            descriptor = os.open(last, flags, dir_fd=folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _regular_size(self, operation: str, name: str, descriptor: int) -> int:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CorruptError(self.url, operation, name, "not a regular file")
        return status.st_size

    def _write(self, operation: str, name: str, data: Buffer, *, replace: bool) -> bool:
        check_name(name)
        *folders, last = name.split("/")
        with (
            self._translated(operation, name),
            self._open_root() as root,
            _opened(_MARKER, root) as spool,
            self._make_folders(root, folders) as folder,
        ):
            self._sweep(spool)
            temporary = _write_temporary(spool, data)
            stored = True
            try:
                if replace:
                    os.rename(temporary, last, src_dir_fd=spool, dst_dir_fd=folder)
                else:
                    stored = rename_if_absent(temporary, last, spool, folder)
            finally:
                # Gone already when it was renamed.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=spool)
            _fsync_folder(folder)
        return stored

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
                    # Somebody else may have made it a moment ago and not have synced it yet.
                    _fsync_folder(current)
                    self._known_durable.add(path)
                current = stack.enter_context(_opened(segment, current))
            yield current

    def _sweep(self, spool: int) -> None:
        """Once per process, remove what writers that died long ago left behind."""
        if self._swept:
            return
        self._swept = True
        before = time.time() - _STALE_AFTER
        for leftover in os.listdir(spool):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                if os.stat(leftover, dir_fd=spool, follow_symlinks=False).st_mtime < before:
                    os.unlink(leftover, dir_fd=spool)

    @contextlib.contextmanager
    def _open_root(self) -> Iterator[int]:
        """Open the root folder, which must carry our mark."""
        descriptor = os.open(self._root, _DIRECTORY)
        try:
            os.stat(_MARKER, dir_fd=descriptor, follow_symlinks=False)
            yield descriptor
        finally:
            os.close(descriptor)

    def _require_root(self, operation: str, name: str) -> None:
        """Raise `MissingRootError` unless the root folder is there and ours."""
        if self._root.is_dir() and (self._root / _MARKER).is_dir():
            return
        if not self._root.is_dir():
            raise MissingRootError(
                self.url, operation, name, f"folder {self._root} is gone", "is the disk mounted?"
            )
        raise MissingRootError(
            self.url,
            operation,
            name,
            f"folder {self._root} is not the one that was set up (no {_MARKER} folder in it)",
            "is the disk mounted?",
        )

    @contextlib.contextmanager
    def _translated(self, operation: str, name: str) -> Iterator[None]:
        """Turn every `OSError` into the `StoreError` that says what to do about it."""
        try:
            yield
        except OSError as error:
            raise self._store_error(operation, name, error) from error

    def _store_error(self, operation: str, name: str, error: OSError) -> StoreError:
        code = error.errno
        reason = os.strerror(code) if code is not None else str(error)
        if code in (errno.ENOENT, errno.ENOTDIR):
            try:
                self._require_root(operation, name)
            except StoreError as missing_root:
                return missing_root
        if code == errno.ENOENT and operation.startswith("put"):
            return TransientError(self.url, operation, name, "the folder changed meanwhile")
        if code == errno.ENOENT:
            return MissingError(self.url, operation, name, "no such object")
        if code in _NOT_AN_OBJECT:
            return CorruptError(self.url, operation, name, f"something else is in its place: {reason}")
        if code in (errno.ENOSPC, errno.EDQUOT):
            return FullError(self.url, operation, name, reason, f"make room on the disk of {self._root}")
        if code in (errno.EACCES, errno.EPERM):
            return AuthError(self.url, operation, name, reason, f"check the permissions of {self._root}")
        if code in _TRANSIENT:
            return TransientError(self.url, operation, name, reason, f"check the disk of {self._root}")
        return PermanentError(self.url, operation, name, reason)


def _root_of(url: str) -> Path:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise PermanentError(without_secrets(url), "open", "", f"malformed: {error}", _FORM) from None
    path = unquote(parts.path, errors="surrogateescape")
    problem = ""
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        problem = "names another machine"
    elif parts.query or parts.fragment:
        problem = "has a ? or # in it, which a URL writes as %3F or %23"
    elif not path.startswith("/") or path.strip("/") == "" or "\0" in path or ".." in path.split("/"):
        problem = "needs an absolute path"
    if problem:
        raise PermanentError(without_secrets(url), "open", "", problem, _FORM)
    return Path(path)


@contextlib.contextmanager
def _opened(segment: str, parent: int | None = None) -> Iterator[int]:
    descriptor = os.open(segment, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
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


def _fsync_folder(folder: int) -> None:
    try:
        os.fsync(folder)
    except OSError as error:
        # Some network mounts cannot sync folders, and need not.
        if error.errno != errno.EINVAL:
            raise


def _write_temporary(spool: int, data: Buffer) -> str:
    """Write and fsync a new file in the folder `spool`; returns its name."""
    temporary = token_hex(12)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, mode=0o666, dir_fd=spool)
    try:
        rest = memoryview(data).cast("B") if len(data) else memoryview(b"")
        while rest:
            part = rest[: piece(len(rest))]
            sending(len(part))
            while part:
                written = os.write(descriptor, part)
                part, rest = part[written:], rest[written:]
        os.fsync(descriptor)
    except BaseException:
        os.unlink(temporary, dir_fd=spool)
        raise
    finally:
        os.close(descriptor)
    return temporary


def _read_exactly(descriptor: int, offset: int, length: int) -> bytes:
    """Read `length` bytes from `offset` on, fewer only at the end of the file."""
    parts: list[bytes] = []
    while length:
        part = os.pread(descriptor, piece(min(length, _READ_SIZE)), offset)
        if not part:
            break
        received(len(part))
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _walk(folder: int, base: str, prefix: str, after: str) -> Iterator[Entry]:
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
                    yield Entry(name, status.st_size)
