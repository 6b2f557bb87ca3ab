"""Files that only their user can read."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["write_secret"]


def write_secret(path: Path, content: bytes) -> None:
    """Write a file, in one step, that only this user can read. Raises OSError."""
    new = path.with_name(f"{path.name}.new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
