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
    returned = medians.get("copy.return", {})
    durable = medians.get("copy.durable", {}).get(_OURS)
    if durable is None or _PEER not in returned:
        return
    yield Target("copy returns within 2x of gocryptfs's time", 2.0, returned[_OURS] / returned[_PEER])
    yield Target("copy is on three clouds within 1.3x of the time to return", 1.3, durable / returned[_OURS])


def _objects(medians: Medians, tree_files: int, tree_bytes: int) -> Iterator[Target]:
    packs, log = (medians.get(f"copy.{kind}", {}).get(_OURS) for kind in ("packs", "log"))
    if packs is None or log is None:
        return
    yield Target("packs per cloud: one per 4 MiB of the tree", -(-tree_bytes // _BYTES_PER_OBJECT), packs)
    yield Target("log segments per cloud: 1 % of the files", tree_files / 100, log)


def _speeds(medians: Medians) -> Iterator[Target]:
    wanted = [
        ("files.stat_warm", "warm stat", 0.8),
        ("files.readdir_warm", "warm readdir", 0.8),
        ("files.read_warm", "read of warm small files", 0.8),
        ("stream.read_warm", "warm read of the large file", 0.8),
        ("stream.write", "sequential write", 0.5),
        ("stream.read_cold", "cached read, kernel cold", 0.5),
    ]
    for metric, label, limit in wanted:
        figures = medians.get(metric, {})
        speed = relative_speed(metric, figures.get(_OURS), figures.get(_PEER))
        if speed is not None:
            yield Target(f"{label} at {limit}x of gocryptfs's speed", limit, speed, at_least=True)
