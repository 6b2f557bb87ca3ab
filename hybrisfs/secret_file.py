"""Files that only their user can read, and that commands change while a server uses them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["identity_of", "read_secret", "write_secret"]


def write_secret(path: Path, content: bytes) -> None:
    """Write a file, in one step, that only this user can read. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def read_secret(path: Path, most: int) -> bytes | None:
    """At most *most* bytes of a file; None when it is not there. Raises OSError."""
    try:
        with path.open("rb") as file:
            return file.read(most)
    except FileNotFoundError:
        return None


def identity_of(path: Path) -> object:
    """Something that is another one when the file was written again. Raises OSError."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
