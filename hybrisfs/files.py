"""What the store asks of the file system beyond reading and writing."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from hybrisfs.environment import SYSTEM, Environment

__all__ = ["make_directory", "replace_file", "sync_directory"]


def make_directory(path: Path, environment: Environment = SYSTEM) -> None:
    """Make a directory, and those above it that are missing, for their owner only, so that they survive a
    power cut. One that is there already is left as it is. Raises OSError."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
        sync_directory(one.parent, environment)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def replace_file(path: Path, data: bytes, environment: Environment = SYSTEM) -> None:
    """Write a file, whole or not at all, so that it survives a power cut. Raises OSError."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        environment.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent, environment)


def sync_directory(path: Path, environment: Environment = SYSTEM) -> None:
    """Make the names in a directory survive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        environment.fsync(descriptor)
    finally:
        os.close(descriptor)
