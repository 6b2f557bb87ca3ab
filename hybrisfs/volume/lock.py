"""One process per volume."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hybrisfs.errors import HybrisError

__all__ = ["lock_exclusively"]


def lock_exclusively(state: Path) -> int:
    """Let no other process open the volume with this state folder while the descriptor returned is open.

    Raises HybrisError.
    """
    try:
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HybrisError(f"cannot use {state}", error.strerror or str(error)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise HybrisError(
            f"the volume in {state} is in use by another process", "", "Stop the other daemon first."
        ) from None
    return descriptor
