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

from hybrisfs.mount.callers import PROC, status_of

__all__ = ["NoFetchPrograms"]

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
