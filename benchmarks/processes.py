"""What a daemon costs, and how busy the machine is, read from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["children", "cpu_seconds", "peak_rss_mib", "rss_mib", "share_in_use"]

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: list[int]) -> float:
    """User and system time of the processes and of the children they have waited for."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(int(ticks) for ticks in fields[11:15])
    return total / _TICKS


def rss_mib(pids: list[int]) -> float:
    """Resident memory now."""
    return _memory(pids, "VmRSS")


def peak_rss_mib(pids: list[int]) -> float:
    """The most resident memory since the processes began."""
    return _memory(pids, "VmHWM")


def _memory(pids: list[int], field: str) -> float:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                total += int(line.split()[1])
    return total / 1024


def children(pid: int) -> list[int]:
    """The processes that this one has started, from whichever of its threads, as far as they run."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for thread in threads for word in thread.read_text().split()]


def share_in_use(seconds: float) -> float:
    """The share of the machine's processors, from 0 to 1, that anybody has used while this waited."""
    before = _ticks()
    time.sleep(seconds)
    idle, all_ = (now - then for then, now in zip(before, _ticks(), strict=True))
    return 1 - idle / max(all_, 1)


def _ticks() -> tuple[int, int]:
    """Since the machine started: those in which a processor was idle or waited for a disk, and all."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    ticks = [int(field) for field in fields]
    return ticks[3] + ticks[4], sum(ticks)
