"""The shared library: finds libfuse 3, checks its version and declares what of it is used.

Only three of libfuse's structures are touched, and the parts used have the same layout in every libfuse from
3.10 on (.so.3) and from 3.17 on (.so.4), on every 64-bit machine:

* struct fuse_lowlevel_ops: only ever grows at its end; its size is passed to libfuse.
* struct fuse_file_info: `flags` at 0 and `fh` at 16 are read, nothing is written. (Its bit fields moved in
  3.14.1 and moved back in 3.17.)
* struct fuse_conn_info: ten 32-bit numbers. 3.17 put 64-bit capabilities into its reserved tail; it copies
  the 32-bit `want` over them when that was changed.

`struct stat`, which setattr hands over, differs between machines: see `STAT_LAYOUTS`. What goes out is
packed in the kernel's own format (records.py). tests/fuse/test_layout.py compares all this with the installed
headers.
"""

from __future__ import annotations

import ctypes
import logging
import platform
from collections.abc import Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache
from struct import Struct
from typing import Any, NamedTuple

from hybrisfs.fuse.errors import FuseError

__all__ = [
    "CALLBACK_TYPES",
    "KILL_FLAGS_SINCE",
    "Arguments",
    "ConnectionInfo",
    "DataBuffer",
    "Library",
    "LowLevelOps",
    "libfuse",
    "load",
]

_log = logging.getLogger(__name__)

_OLDEST_MINOR = 10
_SONAMES = ("libfuse3.so.4", "libfuse3.so.3")
_ADVICE = "install the package fuse3 (Debian, Ubuntu, Fedora, Arch)"

FILE_INFO_FLAGS = 0
FILE_INFO_FH = 16


class Arguments(Structure):
    """struct fuse_args."""

    _fields_ = (("argc", c_int), ("argv", POINTER(c_char_p)), ("allocated", c_int))


class RequestContext(Structure):
    """struct fuse_ctx: the caller of a request."""

    _fields_ = (("uid", c_uint32), ("gid", c_uint32), ("pid", c_int), ("umask", c_uint32))


class ConnectionInfo(Structure):
    """The head of struct fuse_conn_info."""

    _fields_ = (
        ("proto_major", c_uint32),
        ("proto_minor", c_uint32),
        ("max_write", c_uint32),
        ("max_read", c_uint32),
        ("max_readahead", c_uint32),
        ("capable", c_uint32),
        ("want", c_uint32),
        ("max_background", c_uint32),
        ("congestion_threshold", c_uint32),
        ("time_gran", c_uint32),
    )


class DataBuffer(Structure):
    """struct fuse_buf. libfuse 3.17 added `mem_size`, which counts only where the buffer may be
    reallocated.
    """

    _fields_ = (
        ("size", c_size_t),
        ("flags", c_int),
        ("mem", c_void_p),
        ("fd", c_int),
        ("pos", c_int64),
        ("mem_size", c_size_t),
    )


