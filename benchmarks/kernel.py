"""Making the kernel forget, so that a cold read is cold."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["drop_caches"]

_SWITCH = Path("/proc/sys/vm/drop_caches")


def drop_caches() -> None:
    """Write back what is dirty and forget pages, names and attributes of every filesystem.

    Raises:
        PermissionError: only root may; cold figures cannot be had otherwise.
    """
    os.sync()
    _SWITCH.write_text("3\n")
