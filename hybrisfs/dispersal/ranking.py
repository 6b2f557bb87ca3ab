"""Which cloud to ask first: latencies as observed, per cloud, operation and size class (Hybris 4.4).

Pure: the caller measures and tells. Not thread-safe: the engine's lock guards it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Operation", "Ranking", "TimerBounds", "size_class"]

Operation: TypeAlias = Literal["put", "get"]

_CLASS_LIMITS = (64 << 10, 256 << 10, 1 << 20, 4 << 20)  # bytes; latencies of a class must be comparable
_STEADY = 8  # observations that the mean looks back on, and
_SPREAD_GAIN = 1 / 4  # the weight of the newest in the spread: RFC 6298 estimates the same for TCP
_SPREAD_FACTOR = 4
_STALE_AFTER = 600.0  # seconds after which a cloud is tried again, as its speed may have changed


def size_class(size: int) -> int:
    """Return 0 for requests below 64 KiB, 1 below 256 KiB, 2 below 1 MiB, 3 below 4 MiB, 4 from there on."""
    return sum(size >= limit for limit in _CLASS_LIMITS)


@dataclass(frozen=True, slots=True)
class TimerBounds:
    """Limits of the timers after which another cloud is asked, and other pauses, in seconds."""

    shortest: float = 0.25
    longest: float = 30.0
    unknown_put: float = 10.0
    unknown_get: float = 2.0
    unknown_rate: float = 256 << 10  # bytes per second assumed of a cloud never seen, beside the above
    first_pause: float = 0.2  # before clouds that all failed are asked again; doubles each time


@dataclass(slots=True)
class _Estimate:
    mean: float
    spread: float
    seen: float
    count: int = 1  # of observations, up to _STEADY

    @property
    def hoped(self) -> float:
        """The latency to rank by: the less is known of a cloud, the more is hoped for.

        The first request often pays for a new connection. Were it taken at its word, a fast cloud that had
        bad luck with it would not be asked again for long.
        """
        return self.mean * (1 - 1 / self.count)


class Ranking:
    """Latency estimates of all clouds and the orders and timers that follow from them."""

    def __init__(self, bounds: TimerBounds, clock: Callable[[], float]) -> None:
        self._bounds = bounds
        self._clock = clock
        self._estimates: dict[tuple[int, Operation, int], _Estimate] = {}

    def observe(self, cloud: int, operation: Operation, size: int, seconds: float) -> None:
        """Take note that a request of `size` bytes was answered well after `seconds`."""
        key = (cloud, operation, size_class(size))
        estimate = self._estimates.get(key)
        if estimate is None:
            self._estimates[key] = _Estimate(seconds, seconds / 2, self._clock())
            return
        error = seconds - estimate.mean
        estimate.count = min(estimate.count + 1, _STEADY)
        estimate.spread += _SPREAD_GAIN * (abs(error) - estimate.spread)
        # Of the first two the lower one counts: the other paid for something that passes.
        estimate.mean += min(error, 0.0) if estimate.count == 2 else error / estimate.count
        estimate.seen = self._clock()

    def waited(self, cloud: int, operation: Operation, size: int, seconds: float) -> None:
        """Take note that such a request has had no answer for `seconds`: it will take longer than that."""
        key = (cloud, operation, size_class(size))
        estimate = self._estimates.get(key)
        if estimate is None:
            self._estimates[key] = _Estimate(seconds, seconds / 2, self._clock(), _STEADY)
        elif estimate.mean < seconds:
            estimate.mean = seconds
            estimate.count = _STEADY
            estimate.seen = self._clock()

    def order(
        self, clouds: Iterable[int], operation: Operation, size: int, demerits: Mapping[int, int]
    ) -> list[int]:
        """Return the clouds, the best first: least demerits, then not seen for long, then fastest."""
        stale = self._clock() - _STALE_AFTER

        def key(cloud: int) -> tuple[int, float, float, int]:
            estimate = self._estimates.get((cloud, operation, size_class(size)))
            demerit = demerits.get(cloud, 0)
            if estimate is None or estimate.seen <= stale:
                return demerit, -1.0, 0.0, cloud
            return demerit, estimate.hoped, estimate.mean, cloud

        return sorted(clouds, key=key)

    def timer(self, clouds: Iterable[int], operation: Operation, size: int) -> float:
        """Return the seconds within which all these clouds usually answer such a request."""
        return max((self._usual(cloud, operation, size) for cloud in clouds), default=self._bounds.shortest)

    def _usual(self, cloud: int, operation: Operation, size: int) -> float:
        bounds = self._bounds
        estimate = self._estimates.get((cloud, operation, size_class(size)))
        if estimate is None:
            unknown = bounds.unknown_put if operation == "put" else bounds.unknown_get
            seconds = unknown + size / bounds.unknown_rate
        else:
            seconds = estimate.mean + _SPREAD_FACTOR * estimate.spread
        return min(max(seconds, bounds.shortest), bounds.longest)