# A handler returns nothing. Pointers arrive as integers (None for NULL), names as bytes.
_ino = c_uint64
_fi = c_void_p
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    # In the order of struct fuse_lowlevel_ops; the first argument of each is the request, but for init and
    # destroy.
    "init": (c_void_p, POINTER(ConnectionInfo)),
    "destroy": (c_void_p,),
    "lookup": (c_void_p, _ino, c_char_p),
    "forget": (c_void_p, _ino, c_uint64),
    "getattr": (c_void_p, _ino, _fi),
    "setattr": (c_void_p, _ino, c_void_p, c_int, _fi),
    "readlink": (c_void_p, _ino),
    "mknod": (c_void_p, _ino, c_char_p, c_uint32, c_uint64),
    "mkdir": (c_void_p, _ino, c_char_p, c_uint32),
    "unlink": (c_void_p, _ino, c_char_p),
    "rmdir": (c_void_p, _ino, c_char_p),
    "symlink": (c_void_p, c_char_p, _ino, c_char_p),
    "rename": (c_void_p, _ino, c_char_p, _ino, c_char_p, c_uint),
    "link": (c_void_p, _ino, _ino, c_char_p),
    "open": (c_void_p, _ino, _fi),
    "read": (c_void_p, _ino, c_size_t, c_int64, _fi),
    "write": (c_void_p, _ino, c_void_p, c_size_t, c_int64, _fi),
    "flush": (c_void_p, _ino, _fi),
    "release": (c_void_p, _ino, _fi),
    "fsync": (c_void_p, _ino, c_int, _fi),
    "opendir": (c_void_p, _ino, _fi),
    "readdir": (c_void_p, _ino, c_size_t, c_int64, _fi),
    "releasedir": (c_void_p, _ino, _fi),
    "fsyncdir": (c_void_p, _ino, c_int, _fi),
    "statfs": (c_void_p, _ino),
    "setxattr": (c_void_p, _ino, c_char_p, c_void_p, c_size_t, c_int),
    "getxattr": (c_void_p, _ino, c_char_p, c_size_t),
    "listxattr": (c_void_p, _ino, c_size_t),
    "removexattr": (c_void_p, _ino, c_char_p),
    "access": (c_void_p, _ino, c_int),
    "create": (c_void_p, _ino, c_char_p, c_uint32, _fi),
    "getlk": (c_void_p,),
    "setlk": (c_void_p,),
    "bmap": (c_void_p,),
    "ioctl": (c_void_p,),
    "poll": (c_void_p,),
    "write_buf": (c_void_p,),
    "retrieve_reply": (c_void_p,),
    "forget_multi": (c_void_p, c_size_t, c_void_p),
    "flock": (c_void_p,),
    "fallocate": (c_void_p, _ino, c_int, c_int64, c_int64, _fi),
    "readdirplus": (c_void_p, _ino, c_size_t, c_int64, _fi),
    "copy_file_range": (c_void_p, _ino, c_int64, _fi, _ino, c_int64, _fi, c_size_t, c_int),
    "lseek": (c_void_p, _ino, c_int64, c_int, _fi),
    "tmpfile": (c_void_p, _ino, c_uint32, _fi),
}
_TMPFILE_SINCE = (3, 17)
KILL_FLAGS_SINCE = (3, 14)
"""The first version that hands on FUSE_SET_ATTR_KILL_SUID."""

CALLBACK_TYPES: dict[str, Any] = {name: CFUNCTYPE(None, *kinds) for name, kinds in _PROTOTYPES.items()}


class LowLevelOps(Structure):
    """struct fuse_lowlevel_ops as of libfuse 3.17; up to `lseek` as of 3.8. A null pointer is an operation
    that is not there.
    """

    _fields_ = tuple(CALLBACK_TYPES.items())


class StatLayout(NamedTuple):
    """Where struct stat of this machine keeps the fields that setattr uses."""

    size: int
    record: Struct


# st_mode st_uid st_gid st_size, then st_atim st_mtim st_ctim as seconds and nanoseconds.
STAT_LAYOUTS = {
    "x86_64": StatLayout(144, Struct("=24xIII12xq16xqqqqqq24x")),
    "aarch64": StatLayout(128, Struct("=16xI4xII16xq16xqqqqqq8x")),
}

# For enum fuse_log_level: EMERG ALERT CRIT ERR WARNING NOTICE INFO DEBUG.
_LOG_LEVELS = (
    *[logging.CRITICAL] * 3,
    logging.ERROR,
    logging.WARNING,
    *[logging.INFO] * 2,
    logging.DEBUG,
)
InterruptFunction = CFUNCTYPE(None, c_void_p, c_void_p)
_LogFunction = CFUNCTYPE(None, c_int, c_char_p, c_void_p)


