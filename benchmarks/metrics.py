"""What is measured: the rows of the table and how to read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["METRICS", "Metric", "relative_speed"]


@dataclass(frozen=True)
class Metric:
    """One row. `better` says whether a lower or a higher figure is the good one."""

    label: str
    unit: str
    better: Literal["lower", "higher"]


METRICS: dict[str, Metric] = {
    "copy.return": Metric("copy the tree in (cp -a): returns", "s", "lower"),
    "copy.durable": Metric("... and is on the clouds, from the start", "s", "lower"),
    "copy.cpu": Metric("... CPU of the daemon until then", "s", "lower"),
    "copy.rss": Metric("... memory of the daemon then (RSS)", "MiB", "lower"),
    "copy.packs": Metric("... objects per cloud, packs", "", "lower"),
    "copy.log": Metric("... objects per cloud, log", "", "lower"),
    "copy.other": Metric("... objects per cloud, other", "", "lower"),
    "copy.packs_mb": Metric("... stored per cloud, packs", "MB", "lower"),
    "copy.log_mb": Metric("... stored per cloud, log", "MB", "lower"),
    "files.create": Metric("create + write 4 KiB + close", "/s", "higher"),
    "files.stat_cold": Metric("stat, cold", "/s", "higher"),
    "files.stat_warm": Metric("stat, warm", "/s", "higher"),
    "files.readdir_cold": Metric("list the folder, cold", "ms", "lower"),
    "files.readdir_warm": Metric("list the folder, warm", "ms", "lower"),
    "files.read_warm": Metric("open + read 4 KiB + close, warm", "/s", "higher"),
    "files.rename": Metric("rename", "/s", "higher"),
    "files.unlink": Metric("unlink", "/s", "higher"),
    "git.clone": Metric("git clone", "s", "lower"),
    "git.status_cold": Metric("git status, cold", "ms", "lower"),
    "git.status_warm": Metric("git status, warm", "ms", "lower"),
    "git.checkout": Metric("git checkout of a commit long ago", "s", "lower"),
    "stream.write": Metric("write sequentially, with fsync", "MB/s", "higher"),
    "stream.read_cold": Metric("read it, cold", "MB/s", "higher"),
    "stream.read_warm": Metric("read it, warm", "MB/s", "higher"),
    "stream.small_writes": Metric("sequential 4 KiB writes", "MB/s", "higher"),
    "random.read": Metric("random 4 KiB reads, cold", "/s", "higher"),
    "random.read_p99": Metric("... the slowest of a hundred", "us", "lower"),
    "random.write_fsync": Metric("random 4 KiB write + fsync", "/s", "higher"),
    "daemon.rss": Metric("daemon, peak memory (RSS)", "MiB", "lower"),
    "daemon.cpu": Metric("daemon, CPU of the whole round", "s", "lower"),
}


def relative_speed(metric: str, ours: float | None, peer: float | None) -> float | None:
    """How many times as good ours is; above 1 we win, whichever way the metric counts."""
    if not ours or not peer:
        return None
    return peer / ours if METRICS[metric].better == "lower" else ours / peer
