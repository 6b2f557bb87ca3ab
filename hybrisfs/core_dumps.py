"""The memory of a process that holds keys or passphrases does not get onto the disk when it dies."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import Final

__all__ = ["forbid_core_dumps"]

_FILTER: Final = Path("/proc/self/coredump_filter")


def forbid_core_dumps() -> None:
    """Have the kernel put no memory of this process, nor of those that it starts, into core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where a program takes core dumps (core(5)), it gets them whatever the limit is, but without memory then.
    # PR_SET_DUMPABLE would do, too, but makes root the owner of all in /proc/PID, and ends with an exec.
    with contextlib.suppress(OSError):  # a kernel without core dumps has no such file
        _FILTER.write_text("0")
