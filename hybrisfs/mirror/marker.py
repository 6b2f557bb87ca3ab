"""The marker in a folder, by which a mirror recognises it. An empty mount point or another disk has none.

`.hybrisfs-mirror` in the folder: {"format": 1, "mirror": ID}.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Final

from hybrisfs.mirror.ignore import MARKER

__all__ = ["AwayError", "open_marked", "remove_marker", "write_marker"]

_FORMAT: Final = 1
_LARGEST: Final = 4096


class AwayError(Exception):
    """The folder cannot be compared with anything just now; the message says why."""


def open_marked(directory: Path, mirror: str) -> int:
    """Open the folder. Raises AwayError unless it is the one that the mirror was made for."""
    try:
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise AwayError(f"the folder cannot be opened: {error.strerror}") from error
    try:
        if _read(root) != mirror:
            raise AwayError("the marker in the folder is another mirror's")
    except OSError as error:
        os.close(root)
        if error.errno == errno.ENOENT:
            raise AwayError(
                f"the folder lacks the marker {os.fsdecode(MARKER)}: is its disk not mounted?"
            ) from error
        raise AwayError(f"the folder cannot be read: {error.strerror}") from error
    except AwayError:
        os.close(root)
        raise
    return root


def _read(root: int) -> str:
    descriptor = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=root)
    try:
        record = json.loads(os.read(descriptor, _LARGEST))
        return str(record["mirror"])
    except (ValueError, KeyError, TypeError) as error:
        raise AwayError("the marker in the folder is damaged") from error
    finally:
        os.close(descriptor)


def write_marker(directory: Path, mirror: str) -> None:
    """Mark the folder; one that another mirror has left is replaced. Raises OSError."""
    record = json.dumps({"format": _FORMAT, "mirror": mirror}).encode()
    temporary = directory / (os.fsdecode(MARKER) + "-new")
    descriptor = os.open(
        temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        os.write(descriptor, record)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(directory / os.fsdecode(MARKER))


def remove_marker(directory: Path, mirror: str) -> None:
    """Take the mark away, if it is this mirror's. Raises OSError."""
    try:
        os.close(open_marked(directory, mirror))
    except AwayError:
        return
    (directory / os.fsdecode(MARKER)).unlink()
