"""`python -m benchmarks.hastened LOG`: the daemon with its clouds counted and a clock that can run faster.

Every request to a cloud becomes a line of LOG: time of day by the daemon's clock, the cloud's URL, class,
bytes up, bytes down. The clock runs as it should until a line `TIME SPEED` comes on standard input: from that
real time on it runs SPEED times as fast, and so do all waits for conditions, which is how the daemon waits
for what is due. Waits for answers of clouds and devices keep real time, and so take longer by the daemon's
clock.

The daemon's code is the real one; only Python's clock and conditions are replaced, before it is loaded.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_SLICE = 0.2  # real seconds after which a wait looks whether the speed has changed
_real_time, _real_monotonic, _real_wait = time.time, time.monotonic, threading.Condition.wait


class _Clock:
    """Time of day and monotonic time, in step from `begins` (a real time of day) on."""

    def __init__(self) -> None:
        self.begins = float("inf")
        self.speed = 1.0

    def gained(self) -> float:
        """Seconds by which the clock is ahead of the real one."""
        return max(0.0, _real_time() - self.begins) * (self.speed - 1)

    @property
    def rate(self) -> float:
        return self.speed if _real_time() >= self.begins else 1.0


_clock = _Clock()


def _time() -> float:
    return _real_time() + _clock.gained()


def _time_ns() -> int:
    return int(_time() * 1e9)


def _monotonic() -> float:
    return _real_monotonic() + _clock.gained()


def _wait(self: threading.Condition, timeout: float | None = None) -> bool:
    if timeout is None:
        return _real_wait(self)
    end = _monotonic() + timeout
    while True:
        left = end - _monotonic()
        if _real_wait(self, min(max(left, 0.0) / _clock.rate, _SLICE)):
            return True
        if left <= 0:
            return False


def _obey() -> None:
    for line in sys.stdin:
        begins, speed = line.split()
        _clock.speed, _clock.begins = float(speed), float(begins)


def _install() -> None:
    time.time, time.time_ns, time.monotonic = _time, _time_ns, _monotonic
    threading.Condition.wait = _wait  # type: ignore[method-assign]
    threading._time = _monotonic  # type: ignore[attr-defined]


def _count_requests(log: Path) -> None:
    from backends import registry
    from backends.credentials import NO_CREDENTIALS, Credentials
    from backends.store import Store
    from hybrisfs.dispersal.counting import CountingStore, Request

    real = registry.open_store
    lines = log.open("a", buffering=1)

    def open_counted(url: str, credentials: Credentials = NO_CREDENTIALS) -> Store:
        def write(one: Request) -> None:
            lines.write(f"{_time():.3f} {url} {one.kind} {one.up} {one.down}\n")

        return CountingStore(real(url, credentials), write)

    replacement: Callable[[str, Credentials], Store] = open_counted
    registry.open_store = replacement  # type: ignore[assignment]


def main(argv: list[str]) -> int:
    """Run the daemon in the foreground."""
    _install()
    _count_requests(Path(argv[0]))
    threading.Thread(target=_obey, name="hastened", daemon=True).start()
    from hybrisfs.daemon.main import main as run

    return run([])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
