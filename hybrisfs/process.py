"""What the daemon's process sets for itself: no needless garbage collection, malloc, threads."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["tune_process", "without_collections"]


@contextmanager
def without_collections() -> Iterator[None]:
    """None of the tens of thousands of small objects that a batch is made of is part of a cycle, and all are
    gone when it ends: to look for cycles among them would take a sixth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# -- settings of the whole process, made once at the start of the daemon --------------------------------


# A background thread in pure Python gives the mount's thread its turn after this many seconds; Python's own
# 5 ms would be felt in every request.
_SWITCH_SECONDS: Final = 0.0005
# Tens of thousands of inodes live long; looking at them all again and again finds nothing.
_GC_THRESHOLDS: Final = (20_000, 20, 50)
# glibc (mallopt(3)): chunks of 1 MiB come from few heaps and stay for the next one, since zeroing fresh
# pages costs more than sealing a chunk; packs and shares are mapped, and go back when they are freed.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_MAPPED_BYTES: Final = 2 << 20
_KEPT_BYTES: Final = 32 << 20
_ARENAS: Final = 2


def tune_process() -> None:
    """Adapt interpreter and process limits to a file system daemon."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(*_GC_THRESHOLDS)
    # Every journal segment is an open file.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, _ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
