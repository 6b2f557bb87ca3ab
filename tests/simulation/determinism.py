"""Chance and time that follow from a seed, so that what failed once fails again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from threading import Condition
from typing import Final

from msgspec.structs import replace

from hybrisfs.checkpoint.limits import CheckpointLimits
from hybrisfs.environment import Environment, Limits
from hybrisfs.gc.limits import GcLimits
from hybrisfs.merge.refresh import RefreshLimits
from hybrisfs.receive.pull import PullLimits
from sync.follow import FollowLimits
from tests.tree.rig import SMALL_BLOCKS, small_chunks

__all__ = ["SMALL", "SMALL_CHECKPOINTS", "Clocks", "environments"]

SMALL_CHECKPOINTS: Final = CheckpointLimits(
    quiet_seconds=0.0,
    least_bytes=1,
    restate_seconds=20.0,
    restless_seconds=20.0,
    far_behind=1,
    slice_bytes=300,
)
"""A checkpoint whenever all stand at one vector, of small slices, for whoever lacks anything."""
_FEW_HEADS: Final = PullLimits(FollowLimits(shortest_pause=8.0, heads=1))
"""With three devices one looks at the head of each other in turn, as with six of the usual ones."""
_OTHERS: Final = (
    SMALL_CHECKPOINTS,
    GcLimits(least_dead=1),
    RefreshLimits(many_names=2),
    SMALL_BLOCKS,
    _FEW_HEADS,
)
SMALL: Final = Limits(*_OTHERS, small_chunks(256))
"""Limits that are met with little data and in little time."""
_DEFERRING: Final = Limits(*_OTHERS, replace(small_chunks(256), deferred=8))
_BEGIN: Final = 1_795_000_000_000_000_000
_SECOND: Final = 10**9


class Clocks:
    """The time that has passed, and what the clocks of each device show of it."""

    def __init__(self) -> None:
        self.passed = 0.0
        self._ahead: dict[int | None, float] = {}
        self._slept: dict[int, float] = {}
        self._ticks = 0

    def pass_by(self, seconds: float) -> None:
        self.passed += seconds

    def suspend(self, device: int, seconds: float) -> None:
        """The device will have slept that long, while its monotonic clock stood still."""
        self._slept[device] = self._slept.get(device, 0.0) + seconds

    def set_ahead(self, device: int, seconds: float) -> None:
        """The device's time of day is that much ahead of the true one from now on."""
        self._ahead[device] = seconds

    def monotonic(self, device: int) -> float:
        return 1000.0 + self.passed - self._slept.get(device, 0.0)

    def time_ns(self, device: int | None = None) -> int:
        """The device's time of day; without a device the true one. No two calls give the same."""
        self._ticks += 1
        return self.day_ns(device) + self._ticks

    def day_ns(self, device: int | None = None) -> int:
        """The same; two calls at one moment give the same."""
        return _BEGIN + int((self.passed + self._ahead.get(device, 0.0)) * _SECOND)


def environments(seed: int, clocks: Clocks) -> Callable[[int], Environment]:
    """What each device, by its number, takes from its surroundings: it follows from *seed* and *clocks*.

    Nothing is synced to the disk: devices are killed here, but the power stays on. Nobody waits: what a
    device waits for, another one does at a later event. With every second seed most chunks are deferred.
    """
    random = Random(seed)

    def of(device: int) -> Environment:
        return Environment(
            partial(clocks.time_ns, device),
            partial(clocks.monotonic, device),
            random.randbytes,
            fsync=_nothing,
            fdatasync=_nothing,
            wait=_look_once,
            sleep=_nothing,
            limits=_DEFERRING if seed % 2 else SMALL,
        )

    return of


def _nothing(_: float) -> None:
    """It takes no time and has no effect."""


def _look_once(condition: Condition, done: Callable[[], bool], seconds: float | None) -> bool:
    return done()