class Library:
    """libfuse 3, loaded and checked. `version` is e.g. (3, 14).

    Calls through `waiting` release the interpreter's lock; calls through `brief` keep it, which saves two
    switches where the call cannot block.
    """

    def __init__(self, path: str, machine: str) -> None:
        """*machine* as platform.machine() says. Raises OSError, FuseError when it does not fit."""
        self.waiting = ctypes.CDLL(path, use_errno=True)
        self.brief = ctypes.PyDLL(path)
        self.version = self._checked_version(path)
        if machine not in STAT_LAYOUTS:
            raise FuseError(None, f"libfuse is not supported on {machine}: only on {', '.join(STAT_LAYOUTS)}")
        self.stat = STAT_LAYOUTS[machine]
        self._declare()
        self._redirect_log()

    def _checked_version(self, path: str) -> tuple[int, int]:
        self.waiting.fuse_version.restype = c_int
        number = int(self.waiting.fuse_version())
        major, minor = divmod(number, 100)
        if major != 3 or minor < _OLDEST_MINOR:
            needed = f"needed is 3.{_OLDEST_MINOR} or a later 3.x"
            raise FuseError(None, f"{path} is libfuse {major}.{minor}; {needed}: {_ADVICE}")
        return major, minor

    @property
    def operations_size(self) -> int:
        """How much of `LowLevelOps` this libfuse knows."""
        if self.version < _TMPFILE_SINCE:
            return int(LowLevelOps.tmpfile.offset)
        return ctypes.sizeof(LowLevelOps)

    def _declare(self) -> None:
        waiting, brief = self.waiting, self.brief
        session = c_void_p

        def declare(function: Any, result: Any, *arguments: Any) -> None:
            function.restype = result
            function.argtypes = arguments

        declare(
            waiting.fuse_session_new, session, POINTER(Arguments), POINTER(LowLevelOps), c_size_t, c_void_p
        )
        declare(waiting.fuse_opt_free_args, None, POINTER(Arguments))
        declare(waiting.fuse_session_mount, c_int, session, c_char_p)
        declare(waiting.fuse_session_process_buf, None, session, POINTER(DataBuffer))
        declare(waiting.fuse_session_fd, c_int, session)
        declare(waiting.fuse_session_destroy, None, session)
        declare(waiting.fuse_lowlevel_notify_inval_inode, c_int, session, _ino, c_int64, c_int64)
        declare(waiting.fuse_lowlevel_notify_inval_entry, c_int, session, _ino, c_char_p, c_size_t)
        declare(waiting.fuse_reply_buf, c_int, c_void_p, c_void_p, c_size_t)
        declare(brief.fuse_session_process_buf, None, session, POINTER(DataBuffer))
        declare(brief.fuse_reply_buf, c_int, c_void_p, c_void_p, c_size_t)
        declare(brief.fuse_reply_err, c_int, c_void_p, c_int)
        declare(brief.fuse_reply_none, None, c_void_p)
        declare(brief.fuse_req_interrupt_func, None, c_void_p, InterruptFunction, c_void_p)
        declare(brief.fuse_req_interrupted, c_int, c_void_p)
        declare(brief.fuse_req_ctx, POINTER(RequestContext), c_void_p)

    def _redirect_log(self) -> None:
        """Send libfuse's messages to logging instead of stderr.

        A C va_list parameter is passed as one pointer on both machines: on x86_64 the type is an array, on
        aarch64 a structure too large for registers. So the pointer can be handed on to vsnprintf as it came.
        """
        vsnprintf = ctypes.CDLL(None).vsnprintf
        vsnprintf.restype = c_int
        vsnprintf.argtypes = (c_void_p, c_size_t, c_char_p, c_void_p)

        def log(level: int, text: bytes, arguments: int) -> None:
            buffer = ctypes.create_string_buffer(1024)
            vsnprintf(buffer, len(buffer), text, arguments)
            message = buffer.value.decode("utf-8", "replace").rstrip()
            _log.log(_LOG_LEVELS[level & 7], "%s", message)

        self._log_function = _LogFunction(log)
        self.waiting.fuse_set_log_func(self._log_function)


@cache
def libfuse() -> Library:
    """The installed libfuse 3, loaded once. Raises FuseError when there is none that fits."""
    return load(_SONAMES, platform.machine())


def load(names: Sequence[str], machine: str) -> Library:
    """The first of these libraries that is installed. Raises FuseError when there is none, or when it does
    not fit the *machine*, which is named as platform.machine() does."""
    for name in names:
        try:
            return Library(name, machine)
        except FuseError:
            raise
        except OSError:
            continue
    raise FuseError(None, f"libfuse 3 is not installed: {_ADVICE}")
