"""Programs that may not pull content from the clouds: thumbnailers and indexers read everything they see.

A read of theirs that would have to fetch fails at once with EPERM; what is on this device they may read.
EPERM, because no program tries again after it (as after EAGAIN or EBUSY), it raises no alarm about a failing
disk (as EIO does), and it is what the kernel answers where a permission event is denied (fanotify(7)) and
what other on-demand file systems do. Programs that remember failures, as GNOME's thumbnailers do, look again
when the file has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

__all__ = ["NoFetchPrograms", "has_capability", "is_in_group", "status_of"]

# -- what /proc says about the process that makes a request (proc_pid_status(5)) ------------------------


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


def has_capability(thread: int, number: int, proc: Path = PROC) -> bool:
    """Whether the thread has the capability (linux/capability.h); not, when it cannot be looked at."""
    try:
        return any(int(word, 16) >> number & 1 for word in status_of(thread, "CapEff", proc))
    except (OSError, ValueError):
        return False


# -- programs that may not pull content from the clouds -------------------------------------------------


_COMM_SIZE: Final = 15  # the kernel cuts the names of processes to this


class NoFetchPrograms:
    """Recognises the programs whose names match one of *patterns* (shell wildcards)."""

    def __init__(self, patterns: Sequence[str], proc: Path = PROC) -> None:
        self._patterns = tuple(patterns)
        self._proc = proc

    def includes(self, thread: int) -> bool:
        """Whether the process of this thread is one of them; one that cannot be looked at is not."""
        if thread <= 0 or not self._patterns:
            return False
        return any(self._matches(name, pattern) for name in self._names(thread) for pattern in self._patterns)

    def _names(self, thread: int) -> set[str]:
        """What the process is called, and its executable: it may have renamed itself or be an interpreter."""
        names = set[str]()
        try:
            process = status_of(thread, "Tgid", self._proc) or [str(thread)]
            leader = self._proc / process[0]
            names.add((leader / "comm").read_text(errors="replace").rstrip("\n"))
            names.add((leader / "exe").readlink().name)
        except OSError:
            pass  # gone since, or another user's
        return names

    @staticmethod
    def _matches(name: str, pattern: str) -> bool:
        return fnmatchcase(name, pattern) or (
            len(name.encode(errors="replace")) == _COMM_SIZE and fnmatchcase(name, pattern[:_COMM_SIZE])
        )
