"""Rights of root that a thread may lay down (capabilities(7)), so that permissions count for it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["as_an_ordinary_user"]

_VERSION_3: Final = 0x20080522
_OVERRIDE, _READ_SEARCH = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Rights(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _checked(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """What permissions forbid is forbidden to this thread and to threads that it starts; these keep it so."""
    header, rights = _Header(_VERSION_3, 0), (_Rights * 2)()
    _checked(_libc.capget(ctypes.byref(header), rights))
    before = rights[0].effective
    rights[0].effective = before & ~(1 << _OVERRIDE | 1 << _READ_SEARCH)
    _checked(_libc.capset(ctypes.byref(header), rights))
    try:
        yield
    finally:
        rights[0].effective = before
        _checked(_libc.capset(ctypes.byref(header), rights))
