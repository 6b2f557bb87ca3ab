"""What a daemon costs, read from /proc."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_seconds", "peak_rss_mib", "rss_mib"]

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
