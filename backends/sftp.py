"""A cloud in a folder of an SSH server: ``sftp://user@host:port/absolute/folder?key=FILE&known_hosts=FILE``.

Credentials: `password`, or `private_key` (the text of a key file), and `passphrase`; without them the user's
agent and the keys in ~/.ssh. The server's own key must be in ~/.ssh/known_hosts, or in the file
`known_hosts`.

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
from collections.abc import Callable, Iterator
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from backends.body import BodyError, Timing
from backends.credentials import NO_CREDENTIALS, Credentials
from backends.driver import CloudKind, Secret, as_bytes
from backends.errors import AuthError, CorruptError, FullError, StoreError, TransientError, reason_of
from backends.folder import MARKER, Child, FolderStore, list_tree, no_folder
from backends.pacing import piece, received, sending
from backends.store import Buffer, Page

if TYPE_CHECKING:
    import paramiko

    from backends.sftp_session import Files, Session

__all__ = ["SftpStore"]

_MAX_CHILDREN: Final = 1_000_000
_FULL_TEXTS: Final = ("no space", "quota")  # what some servers say, for the protocol has no code for it
_CUT_TEXTS: Final = ("eof", "shut down", "timeout")  # of what paramiko takes for a failed login, too
_BLOCK: Final = 1 << 15  # bytes
_PACED_AHEAD: Final = 1 << 17  # bytes asked for at a time when the bandwidth is limited
_LITTLE: Final = 1 << 20  # bytes; with less room than that, a write that fails failed for want of it


class SftpStore(FolderStore["Files"]):
    """A `backends.store.Store` in a folder of an SSH server."""

    kind = CloudKind(
        schemes=("sftp",),
        form="sftp://user@host/absolute/folder",
        what="any machine with an SSH server",
        options=frozenset({"key", "known_hosts"}),
        local_options=frozenset({"key", "known_hosts"}),
        secrets=(
            Secret("password", "Password"),
            Secret("private_key", "Private key, instead of a password"),
            Secret("passphrase", "Passphrase of the private key"),
        ),
        problem=no_folder,
        keeps_nothing="SFTP knows no older versions of files; snapshots on the server are out of its reach",
    )
    when_gone = "is the server's disk mounted?"

    def __init__(
        self, url: str, credentials: Credentials = NO_CREDENTIALS, timing: Timing | None = None
    ) -> None:
        super().__init__(url, credentials, timing)
        self._address = self.kind.parse(url)
        self._root = f"/{self._address.path}"
        self._spool = f"{self._root}/{MARKER}"
        self._lock = threading.Lock()
        self._idle: list[Session] = []
        self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for session in idle:
            session.close()

    def _initialise(self) -> None:
        with self._calling("initialise", "") as files:
            self._make_folders(files, self._spool)

    def _put(self, files: Files, name: str, data: Buffer) -> None:
        self._sweep(files)
        with self._temporary(files, as_bytes(data)) as temporary:
            self._in_folder(files, name, lambda path: files.posix_rename(temporary, path))

    def _put_if_absent(self, files: Files, name: str, data: Buffer) -> bool:
        with self._temporary(files, as_bytes(data)) as temporary:
            try:
                self._in_folder(files, name, lambda path: files.rename(temporary, path))
            except OSError:
                # The protocol has no code for "exists".
                if not _exists(files, self._path(name)):
                    raise
                files.remove(temporary)
                return False
            return True

    def _get(self, files: Files, name: str, limit: int) -> bytes:
        with files.open(self._path(name), "rb") as file:
            size = _regular_size(file)
            data = _fetch(file, size, size) if size <= limit else b""
        if size > limit:
            raise BodyError("long", f"larger than the {limit} bytes expected")
        if len(data) != size:
            raise BodyError("short", "changed while being read")
        return data

    def _get_range(self, files: Files, name: str, offset: int, length: int) -> bytes:
        with files.open(self._path(name), "rb") as file:
            if offset + length > _regular_size(file):
                return b""
            file.seek(offset)
            return _fetch(file, offset + length, length)

    def _size(self, files: Files, name: str) -> int:
        with files.open(self._path(name), "rb") as file:
            return _regular_size(file)

    def _delete(self, files: Files, name: str) -> None:
        files.remove(self._path(name))

    def _list(self, files: Files, prefix: str, after: str, limit: int) -> Page:
        files.stat(self._spool)
        return list_tree(lambda folder: self._children(files, folder), prefix, after, limit)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def _temporary(self, files: Files, data: bytes) -> Iterator[str]:
        """Write a file of its own name, which is gone when something goes wrong afterwards."""
        temporary = f"{self._spool}/{token_hex(12)}"
        try:
            with files.open(temporary, "wxb") as file:
                file.set_pipelined(True)
                view = io.BytesIO(data)
                while part := view.read(_BLOCK):
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
            if not folder or not _exists(files, self._spool):
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

    def _leftovers(self, files: Files) -> Iterator[tuple[str, float]]:
        for entry in files.listdir_attr(self._spool):
            yield entry.filename, entry.st_mtime or time.time()

    def _remove_leftover(self, files: Files, name: str) -> None:
        files.remove(f"{self._spool}/{name}")

    @contextlib.contextmanager
    def _calling(self, operation: str, name: str) -> Iterator[Files]:
        """Lend a connection."""
        with self._translated(operation, name):
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
            except BodyError:
                self._give_back(session)
                raise
            except StoreError:
                # Requests may be under way whose answers nobody would take.
                session.close()
                raise
            except Exception:
                self._drop(session)
                raise
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
            return connect(self._address, self._secrets(), self._timing)
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
            return AuthError(self.url, operation, name, reason_of(error), "check the files named in the URL")
        return self._store_error(operation, name, error)

    def _store_error(self, operation: str, name: str, error: Exception) -> StoreError:
        import paramiko

        if isinstance(error, paramiko.SFTPError | ValueError | IndexError | struct.error):
            return CorruptError(self.url, operation, name, f"an answer without sense: {error}")
        reason = reason_of(error) or f"the connection broke ({type(error).__name__})"
        return TransientError(self.url, operation, name, reason)

    def _failure(self, files: Files, operation: str, name: str, error: OSError) -> StoreError:
        """What the server's refusal means."""
        if isinstance(error, TimeoutError | ConnectionError):
            return self._store_error(operation, name, error)
        if isinstance(error, PermissionError):
            return AuthError(
                self.url, operation, name, "permission denied", "check who owns the folder there"
            )
        reason = str(error.strerror or error)
        try:
            if isinstance(error, FileNotFoundError):
                ours = _exists(files, self._spool)
                reason = f"there is no folder {self._root}, or it is not the one that was set up"
                return self._absent(operation, name, "" if ours else reason)
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


def _regular_size(file: paramiko.SFTPFile) -> int:
    status = file.stat()
    if status.st_mode is None or not stat.S_ISREG(status.st_mode) or status.st_size is None:
        raise BodyError("garbled", "not a regular file")
    return status.st_size


def _fetch(file: paramiko.SFTPFile, end: int, length: int) -> bytes:
    """Read on to `end`, with many requests sent ahead; at most `length` bytes."""
    parts: list[bytes] = []
    while length:
        limited = piece(length) < length
        window = min(length, _PACED_AHEAD) if limited else length
        if limited:  # what has been asked for comes as fast as it can
            received(window)
        length -= window
        file.prefetch(end - length)
        while window and (part := file.read(min(window, _BLOCK))):
            if not limited:
                received(len(part))
            parts.append(part[:window])
            window -= len(parts[-1])
        if window:
            break
    return b"".join(parts)


def _exists(files: Files, path: str) -> bool:
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True
