"""One connection of SFTP: who has come by it, and which files it has open."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

import asyncssh

from hybrisfs.client import HybrisError
from hybrisfs.door import Door, neighbour
from serving.folder import Writer
from serving.users import Guard

__all__ = ["House", "OpenFile", "Visitor"]

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")

_MOST_FILES: Final = 256  # that a connection has open
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)
_NOT_ALLOWED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


class House(NamedTuple):
    """What all connections share."""

    door: Door
    guard: Guard
    workers: ThreadPoolExecutor
    """Threads for users who have logged in."""
    logins: ThreadPoolExecutor
    present: set[Visitor]


class OpenFile:
    """A file that a client has open. Thread-safe: it may be closed while it is read."""

    def __init__(self, descriptor: int, writer: Writer) -> None:
        """Takes over the descriptor."""
        self._descriptor = descriptor
        self._writer = writer
        self.written = False
        """It was changed here."""
        self._lock = threading.Lock()

    def use(self, work: Callable[[int], _Result]) -> _Result:
        """Do something with the descriptor. Raises OSError."""
        with self._lock:
            if self._descriptor < 0:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return work(self._descriptor)

    def close(self) -> None:
        """Raises OSError when what was written could not be kept."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                if self.written:
                    self._writer.sign(descriptor)
                os.close(descriptor)

    def seek(self, offset: int, whence: int) -> int:
        """For asyncssh, which asks in its loop where holes are: there are none."""
        return offset if whence == os.SEEK_DATA else 1 << 62


class _NoUserError(Exception):
    """Who was a user is one no more."""


class Visitor(asyncssh.SSHServer):
    """Lets in who knows a password, and does their work in threads."""

    _connection: asyncssh.SSHServerConnection

    def __init__(self, house: House) -> None:
        self._house = house
        self._client = ("", 0)
        self._login = ("", "")
        self._files: set[OpenFile] | None = set()
        self._lock = threading.Lock()

    # -- what asyncssh asks and tells ----------------------------------------------------------------------

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._client = conn.get_extra_info("peername")[:2]
        self._house.present.add(self)

    def password_auth_supported(self) -> bool:
        return True

    async def validate_password(self, username: str, password: str) -> bool:
        guard, address = self._house.guard, neighbour(self._client[0])
        admits = asyncio.get_running_loop().run_in_executor
        try:
            if not guard.is_known(username, password):
                if not guard.has_tries(address):
                    return False
                if not await admits(self._house.logins, guard.admits, address, username, password):
                    log.warning("a wrong password from %s", self._client[0])
                    return False
        except (HybrisError, OSError) as error:
            log.warning("a login: %s", error)
            return False
        self._login = (username, password)
        return True

    def auth_completed(self) -> None:
        self._house.door.entered(self._client)

    def connection_lost(self, exc: Exception | None) -> None:
        self._house.present.discard(self)
        self._house.workers.submit(self._close_all)

    # -- work ----------------------------------------------------------------------------------------------

    async def show_out(self) -> None:
        """End the connection."""
        self._connection.disconnect(asyncssh.DISC_BY_APPLICATION, "HybrisFS ends this connection")
        await self._connection.wait_closed()

    async def do(self, what: str, work: Callable[[], _Result]) -> _Result:
        """Do something in a thread, for a user who is still one. Raises SFTPError."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._house.workers, self._attempt, work)
        except _NoUserError:
            await self.show_out()
            raise asyncssh.SFTPConnectionLost("this user may not come in any more") from None
        except HybrisError as error:
            log.warning("%s: %s", what, error)
            raise asyncssh.SFTPFailure(error.what) from error
        except OSError as error:
            raise _told(error, what) from error

    def _attempt(self, work: Callable[[], _Result]) -> _Result:
        if not self._house.guard.is_known(*self._login):
            raise _NoUserError
        return work()

    @property
    def writer(self) -> Writer:
        """Who writes over this connection."""
        return Writer("sftp", self._login[0])

    def keep(self, descriptor: int) -> OpenFile:
        """Have a file closed at the latest when the connection ends; in any thread. Raises OSError."""
        file = OpenFile(descriptor, self.writer)
        with self._lock:
            if self._files is not None and len(self._files) < _MOST_FILES:
                self._files.add(file)
                return file
        file.close()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def close(self, file: OpenFile) -> None:
        """Close a file; in any thread. Raises OSError."""
        with self._lock:
            if self._files is not None:
                self._files.discard(file)
        file.close()

    def _close_all(self) -> None:
        with self._lock:
            files, self._files = self._files or set(), None
        for file in files:
            try:
                file.close()
            except OSError as error:
                log.warning("a file of a client that has gone: %s", error.strerror or error)


def _told(error: OSError, what: str) -> asyncssh.SFTPError:
    """What a client hears of an error."""
    why = error.strerror or str(error)
    if error.errno in _NOT_THERE:
        return asyncssh.SFTPNoSuchFile("No such file or directory")
    if error.errno in _NOT_ALLOWED:
        return asyncssh.SFTPPermissionDenied(why)
    if error.errno in (errno.EIO, errno.EMFILE, errno.ENOSPC, errno.EDQUOT):
        log.warning("%s: %s", what, why)
    return asyncssh.SFTPFailure(why)
