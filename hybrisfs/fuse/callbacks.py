"""From libfuse's C calls to the handlers of an Operations object, and back with what they answer."""

from __future__ import annotations

import ctypes
import errno
import logging
from collections.abc import Callable
from ctypes import c_int, c_uint64
from struct import Struct
from typing import Any

import hybrisfs.fuse.records as records
from hybrisfs.fuse.library import (
    CALLBACK_TYPES,
    FILE_INFO_FH,
    FILE_INFO_FLAGS,
    ConnectionInfo,
    Library,
    LowLevelOps,
)
from hybrisfs.fuse.operations import Operations
from hybrisfs.fuse.records import (
    FUSE_WRITE_KILL_SUIDGID,
    Attributes,
    Buffer,
    Listing,
    ListingPlus,
    borrowed_view,
    write_flags,
)
from hybrisfs.fuse.request import LATER, Channel, Encoder, Request

__all__ = ["low_level_ops"]

_log = logging.getLogger(__name__)

Handler = Callable[..., Any]
Adapter = Callable[[Handler], Handler]

_SECOND = 1_000_000_000
_FORGET = Struct("=QQ")

_int_at = c_int.from_address
_u64_at = c_uint64.from_address


def _fh(file_info: int) -> int:
    return _u64_at(file_info + FILE_INFO_FH).value


def _flags(file_info: int) -> int:
    return _int_at(file_info + FILE_INFO_FLAGS).value


# Adapters: the C arguments after the request, turned into those of the handler.


def _with_flags(handler: Handler) -> Handler:
    return lambda request, ino, fi: handler(request, ino, _flags(fi))


def _with_fh(handler: Handler) -> Handler:
    return lambda request, ino, fi: handler(request, ino, _fh(fi))


def _with_fh_and_flags(handler: Handler) -> Handler:
    return lambda request, ino, fi: handler(request, ino, _fh(fi), _flags(fi))


def _getattr(handler: Handler) -> Handler:
    return lambda request, ino, fi: handler(request, ino, _fh(fi) if fi else None)


def _sync(handler: Handler) -> Handler:
    return lambda request, ino, datasync, fi: handler(request, ino, _fh(fi), bool(datasync))


def _range(handler: Handler) -> Handler:
    return lambda request, ino, size, offset, fi: handler(request, ino, _fh(fi), offset, size)


def _create(handler: Handler) -> Handler:
    return lambda request, parent, name, mode, fi: handler(request, parent, name, mode, _flags(fi))


def _tmpfile(handler: Handler) -> Handler:
    return lambda request, parent, mode, fi: handler(request, parent, mode, _flags(fi))


def _write(handler: Handler) -> Handler:
    def write(request: Request, ino: int, address: int, size: int, offset: int, fi: int) -> Any:
        # Released on return, so that a view kept by mistake raises instead of reading another request's data.
        with borrowed_view(address, size) as data:
            fh = _fh(fi)
            kill = write_flags(address, fh, offset, size) & FUSE_WRITE_KILL_SUIDGID != 0
            return handler(request, ino, fh, offset, data, kill)

    return write


def _setxattr(handler: Handler) -> Handler:
    def setxattr(request: Request, ino: int, name: bytes, address: int, size: int, flags: int) -> Any:
        return handler(request, ino, name, ctypes.string_at(address, size), flags)

    return setxattr


def _fallocate(handler: Handler) -> Handler:
    return lambda request, ino, mode, offset, length, fi: handler(request, ino, _fh(fi), offset, length, mode)


def _lseek(handler: Handler) -> Handler:
    return lambda request, ino, offset, whence, fi: handler(request, ino, _fh(fi), offset, whence)


def _copy_file_range(handler: Handler) -> Handler:
    def copy(
        request: Request,
        ino: int,
        offset: int,
        fi: int,
        to: int,
        to_offset: int,
        to_fi: int,
        size: int,
        flags: int,
    ) -> Any:
        return handler(request, ino, _fh(fi), offset, (to, _fh(to_fi), to_offset), size, flags)

    return copy


def _setattr_for(library: Library) -> Adapter:
    size, record = library.stat

    def adapter(handler: Handler) -> Handler:
        def change(request: Request, ino: int, stat: int, to_set: int, fi: int | None) -> Any:
            mode, uid, gid, length, atime, atime_ns, mtime, mtime_ns, ctime, ctime_ns = record.unpack(
                ctypes.string_at(stat, size)
            )
            attributes = Attributes(
                ino,
                mode,
                uid=uid,
                gid=gid,
                size=length,
                atime_ns=atime * _SECOND + atime_ns,
                mtime_ns=mtime * _SECOND + mtime_ns,
                ctime_ns=ctime * _SECOND + ctime_ns,
            )
            return handler(request, ino, attributes, to_set, _fh(fi) if fi else None)

        return change

    return adapter


