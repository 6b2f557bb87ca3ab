"""A cloud in a folder of an SSH server: ``sftp://user@host:port/absolute/folder?key=FILE&known_hosts=FILE``.

Object `a/b` is the file FOLDER/a/b. The folder `.hybrisfs` in it is made by `initialise` and says that this
folder is ours; it also holds files while they are being written. Credentials: `password`, or `private_key`
(the text of a key file), and `passphrase`; without them the user's agent and the keys in ~/.ssh. The server's
own key must be in ~/.ssh/known_hosts, or in the file `known_hosts`.

Write order of `put`: temporary file, its fsync where the server can (fsync@openssh.com), rename over the name
(posix-rename@openssh.com). `put_if_absent` ends in the plain rename of the protocol, which does not replace;
OpenSSH makes a hard link for it, which is atomic.

crash after ...        on the server                    repaired by
temporary file         a stale file in .hybrisfs        the first `put` a day later removes it

Each thread that calls has a connection of its own, kept for the next call.
"""

from __future__ import annotations

import contextlib
import errno
import io
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from backends.address import parse_address
from backends.arguments import as_bytes, check_page, check_range
from backends.body import Timing
from backends.credentials import NO_CREDENTIALS, Credentials
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
from backends.names import check_name, check_prefix
from backends.pacing import piece, received, sending
from backends.secrets import secret_names
from backends.store import MAX_PAGE, Buffer, Page
from backends.tree import Child, list_tree

if TYPE_CHECKING:
    import paramiko

    from backends.sftp_session import Files, Session

__all__ = ["SftpStore"]

_FORM: Final = "sftp://user@host/absolute/folder"
_OPTIONS: Final = frozenset({"key", "known_hosts"})
_SECRETS: Final = secret_names("sftp")
_MARKER: Final = ".hybrisfs"
_STALE_AFTER: Final = 24 * 3600.0  # seconds
_MAX_CHILDREN: Final = 1_000_000
_FULL_TEXTS: Final = ("no space", "quota")  # what some servers say, for the protocol has no code for it
_CUT_TEXTS: Final = ("eof", "shut down", "timeout")  # of what paramiko takes for a failed login, too
_PACED_AHEAD: Final = 1 << 17  # bytes asked for at a time when the bandwidth is limited
_LITTLE: Final = 1 << 20  # bytes; with less room than that, a write that fails failed for want of it


