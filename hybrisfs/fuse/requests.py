"""What the kernel asks (linux/fuse.h): from the bytes of a request to the call of its handler.

A request is a header, the record of its kind, and then names, each with a zero byte behind it, or bytes:

    fuse_in_header            len opcode (u32), unique nodeid (u64), uid gid pid (u32), total_extlen
                              padding (u16)                                                        40 bytes
    fuse_getattr_in           getattr_flags dummy (u32), fh (u64)
    fuse_setattr_in           valid padding (u32), fh size lock_owner atime mtime ctime (u64), atimensec
                              mtimensec ctimensec mode unused4 uid gid unused5 (u32)               88 bytes
    fuse_mknod_in             mode rdev umask padding (u32), then the name
    fuse_mkdir_in             mode umask (u32), then the name
    fuse_create_in            flags mode umask open_flags (u32), then the name (TMPFILE: one that counts for
                              nothing)
    fuse_open_in              flags open_flags (u32)
    fuse_rename_in            newdir (u64), then both names
    fuse_rename2_in           newdir (u64), flags padding (u32), then both names
    fuse_link_in              oldnodeid (u64), then the name
    fuse_read_in              fh offset (u64), size read_flags (u32), lock_owner (u64), flags padding (u32)
    fuse_write_in             fh offset (u64), size write_flags (u32), lock_owner (u64), flags padding (u32),
                              then the bytes
    fuse_release_in           fh (u64), flags release_flags (u32), lock_owner (u64)
    fuse_flush_in             fh (u64), unused padding (u32), lock_owner (u64)
    fuse_fsync_in             fh (u64), fsync_flags padding (u32)
    fuse_setxattr_in          size flags (u32), then the name and the value
    fuse_getxattr_in          size padding (u32), then the name, but for LISTXATTR
    fuse_access_in            mask padding (u32)
    fuse_fallocate_in         fh offset length (u64), mode padding (u32)
    fuse_lseek_in             fh offset (u64), whence padding (u32)
    fuse_copy_file_range_in   fh_in off_in nodeid_out fh_out off_out len flags (u64)
    fuse_forget_in            nlookup (u64)
    fuse_batch_forget_in      count dummy (u32), then as many fuse_forget_one: nodeid nlookup (u64)
    fuse_interrupt_in         unique (u64)

SYMLINK has two names (the new one, the target), LOOKUP, UNLINK, RMDIR and REMOVEXATTR one, READLINK and
STATFS nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

import hybrisfs.fuse.records as records
from hybrisfs.fuse.operations import Operations
from hybrisfs.fuse.records import Attributes, Buffer, Listing, ListingPlus
from hybrisfs.fuse.request import Encoder, Request

__all__ = ["FORGETS", "HEADER", "INIT", "INTERRUPT", "Call", "calls_of", "forgets_in", "interrupted_by"]

Handler = Callable[..., Any]
Call = Callable[[Request, int, memoryview, int], Any]
"""Calls a handler: the request, its nodeid, the message and how many bytes of that are the request."""

INIT: Final = 26
INTERRUPT: Final = 36
_FORGET: Final = 2
_BATCH_FORGET: Final = 42
FORGETS: Final = frozenset({_FORGET, _BATCH_FORGET})

HEADER: Final = Struct("=IIQQIII4x")
_BODY: Final = HEADER.size
_GETATTR: Final = Struct("=I4xQ")
_SETATTR: Final = Struct("=I4xQQ8xqqqIIII4xII4x")
_MKNOD: Final = Struct("=III4x")
_MKDIR: Final = Struct("=II")
_CREATE: Final = Struct("=III4x")
_NUMBER: Final = Struct("=I4x")  # of fuse_open_in, fuse_getxattr_in, fuse_access_in
_RENAME: Final = Struct("=Q")
_RENAME2: Final = Struct("=QI4x")
_LINK: Final = Struct("=Q")
_READ: Final = Struct("=QQI20x")
_WRITE: Final = Struct("=QQII16x")
_RELEASE: Final = Struct("=QI12x")
_FLUSH: Final = Struct("=Q16x")
_FSYNC: Final = Struct("=QI4x")
_SETXATTR: Final = Struct("=II")
_FALLOCATE: Final = Struct("=QQQI4x")
_LSEEK: Final = Struct("=QQI4x")
_COPY_FILE_RANGE: Final = Struct("=QQQQQQQ")
_FORGOTTEN: Final = Struct("=Q")
_COUNT: Final = Struct("=I4x")
_FORGET_ONE: Final = Struct("=QQ")

_GETATTR_FH: Final = 1 << 0
_FSYNC_FDATASYNC: Final = 1 << 0
_SECOND: Final = 1_000_000_000


def _name(message: memoryview, start: int, size: int) -> bytes:
    return message[start : size - 1].tobytes()


def _names(message: memoryview, start: int, size: int) -> list[bytes]:
    return message[start : size - 1].tobytes().split(b"\0")


# Each turns a handler into the call for one kind of request.


def _with_nothing(handler: Handler) -> Call:
    return lambda request, node, message, size: handler(request, node)


def _with_name(handler: Handler) -> Call:
    return lambda request, node, message, size: handler(request, node, _name(message, _BODY, size))


def _with_number(handler: Handler) -> Call:
    return lambda request, node, message, size: handler(request, node, *_NUMBER.unpack_from(message, _BODY))


def _with_fh(handler: Handler) -> Call:
    return lambda request, node, message, size: handler(request, node, *_FLUSH.unpack_from(message, _BODY))


def _with_fh_and_flags(handler: Handler) -> Call:
    return lambda request, node, message, size: handler(request, node, *_RELEASE.unpack_from(message, _BODY))


def _range(handler: Handler) -> Call:
    return lambda request, node, message, size: handler(request, node, *_READ.unpack_from(message, _BODY))


def _getattr(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        flags, fh = _GETATTR.unpack_from(message, _BODY)
        return handler(request, node, fh if flags & _GETATTR_FH else None)

    return call


def _setattr(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        valid, fh, length, atime, mtime, ctime, atime_ns, mtime_ns, ctime_ns, mode, uid, gid = (
            _SETATTR.unpack_from(message, _BODY)
        )
        attributes = Attributes(
            node,
            mode,
            uid=uid,
            gid=gid,
            size=length,
            atime_ns=atime * _SECOND + atime_ns,
            mtime_ns=mtime * _SECOND + mtime_ns,
            ctime_ns=ctime * _SECOND + ctime_ns,
        )
        return handler(
            request, node, attributes, valid & records.FATTR_ALL, fh if valid & records.FATTR_FH else None
        )

    return call


def _symlink(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        name, target = _names(message, _BODY, size)
        return handler(request, target, node, name)

    return call


def _mknod(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        mode, rdev, request.umask = _MKNOD.unpack_from(message, _BODY)
        return handler(request, node, _name(message, _BODY + _MKNOD.size, size), mode, rdev)

    return call


def _mkdir(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        mode, request.umask = _MKDIR.unpack_from(message, _BODY)
        return handler(request, node, _name(message, _BODY + _MKDIR.size, size), mode)

    return call


def _create(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        flags, mode, request.umask = _CREATE.unpack_from(message, _BODY)
        return handler(request, node, _name(message, _BODY + _CREATE.size, size), mode, flags)

    return call


def _tmpfile(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        flags, mode, request.umask = _CREATE.unpack_from(message, _BODY)
        return handler(request, node, mode, flags)

    return call


def _rename(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        (new_parent,) = _RENAME.unpack_from(message, _BODY)
        name, new_name = _names(message, _BODY + _RENAME.size, size)
        return handler(request, node, name, new_parent, new_name, 0)

    return call


def _rename2(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        new_parent, flags = _RENAME2.unpack_from(message, _BODY)
        name, new_name = _names(message, _BODY + _RENAME2.size, size)
        return handler(request, node, name, new_parent, new_name, flags)

    return call


def _link(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        (ino,) = _LINK.unpack_from(message, _BODY)
        return handler(request, ino, node, _name(message, _BODY + _LINK.size, size))

    return call


def _write(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        fh, offset, length, flags = _WRITE.unpack_from(message, _BODY)
        start = _BODY + _WRITE.size
        # Released on return, so that a view kept by mistake raises instead of reading another request's data.
        with message[start : start + length] as data:
            return handler(request, node, fh, offset, data, flags & records.FUSE_WRITE_KILL_SUIDGID != 0)

    return call


def _fsync(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        fh, flags = _FSYNC.unpack_from(message, _BODY)
        return handler(request, node, fh, flags & _FSYNC_FDATASYNC != 0)

    return call


def _setxattr(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        length, flags = _SETXATTR.unpack_from(message, _BODY)
        name, _, rest = message[_BODY + _SETXATTR.size : size].tobytes().partition(b"\0")
        return handler(request, node, name, rest[:length], flags)

    return call


def _getxattr(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        (length,) = _NUMBER.unpack_from(message, _BODY)
        return handler(request, node, _name(message, _BODY + _NUMBER.size, size), length)

    return call


def _fallocate(handler: Handler) -> Call:
    return lambda request, node, message, size: handler(
        request, node, *_FALLOCATE.unpack_from(message, _BODY)
    )


def _lseek(handler: Handler) -> Call:
    return lambda request, node, message, size: handler(request, node, *_LSEEK.unpack_from(message, _BODY))


def _copy_file_range(handler: Handler) -> Call:
    def call(request: Request, node: int, message: memoryview, size: int) -> Any:
        fh, offset, to, to_fh, to_offset, length, flags = _COPY_FILE_RANGE.unpack_from(message, _BODY)
        return handler(request, node, fh, offset, (to, to_fh, to_offset), length, flags)

    return call


def _buffer(answer: Buffer) -> Buffer:
    return answer


class _Kind(NamedTuple):
    handler: str
    call: Callable[[Handler], Call]
    encode: Encoder


_KINDS: Final = {
    1: _Kind("lookup", _with_name, records.entry_answer),
    3: _Kind("getattr", _getattr, records.attributes_answer),
    4: _Kind("setattr", _setattr, records.attributes_answer),
    5: _Kind("readlink", _with_nothing, _buffer),
    6: _Kind("symlink", _symlink, records.entry_answer),
    8: _Kind("mknod", _mknod, records.entry_answer),
    9: _Kind("mkdir", _mkdir, records.entry_answer),
    10: _Kind("unlink", _with_name, None),
    11: _Kind("rmdir", _with_name, None),
    12: _Kind("rename", _rename, None),
    13: _Kind("link", _link, records.entry_answer),
    14: _Kind("open", _with_number, records.open_answer),
    15: _Kind("read", _range, _buffer),
    16: _Kind("write", _write, records.size_answer),
    17: _Kind("statfs", _with_nothing, records.statvfs_answer),
    18: _Kind("release", _with_fh_and_flags, None),
    20: _Kind("fsync", _fsync, None),
    21: _Kind("setxattr", _setxattr, None),
    22: _Kind("getxattr", _getxattr, records.xattr_answer),
    23: _Kind("listxattr", _with_number, records.xattr_answer),
    24: _Kind("removexattr", _with_name, None),
    25: _Kind("flush", _with_fh, None),
    27: _Kind("opendir", _with_number, records.open_answer),
    28: _Kind("readdir", _range, Listing.getvalue),
    29: _Kind("releasedir", _with_fh_and_flags, None),
    30: _Kind("fsyncdir", _fsync, None),
    34: _Kind("access", _with_number, None),
    35: _Kind("create", _create, records.create_answer),
    43: _Kind("fallocate", _fallocate, None),
    44: _Kind("readdirplus", _range, ListingPlus.getvalue),
    45: _Kind("rename", _rename2, None),
    46: _Kind("lseek", _lseek, records.offset_answer),
    47: _Kind("copy_file_range", _copy_file_range, records.size_answer),
    51: _Kind("tmpfile", _tmpfile, records.create_answer),
}
"""By opcode. What is not here, or not overridden, is answered ENOSYS: the kernel then does it itself, or not
at all, and asks no more."""


def calls_of(operations: Operations) -> dict[int, tuple[str, Call, Encoder]]:
    """The handlers that *operations* overrides, how to call them, and to pack what they answer, by opcode."""
    return {
        opcode: (kind.handler, kind.call(getattr(operations, kind.handler)), kind.encode)
        for opcode, kind in _KINDS.items()
        if overrides(operations, kind.handler)
    }


def overrides(operations: Operations, name: str) -> bool:
    """Whether *operations* has a handler of this name."""
    return getattr(type(operations), name) is not getattr(Operations, name)


def forgets_in(opcode: int, node: int, message: memoryview) -> list[tuple[int, int]]:
    """(nodeid, lookups) that FORGET or BATCH_FORGET tells."""
    if opcode == _FORGET:
        return [(node, *_FORGOTTEN.unpack_from(message, _BODY))]
    (count,) = _COUNT.unpack_from(message, _BODY)
    start = _BODY + _COUNT.size
    return list(_FORGET_ONE.iter_unpack(message[start : start + count * _FORGET_ONE.size]))


def interrupted_by(message: memoryview) -> int:
    """`unique` of the request that INTERRUPT is about."""
    return int(_FORGOTTEN.unpack_from(message, _BODY)[0])
