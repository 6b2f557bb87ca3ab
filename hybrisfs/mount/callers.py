"""What /proc says about the process that makes a request (proc_pid_status(5))."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["PROC", "is_in_group", "status_of"]

PROC: Final = Path("/proc")


def status_of(thread: int, field: str, proc: Path = PROC) -> list[str]:
    """The words of a field of the thread's status; none when there is no such field.

    Raises OSError when the thread has ended or cannot be looked at.
    """
    text = (proc / str(thread) / "status").read_text(errors="replace")
    found = next((line for line in text.splitlines() if line.startswith(f"{field}:")), "")
    return found.split()[1:]


def is_in_group(thread: int, gid: int, proc: Path = PROC) -> bool:
    """Whether *gid* is one of the thread's supplementary groups; not, when it cannot be looked at."""
    try:
        return str(gid) in status_of(thread, "Groups", proc)
    except OSError:
        return False