class SftpStore:
    """A `backends.store.Store` in a folder of an SSH server."""

    def __init__(
        self, url: str, credentials: Credentials = NO_CREDENTIALS, timing: Timing | None = None
    ) -> None:
        """Take note of everything; raises `PermanentError` for a malformed URL."""
        self.url = url
        self._address = parse_address(url, options=_OPTIONS, form=_FORM)
        if not self._address.path:
            raise PermanentError(url, "open", "", "names no folder", f"write {_FORM}")
        self._root = f"/{self._address.path}"
        self._credentials = credentials
        self._timing = timing or Timing()
        self._lock = threading.Lock()
        self._idle: list[Session] = []
        self._closed = False
        self._swept = False

    def initialise(self) -> None:
        with self._files("initialise", "") as files:
            self._make_folders(files, f"{self._root}/{_MARKER}")

    def put(self, name: str, data: Buffer) -> None:
        check_name(name)
        with self._files("put", name) as files:
            self._sweep(files)
            with self._temporary(files, as_bytes(data)) as temporary:
                self._in_folder(files, name, lambda path: files.posix_rename(temporary, path))

    def put_if_absent(self, name: str, data: Buffer) -> bool:
        check_name(name)
        with self._files("put_if_absent", name) as files, self._temporary(files, as_bytes(data)) as temporary:
            try:
                self._in_folder(files, name, lambda path: files.rename(temporary, path))
            except OSError:
                # The protocol has no code for "exists".
                if not _exists(files, self._path(name)):
                    raise
                files.remove(temporary)
                return False
            return True

    def get(self, name: str, *, limit: int) -> bytes:
        return self._read("get", name, limit)

    def get_range(self, name: str, offset: int, length: int) -> bytes:
        check_name(name)
        check_range(offset, length)
        with self._files("get_range", name) as files, files.open(self._path(name), "rb") as file:
            if offset + length > self._size("get_range", name, file):
                raise CorruptError(self.url, "get_range", name, f"ends before byte {offset + length}")
            file.seek(offset)
            data = self._fetch(file, offset + length, length)
        if len(data) != length:
            raise CorruptError(self.url, "get_range", name, "became shorter while being read")
        return data

    def get_if_changed(self, name: str, tag: str | None, *, limit: int) -> tuple[bytes, str] | None:
        # Times have whole seconds in this protocol; only the content tells for sure.
        data = self._read("get_if_changed", name, limit)
        current = blake2b(data, digest_size=16).hexdigest()
        return None if current == tag else (data, current)

    def delete(self, name: str) -> None:
        check_name(name)
        with contextlib.suppress(MissingError), self._files("delete", name) as files:
            files.remove(self._path(name))

    def delete_many(self, names: Iterable[str]) -> None:
        for name in dict.fromkeys([check_name(name) for name in names]):
            self.delete(name)

    def list(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        check_prefix(prefix)
        check_page(limit)
        with self._files("list", prefix) as files:
            files.stat(f"{self._root}/{_MARKER}")
            return list_tree(lambda folder: self._children(files, folder), prefix, after, limit)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _read(self, operation: str, name: str, limit: int) -> bytes:
        check_name(name)
        with self._files(operation, name) as files, files.open(self._path(name), "rb") as file:
            size = self._size(operation, name, file)
            data = self._fetch(file, size, size) if size <= limit else b""
        if size > limit:
            raise OversizeError(self.url, operation, name, f"larger than the {limit} bytes expected")
        if len(data) != size:
            raise TransientError(self.url, operation, name, "changed while being read")
        return data

    def _size(self, operation: str, name: str, file: paramiko.SFTPFile) -> int:
        status = file.stat()
        if status.st_mode is None or not stat.S_ISREG(status.st_mode) or status.st_size is None:
            raise CorruptError(self.url, operation, name, "not a regular file")
        return status.st_size

    def _fetch(self, file: paramiko.SFTPFile, end: int, length: int) -> bytes:
        """Read on to `end`, with many requests sent ahead; at most `length` bytes."""
        parts: list[bytes] = []
        while length:
            # What has been asked for comes as fast as it can.
            window = min(length, _PACED_AHEAD) if piece(length) < length else length
            received(window)
            length -= window
            file.prefetch(end - length)
            while window and (part := file.read(min(window, 1 << 20))):
                parts.append(part[:window])
                window -= len(parts[-1])
            if window:
                break
        return b"".join(parts)

    @contextlib.contextmanager
    def _temporary(self, files: Files, data: bytes) -> Iterator[str]:
        """Write a file of its own name, which is gone when something goes wrong afterwards."""
        temporary = f"{self._root}/{_MARKER}/{token_hex(12)}"
        try:
            with files.open(temporary, "wxb") as file:
                file.set_pipelined(True)
                view = io.BytesIO(data)
                while part := view.read(1 << 15):
                    sending(len(part))
                    file.write(part)
                file.set_pipelined(False)
                with contextlib.suppress(OSError):  # not every server can
                    files.fsync(file)
            if files.stat(temporary).st_size != len(data):
                raise OSError(errno.EIO, "the server did not store all of it")
            yield temporary
        except (OSError, EOFError):
            import paramiko

            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                files.remove(temporary)
            raise

    def _in_folder(self, files: Files, name: str, rename: Callable[[str], None]) -> None:
        """Rename to the path of an object, making the folders on the way where they are missing."""
        try:
            rename(self._path(name))
        except FileNotFoundError:
            folder, _, _ = name.rpartition("/")
            if not folder or not _exists(files, f"{self._root}/{_MARKER}"):
                raise
            self._make_folders(files, self._path(folder))
            rename(self._path(name))

    def _make_folders(self, files: Files, path: str) -> None:
        try:
            files.mkdir(path)
        except FileNotFoundError:
            parent, _, _ = path.rpartition("/")
            if not parent:
                raise
            self._make_folders(files, parent)
            self._make_folders(files, path)
        except OSError:
            # The protocol has no code for "exists".
            if not _exists(files, path):
                raise

    def _children(self, files: Files, folder: str) -> Iterator[Child]:
        try:
            for count, entry in enumerate(files.listdir_iter(self._path(folder))):
                if count == _MAX_CHILDREN:
                    raise CorruptError(self.url, "list", folder, "the listing does not come to an end")
                mode = entry.st_mode or 0
                if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                    yield Child(entry.filename, stat.S_ISDIR(mode), entry.st_size or 0)
        except FileNotFoundError:
            return

    def _sweep(self, files: Files) -> None:
        """Once per process, remove what writers that died long ago left behind."""
        if self._swept:
            return
        self._swept = True
        before = time.time() - _STALE_AFTER
        for entry in files.listdir_attr(f"{self._root}/{_MARKER}"):
            if (entry.st_mtime or before) < before:
                files.remove(f"{self._root}/{_MARKER}/{entry.filename}")

    @contextlib.contextmanager
    def _files(self, operation: str, name: str) -> Iterator[Files]:
        """Lend a connection; whatever goes wrong becomes the `StoreError` that says what to do about it."""
        session = self._take_session(operation, name)
        try:
            yield session.files
        except OSError as error:
            if isinstance(error, TimeoutError | ConnectionError):
                self._drop(session)
            failure = self._failure(session.files, operation, name, error)
            if session.usable:
                self._give_back(session)
            raise failure from error
        except StoreError:
            # Requests may be under way whose answers nobody would take.
            session.close()
            raise
        except Exception as error:
            self._drop(session)
            raise self._broken(operation, name, error) from error
        except BaseException:
            session.close()
            raise
        self._give_back(session)

    def _take_session(self, operation: str, name: str) -> Session:
        from backends.sftp_session import connect

        with self._lock:
            while self._idle:
                session = self._idle.pop()
                if session.usable:
                    return session
        try:
            secrets = self._credentials.lookup(self.url)
            secrets.require_known(self.url, _SECRETS)
            return connect(self._address, secrets, self._timing)
        except StoreError:
            raise
        except Exception as error:
            raise self._unconnected(operation, name, error) from error

    def _give_back(self, session: Session) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(session)
                return
        session.close()

    def _drop(self, session: Session) -> None:
        """Close a broken connection, and the idle ones, which are most likely broken too."""
        with self._lock:
            idle, self._idle = self._idle, []
        for one in (session, *idle):
            one.close()

    def _unconnected(self, operation: str, name: str, error: Exception) -> StoreError:
        """Why there is no connection."""
        import paramiko

        from backends.sftp_session import UnknownHostError, UnusableKeyError

        host = self._address.host
        if isinstance(error, UnknownHostError | paramiko.BadHostKeyException):
            changed = "its host key is not the known one; somebody may be in between"
            reason = changed if isinstance(error, paramiko.BadHostKeyException) else str(error)
            advice = f"connect once with ssh {host} and compare the key with the one that the owner tells you"
            return AuthError(self.url, operation, name, reason, advice)
        cut = any(text in str(error).lower() for text in _CUT_TEXTS)
        if isinstance(error, paramiko.AuthenticationException | UnusableKeyError) and not cut:
            return AuthError(self.url, operation, name, f"cannot log in: {error}")
        if isinstance(error, FileNotFoundError | PermissionError):
            return AuthError(self.url, operation, name, str(error), "check the files named in the URL")
        return self._broken(operation, name, error)

    def _broken(self, operation: str, name: str, error: Exception) -> StoreError:
        import paramiko

        if isinstance(error, paramiko.SFTPError | ValueError | IndexError | struct.error):
            return CorruptError(self.url, operation, name, f"an answer without sense: {error}")
        reason = str(error) or f"the connection broke ({type(error).__name__})"
        return TransientError(self.url, operation, name, reason)

    def _failure(self, files: Files, operation: str, name: str, error: OSError) -> StoreError:
        """What the server's refusal means."""
        if isinstance(error, TimeoutError | ConnectionError):
            return self._broken(operation, name, error)
        if isinstance(error, PermissionError):
            return AuthError(
                self.url, operation, name, "permission denied", "check who owns the folder there"
            )
        reason = str(error.strerror or error)
        try:
            if isinstance(error, FileNotFoundError):
                return self._not_found(files, operation, name)
            if any(text in reason.lower() for text in _FULL_TEXTS) or self._is_full(files):
                return FullError(self.url, operation, name, reason)
        except (OSError, EOFError):
            pass
        return TransientError(self.url, operation, name, f"the server refuses: {reason}")

    def _is_full(self, files: Files) -> bool:
        try:
            return files.free_bytes(self._root) < _LITTLE
        except OSError:
            return False

    def _not_found(self, files: Files, operation: str, name: str) -> StoreError:
        if not _exists(files, f"{self._root}/{_MARKER}"):
            reason = f"there is no folder {self._root}, or it is not the one that was set up"
            return MissingRootError(self.url, operation, name, reason, "is the server's disk mounted?")
        if operation.startswith("put"):
            return TransientError(self.url, operation, name, "the folder changed meanwhile")
        return MissingError(self.url, operation, name, "no such object")


def _exists(files: Files, path: str) -> bool:
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True
