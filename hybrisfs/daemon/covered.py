"""The folder below a mount is locked (mode 0) for as long as the mount is wanted.

When a mount goes away unasked, programs would see an empty folder: a backup would take everything for
deleted, and what is saved there would be hidden by the next mount, which therefore refuses a folder that is
not empty. A locked folder answers "Permission denied" until the mount is back. Root is not kept out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["is_locked", "locked_below", "unlock"]

log = logging.getLogger(__name__)

_USUAL_MODE: Final = 0o755


def is_locked(directory: Path) -> bool:
    """Whether the folder is there, nothing is mounted there, and it is locked."""
    try:
        return stat.S_IMODE(directory.lstat().st_mode) == 0
    except OSError:
        return False


def unlock(directory: Path) -> bool:
    """Let the folder be used; False when it was not locked. Raises `OSError`."""
    if not is_locked(directory):
        return False
    directory.chmod(_USUAL_MODE)
    return True


@contextlib.contextmanager
def locked_below(directory: Path) -> Iterator[None]:
    """Lock the folder once the body has mounted something on it; a folder of somebody else is left alone.

    Unlocks it for the body: it cannot be mounted on otherwise. Raises `OSError`.
    """
    was_locked = unlock(directory)
    below = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            yield
        except BaseException:
            if was_locked:
                os.fchmod(below, 0)
            raise
        try:
            os.fchmod(below, 0)
        except OSError as error:
            log.debug("%s is not locked: %s", directory, error)
    finally:
        os.close(below)
