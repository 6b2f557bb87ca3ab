"""What a volume takes from its surroundings: clocks, random bytes, the disk, waiting, processes.

An `Environment` is given once, when a volume is opened: `Database`, `Journal` and `Signals` take it, and
everything else takes it from these. The product's is `SYSTEM`. A simulator gives each device another, whose
time is virtual and whose random bytes follow from a seed, and patches nothing.

It also carries the limits within which the volume works (sizes, seconds, counts). Each subject has a small
frozen record of them beside the code that uses it, as `hybrisfs.checkpoint.limits`; its defaults are those of
the product.
"""

from __future__ import annotations

import ctypes
import errno
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

__all__ = ["SYSTEM", "Environment", "Limits", "make_directory", "replace_file", "sync_directory"]

L = TypeVar("L")

Wait = Callable[[threading.Condition, Callable[[], bool], float | None], bool]


class Limits:
    """Records of limits, at most one of each type; those that are not given have their defaults."""

    def __init__(self, *records: object) -> None:
        self._records = {type(record): record for record in records}

    def of(self, kind: type[L]) -> L:
        """The record of this type, all fields of which have defaults."""
        found = self._records.get(kind)
        return found if isinstance(found, kind) else kind()


_DEFAULTS: Final = Limits()


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_malloc_trim: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it


def _trim() -> None:
    if _malloc_trim is not None:
        _malloc_trim(0)


@dataclass(frozen=True, slots=True)
class Environment:
    """Functions that behave as those of the system, which they are by default. They may be called from any
    thread. Hot paths bind them once."""

    time_ns: Callable[[], int] = time.time_ns
    """The time of day, ns since the epoch. It may be wrong, and jump."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds since some moment. They never go back, and stand still while the machine sleeps."""
    random_bytes: Callable[[int], bytes] = os.urandom
    """So many bytes that nobody can foresee."""
    fsync: Callable[[int], None] = os.fsync
    """Make an open file or directory survive a power cut. Raises OSError."""
    fdatasync: Callable[[int], None] = os.fdatasync
    """Make the bytes of an open file survive a power cut. Raises OSError."""
    statvfs: Callable[[Path], os.statvfs_result] = os.statvfs
    """How full the disk is that holds a file. Raises OSError."""
    wait: Wait = threading.Condition.wait_for
    """Wait with a condition, whose lock is held, until the function returns true, or for so many seconds;
    what the function returned last."""
    sleep: Callable[[float], None] = time.sleep
    """Let so many seconds pass."""
    boot_time: Callable[[], float] = _boot_time
    """Seconds since some moment. They also pass while the machine sleeps."""
    processors: Callable[[], int | None] = os.cpu_count
    """How many processors there are, if that is known."""
    start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    """Start a process, whose pipes carry bytes. Raises OSError."""
    trim: Callable[[], None] = _trim
    """Much work has ended: give the memory back that malloc keeps for what comes next, some MiB. It takes
    2 ms then, and next to nothing when there is little."""
    limits: Limits = _DEFAULTS

    def time(self) -> float:
        """The time of day in seconds, see `time_ns`."""
        return self.time_ns() / 1e9

    def chance(self) -> random.Random:
        """Numbers at random for what nobody gains by foreseeing, as samples and pauses. No keys."""
        return random.Random(self.random_bytes(16))


SYSTEM: Final = Environment()
"""The machine that the program runs on."""


# -- what the store asks of the file system beyond reading and writing ----------------------------------


def make_directory(path: Path, environment: Environment) -> None:
    """Make a directory, and those above it that are missing, for their owner only, so that they survive a
    power cut. One that is there already is left as it is. Raises OSError."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
        sync_directory(one.parent, environment)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def replace_file(path: Path, data: bytes, environment: Environment) -> None:
    """Write a file, whole or not at all, so that it survives a power cut. Raises OSError."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        environment.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent, environment)


def sync_directory(path: Path, environment: Environment) -> None:
    """Make the names in a directory survive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        environment.fsync(descriptor)
    finally:
        os.close(descriptor)
