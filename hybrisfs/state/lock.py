"""One process per volume."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from hybrisfs.errors import HybrisError

__all__ = ["lock_exclusively"]

_UNKNOWN: Final = "hybrisfs daemon --stop ends it, if it is a daemon."


def lock_exclusively(state: Path) -> int:
    """Let no other process open the volume with this state folder while the descriptor returned is open.

    The file holds the process id in decimal. Raises HybrisError, which names the process that has it.
    """
    try:
        descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HybrisError(f"cannot use {state}", error.strerror or str(error)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        written = os.pread(descriptor, 32, 0).strip()
        os.close(descriptor)
        known = written.isdigit()
        other = f"process {written.decode()}" if known else "another process"
        advice = f"kill {written.decode()} ends it; nothing is lost by that." if known else _UNKNOWN
        raise HybrisError(f"the volume in {state} is in use by {other}", "", advice) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor
