"""System calls that the kernel keeps below a folder: openat2(2) and renameat2(2), which Python does not have.

Neither `..` nor a symbolic link nor a mount leads out, also when somebody swaps a folder for a link in that
very moment: no symbolic link is followed at all.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

__all__ = ["check_kernel", "is_served", "open_beneath", "opened", "parent_of", "rename_to_free"]

# The same on all machines: newer calls have one number.
_OPENAT2: Final = 437
_AT_FDCWD: Final = -100
_RENAME_NOREPLACE: Final = 1
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_RESOLVE: Final = _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _How(ctypes.Structure):
    """struct open_how of <linux/openat2.h>."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def check_kernel() -> None:
    """Raises OSError when the kernel cannot keep paths below a folder."""
    os.close(open_beneath(_AT_FDCWD, (), os.O_PATH | os.O_DIRECTORY))


def open_beneath(root: int, path: Sequence[str], flags: int, mode: int = 0) -> int:
    """Open what names lead to from the folder *root*, the folder itself when there are none; never waits for
    a FIFO.

    Raises OSError: ELOOP when one of them is a symbolic link, EXDEV when one leads out.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    if not flags & os.O_PATH:
        flags |= os.O_NONBLOCK | os.O_NOCTTY
    how = _How(flags, mode, _RESOLVE)
    name = os.fsencode("/".join(path) or ".")
    if b"\0" in name:
        raise ValueError("a name with a zero byte")
    found = _libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(root),
        ctypes.c_char_p(name),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if found < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(found)


@contextmanager
def opened(descriptor: int) -> Iterator[int]:
    """A descriptor that is closed with the context."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def parent_of(root: int, path: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The folder in which a path stands, open, and the last name. Raises OSError."""
    *above, name = path
    with opened(open_beneath(root, above, os.O_PATH | os.O_DIRECTORY)) as folder:
        yield folder, name


def rename_to_free(source: int, name: str, target: int, new: str) -> None:
    """Rename, from one open folder to another, to a name that nothing has. Raises OSError, as EEXIST."""
    done = _libc.renameat2(
        ctypes.c_int(source),
        ctypes.c_char_p(os.fsencode(name)),
        ctypes.c_int(target),
        ctypes.c_char_p(os.fsencode(new)),
        ctypes.c_uint(_RENAME_NOREPLACE),
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def is_served(status: os.stat_result) -> bool:
    """Whether it is a file or a folder: links and what is special are not served."""
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
