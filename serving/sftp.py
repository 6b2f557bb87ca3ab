"""SFTP, version 3: what clients ask is done with the served folder, and nothing else that SSH could."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import posixpath
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import asyncssh
from asyncssh.packet import SSHPacket
from asyncssh.sftp import MAX_SFTP_READ_LEN, SFTPServerHandler

from hybrisfs.door import Door
from serving.folder import Attributes, Folder, Path
from serving.users import Guard
from serving.visitor import House, OpenFile, Visitor

__all__ = ["serve_clients"]

_Result = TypeVar("_Result")

_WORKERS: Final = 32
_WRITE: Final = 6  # SSH_FXP_WRITE
_LATEST: Final = (1 << 32) - 1  # seconds since the epoch
_LOGIN_WITHIN: Final = 60  # seconds
_ALIVE_EVERY: Final = 30  # seconds
_GOODBYE: Final = 3  # seconds


async def _take_write(handler: SFTPServerHandler, packet: SSHPacket) -> int:
    """Take a request to write. Older rclones leave bytes behind the last piece of a file, as OpenSSH lets
    them; asyncssh would refuse the request."""
    packet.get_string(), packet.get_uint64(), packet.get_string()
    request = SSHPacket(packet.get_consumed_payload())
    request.get_byte(), request.get_uint32()
    return await SFTPServerHandler._process_write(handler, request)


# There is no other way to have it take such requests.
SFTPServerHandler._packet_handlers[_WRITE] = _take_write


async def serve_clients(
    door: Door,
    key: asyncssh.SSHKey,
    guard: Guard,
    folder: Folder,
    over: asyncio.Event,
    started: Callable[[], object],
    *,
    read_only: bool,
) -> None:
    """Serve until it is *over*; *started* is called, in a thread, when clients can connect."""
    logging.getLogger("asyncssh").setLevel(logging.CRITICAL + 1)  # what goes wrong is reported here
    with (
        ThreadPoolExecutor(_WORKERS, "request") as workers,
        ThreadPoolExecutor(2, "login") as logins,
    ):
        house = House(door, guard, workers, logins, set())
        acceptor = await asyncssh.listen(
            sock=door,
            server_factory=lambda: Visitor(house),
            sftp_factory=lambda channel: _Requests(channel, folder, read_only=read_only),
            sftp_version=3,
            server_host_keys=[key],
            server_version="HybrisFS",
            # A stranger could have this machine compute long numbers with these.
            kex_algs="-diffie-hellman-*,rsa*",
            compression_algs=None,
            gss_host=None,
            public_key_auth=False,
            host_based_auth=False,
            allow_pty=False,
            agent_forwarding=False,
            x11_forwarding=False,
            login_timeout=_LOGIN_WITHIN,
            keepalive_interval=_ALIVE_EVERY,
        )
        try:
            await asyncio.to_thread(started)
            await over.wait()
        finally:
            acceptor.close()
            leaving = [asyncio.create_task(visitor.show_out()) for visitor in house.present]
            if leaving:
                await asyncio.wait(leaving, timeout=_GOODBYE)


class _Requests(asyncssh.SFTPServer):
    """What one client asks, one request after the other."""

    def __init__(self, channel: asyncssh.SSHServerChannel[Any], folder: Folder, *, read_only: bool) -> None:
        super().__init__(channel)
        owner = channel.get_connection().get_owner()
        assert isinstance(owner, Visitor)
        self._visitor = owner
        self._folder = folder
        self._read_only = read_only

    # -- files ---------------------------------------------------------------------------------------------

    async def open(self, path: bytes, pflags: int, attrs: asyncssh.SFTPAttrs) -> OpenFile:
        where, flags = _names(path), _flags(pflags)
        if flags & (os.O_ACCMODE | os.O_CREAT | os.O_TRUNC):
            self._check_change()
        mode = 0o666 if attrs.permissions is None else attrs.permissions
        return await self._do(
            "open", path, lambda: self._visitor.keep(self._folder.open_in_place(where, flags, mode))
        )

    async def close(self, file_obj: object) -> None:
        file = _file(file_obj)
        await self._do("close", b"", lambda: self._visitor.close(file))

    async def read(self, file_obj: object, offset: int, size: int) -> bytes:
        size = min(size, MAX_SFTP_READ_LEN)
        return await self._use(file_obj, lambda file: os.pread(file, size, _offset(offset)))

    async def write(self, file_obj: object, offset: int, data: bytes) -> int:
        def write(file: int) -> int:
            done = 0
            while done < len(data):
                done += os.pwrite(file, data[done:], _offset(offset + done))
            return done

        _file(file_obj).written = True
        return await self._use(file_obj, write)

    async def fsync(self, file_obj: object) -> None:
        await self._use(file_obj, os.fsync)

    async def fstat(self, file_obj: object) -> asyncssh.SFTPAttrs:
        return _attributes(await self._use(file_obj, os.fstat))

    async def fsetstat(self, file_obj: object, attrs: asyncssh.SFTPAttrs) -> None:
        self._check_change()
        await self._use(file_obj, _wanted(attrs).apply)

    # -- paths ---------------------------------------------------------------------------------------------

    async def realpath(self, path: bytes) -> bytes:
        return os.fsencode("/" + "/".join(_names(path)))

    async def stat(self, path: bytes) -> asyncssh.SFTPAttrs:
        where = _names(path)
        return _attributes(await self._do("stat", path, lambda: self._folder.status(where)))

    async def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        return await self.stat(path)

    async def setstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        where, wanted = _names(path), _wanted(attrs)
        await self._change("setstat", path, lambda: self._folder.set_attributes(where, wanted))

    async def lsetstat(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        await self.setstat(path, attrs)

    async def scandir(self, path: bytes) -> AsyncIterator[asyncssh.SFTPName]:
        where = _names(path)
        for name, status in await self._do("readdir", path, lambda: self._folder.entries(where)):
            yield asyncssh.SFTPName(os.fsencode(name), attrs=_attributes(status))

    async def mkdir(self, path: bytes, attrs: asyncssh.SFTPAttrs) -> None:
        where = _names(path)
        mode = 0o777 if attrs.permissions is None else attrs.permissions
        await self._change("mkdir", path, lambda: self._folder.make_folder(where, mode, self._visitor.writer))

    async def rmdir(self, path: bytes) -> None:
        where, writer = _names(path), self._visitor.writer
        await self._change("rmdir", path, lambda: self._folder.remove_empty_folder(where, writer))

    async def remove(self, path: bytes) -> None:
        where, writer = _names(path), self._visitor.writer
        await self._change("remove", path, lambda: self._folder.remove_file(where, writer))

    async def rename(self, oldpath: bytes, newpath: bytes) -> None:
        source, target, writer = _names(oldpath), _names(newpath), self._visitor.writer
        await self._change(
            "rename", oldpath, lambda: self._folder.move(source, target, replace=False, writer=writer)
        )

    async def posix_rename(self, oldpath: bytes, newpath: bytes) -> None:
        source, target, writer = _names(oldpath), _names(newpath), self._visitor.writer
        await self._change("rename", oldpath, lambda: self._folder.rename(source, target, writer))

    async def statvfs(self, path: bytes) -> os.statvfs_result:
        return await self._do("statvfs", path, self._folder.statistics)

    async def fstatvfs(self, file_obj: object) -> os.statvfs_result:
        return await self._use(file_obj, os.statvfs)

    async def readlink(self, path: bytes) -> bytes:
        raise asyncssh.SFTPNoSuchFile("No such link")

    async def symlink(self, oldpath: bytes, newpath: bytes) -> None:
        raise asyncssh.SFTPOpUnsupported("there are no links here")

    async def link(self, oldpath: bytes, newpath: bytes) -> None:
        raise asyncssh.SFTPOpUnsupported("there are no links here")

    def exit(self) -> None:
        self.channel.exit(0)  # scp takes its end for a failure otherwise

    def format_user(self, uid: int | None) -> str:
        return str(uid)

    def format_group(self, gid: int | None) -> str:
        return str(gid)

    # ------------------------------------------------------------------------------------------------------

    async def _do(self, what: str, path: bytes, work: Callable[[], _Result]) -> _Result:
        return await self._visitor.do(f"{what} {ascii(os.fsdecode(path))[:200]}", work)

    async def _use(self, file_obj: object, work: Callable[[int], _Result]) -> _Result:
        file = _file(file_obj)
        return await self._do("an open file", b"", lambda: file.use(work))

    async def _change(self, what: str, path: bytes, work: Callable[[], None]) -> None:
        self._check_change()
        await self._do(what, path, work)

    def _check_change(self) -> None:
        if self._read_only:
            raise asyncssh.SFTPPermissionDenied("this folder is served for reading only")


def _file(file_obj: object) -> OpenFile:
    assert isinstance(file_obj, OpenFile)
    return file_obj


def _names(path: bytes) -> Path:
    """Where a path leads, from the served folder on, wherever it begins. Raises SFTPNoSuchFile."""
    try:
        text = path.decode()
    except UnicodeDecodeError:
        raise asyncssh.SFTPNoSuchFile("names are UTF-8 here") from None
    return tuple(name for name in posixpath.normpath("/" + text).split("/") if name)


def _flags(pflags: int) -> int:
    """Flags of open(2)."""
    reads, writes = bool(pflags & asyncssh.FXF_READ), bool(pflags & asyncssh.FXF_WRITE)
    flags = os.O_RDWR if reads and writes else os.O_WRONLY if writes else os.O_RDONLY
    for theirs, ours in (
        (asyncssh.FXF_APPEND, os.O_APPEND),
        (asyncssh.FXF_CREAT, os.O_CREAT),
        (asyncssh.FXF_TRUNC, os.O_TRUNC),
        (asyncssh.FXF_EXCL, os.O_EXCL),
    ):
        flags |= ours if pflags & theirs else 0
    return flags


def _offset(offset: int) -> int:
    if offset >= 1 << 63:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return offset


def _wanted(attrs: asyncssh.SFTPAttrs) -> Attributes:
    """What a client wants to be set. Raises SFTPError."""
    if attrs.uid is not None:
        raise asyncssh.SFTPPermissionDenied("owners stay as they are")
    if attrs.size is not None and attrs.size >= 1 << 63:
        raise asyncssh.SFTPFailure("no file is that large")
    times = None if attrs.atime is None or attrs.mtime is None else (attrs.atime, attrs.mtime)
    return Attributes(attrs.size, attrs.permissions, times)


def _attributes(status: os.stat_result) -> asyncssh.SFTPAttrs:
    return asyncssh.SFTPAttrs(
        size=status.st_size,
        uid=status.st_uid,
        gid=status.st_gid,
        permissions=status.st_mode,
        atime=min(max(int(status.st_atime), 0), _LATEST),
        mtime=min(max(int(status.st_mtime), 0), _LATEST),
        nlink=status.st_nlink,
    )
