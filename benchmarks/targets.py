"""The targets set for one device, each a row that passes or misses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.metrics import relative_speed

__all__ = ["Medians", "Target", "targets"]

Medians = dict[str, dict[str, float]]
"""Metric -> system -> median."""

_OURS, _PEER = "hybrisfs", "gocryptfs"
_BYTES_PER_OBJECT = 4 << 20
_RATIOS = {
    "copy.return": ("copy of the tree", 1.0),
    "files.create": ("create", 1.0),
    "files.stat_cold": ("stat, cold", 1.0),
    "files.rename": ("rename", 1.0),
    "git.clone": ("git clone", 1.0),
    "git.checkout": ("git checkout", 1.0),
    "git.status_cold": ("git status, cold", 1.0),
    "stream.write": ("write of the large file", 1.0),
    "stream.small_writes": ("sequential 4 KiB writes", 1.0),
    "random.read": ("random reads", 1.0),
    "random.read_p99": ("slowest of a hundred random reads", 0.5),
    "random.write_fsync": ("random write + fsync", 0.8),
}
"""Metric -> what it is, and how fast we must be where gocryptfs is 1."""


@dataclass(frozen=True)
class Target:
    """`measured` must be at most (or, when `at_least`, no less than) `limit`."""

    label: str
    limit: float
    measured: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit


def targets(medians: Medians, tree_files: int, tree_bytes: int) -> list[Target]:
    """Those targets for which this run has figures."""
    return [*_copy(medians), *_objects(medians, tree_files, tree_bytes), *_speeds(medians)]


def _copy(medians: Medians) -> Iterator[Target]:
    returned = medians.get("copy.return", {}).get(_OURS)
    durable = medians.get("copy.durable", {}).get(_OURS)
    if returned is None or durable is None:
        return
    yield Target("seconds from the end of the copy until it is on the clouds", 1.0, durable - returned)
    yield Target("CPU of the daemon for the tree, s", 6.0, medians["copy.cpu"][_OURS])
    yield Target("memory at the end of it, MiB", 130.0, medians["copy.rss"][_OURS])


def _objects(medians: Medians, tree_files: int, tree_bytes: int) -> Iterator[Target]:
    packs, log = (medians.get(f"copy.{kind}", {}).get(_OURS) for kind in ("packs", "log"))
    if packs is None or log is None:
        return
    yield Target("packs per cloud: one per 4 MiB of the tree", -(-tree_bytes // _BYTES_PER_OBJECT), packs)
    yield Target("log segments per cloud: 1 % of the files", tree_files / 100, log)


def _speeds(medians: Medians) -> Iterator[Target]:
    for metric, (label, limit) in _RATIOS.items():
        figures = medians.get(metric, {})
        speed = relative_speed(metric, figures.get(_OURS), figures.get(_PEER))
        if speed is not None:
            yield Target(f"{label}, to gocryptfs's speed", limit, speed, at_least=True)