def _as_is(handler: Handler) -> Handler:
    return handler


def _buffer(answer: Buffer) -> Buffer:
    return answer


_ANSWERS: dict[str, tuple[Adapter, Encoder]] = {
    "lookup": (_as_is, records.entry_answer),
    "getattr": (_getattr, records.attributes_answer),
    "readlink": (_as_is, _buffer),
    "mknod": (_as_is, records.entry_answer),
    "mkdir": (_as_is, records.entry_answer),
    "unlink": (_as_is, None),
    "rmdir": (_as_is, None),
    "symlink": (_as_is, records.entry_answer),
    "rename": (_as_is, None),
    "link": (_as_is, records.entry_answer),
    "open": (_with_flags, records.open_answer),
    "read": (_range, _buffer),
    "write": (_write, records.size_answer),
    "flush": (_with_fh, None),
    "release": (_with_fh_and_flags, None),
    "fsync": (_sync, None),
    "opendir": (_with_flags, records.open_answer),
    "readdir": (_range, Listing.getvalue),
    "readdirplus": (_range, ListingPlus.getvalue),
    "releasedir": (_with_fh_and_flags, None),
    "fsyncdir": (_sync, None),
    "statfs": (_as_is, records.statvfs_answer),
    "setxattr": (_setxattr, None),
    "getxattr": (_as_is, records.xattr_answer),
    "listxattr": (_as_is, records.xattr_answer),
    "removexattr": (_as_is, None),
    "access": (_as_is, None),
    "create": (_create, records.create_answer),
    "tmpfile": (_tmpfile, records.create_answer),
    "fallocate": (_fallocate, None),
    "lseek": (_lseek, records.offset_answer),
    "copy_file_range": (_copy_file_range, records.size_answer),
}


def low_level_ops(
    library: Library,
    operations: Operations,
    channel: Channel,
    negotiate: Callable[[ConnectionInfo], None],
) -> LowLevelOps:
    """The C table of callbacks for what `operations` overrides. It must live as long as the session."""
    table = LowLevelOps()

    def register(name: str, function: Callable[..., None]) -> None:
        setattr(table, name, CALLBACK_TYPES[name](function))

    def init(_userdata: int | None, connection: Any) -> None:
        negotiate(connection.contents)
        _run_guarded(operations.init)

    register("init", init)
    register("destroy", lambda _userdata: _run_guarded(operations.destroy))
    if _overrides(operations, "forget"):
        _register_forget(library, operations, register)
    answers = _ANSWERS | {"setattr": (_setattr_for(library), records.attributes_answer)}
    for name, (adapter, encode) in answers.items():
        if _overrides(operations, name):
            register(name, _callback(channel, adapter(getattr(operations, name)), encode, name))
    return table


def _overrides(operations: Operations, name: str) -> bool:
    return getattr(type(operations), name) is not getattr(Operations, name)


def _run_guarded(function: Callable[..., None], *arguments: Any) -> None:
    try:
        function(*arguments)
    except BaseException:  # noqa: BLE001 - libfuse cannot take an exception
        _log.exception("an exception in %s", function.__qualname__)


def _register_forget(
    library: Library, operations: Operations, register: Callable[[str, Callable[..., None]], None]
) -> None:
    reply_none = library.brief.fuse_reply_none
    handler = operations.forget

    def forget(handle: int, ino: int, count: int) -> None:
        reply_none(handle)
        _run_guarded(handler, [(ino, count)])

    def forget_multi(handle: int, length: int, address: int) -> None:
        forgets = list(_FORGET.iter_unpack(ctypes.string_at(address, length * _FORGET.size)))
        reply_none(handle)
        _run_guarded(handler, forgets)

    register("forget", forget)
    register("forget_multi", forget_multi)


def _callback(channel: Channel, handler: Handler, encode: Encoder, name: str) -> Callable[..., None]:
    """The C callback for one kind of request; it answers, whatever happens in the handler."""
    cpu = channel.callers_cpu

    def callback(handle: int, *arguments: Any) -> None:
        request = Request(channel, handle, encode)
        channel.answers_later = False
        try:
            answer = handler(request, *arguments)
            if answer is LATER:
                channel.answers_later = True
                request.await_answer()
            else:
                cpu.begin_to_send()
                request.answer_in_loop(answer)
        except OSError as error:
            cpu.begin_to_send()
            _refuse(request, error.errno or errno.EIO, name)
        except BaseException:  # noqa: BLE001 - libfuse cannot take an exception
            _log.exception("an exception in the handler of %s", name)
            _refuse(request, errno.EIO, name)
        finally:
            cpu.end_sending()

    return callback


def _refuse(request: Request, error: int, name: str) -> None:
    try:
        request.refuse_in_loop(error)
    except RuntimeError:
        _log.exception("the handler of %s failed after it had answered", name)
