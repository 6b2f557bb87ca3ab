"""All clouds of a volume: which to ask first, how long they usually take, how they are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hybrisfs.dispersal.cloud import Cloud, CloudPort, CloudStatus
from hybrisfs.dispersal.operation import DEADLINE, Interrupt, Operations
from hybrisfs.dispersal.ranking import Operation, Ranking, TimerBounds
from hybrisfs.dispersal.throttle import Throttle

__all__ = ["Clouds"]


class Clouds:
    """The clouds by number, with one ranking. Thread-safe."""

    def __init__(
        self, clouds: Sequence[Cloud], *, bounds: TimerBounds, stall: float, clock: Callable[[], float]
    ) -> None:
        self._lock = threading.Lock()
        self.first_pause = bounds.first_pause
        self._ranking = Ranking(bounds, clock)
        self.operations = Operations()
        self.throttle = Throttle()
        self._ports = {
            cloud.number: CloudPort(cloud, self._ranking, self._lock, self.throttle, clock=clock, stall=stall)
            for cloud in clouds
        }
        if len(self._ports) != len(clouds):
            raise ValueError("two clouds have one number")

    def __len__(self) -> int:
        return len(self._ports)

    def __iter__(self) -> Iterator[CloudPort]:
        return iter(self._ports.values())

    def __contains__(self, number: int) -> bool:
        return number in self._ports

    def __getitem__(self, number: int) -> CloudPort:
        return self._ports[number]

    def order(self, operation: Operation, size: int, among: Iterable[int] | None = None) -> list[int]:
        """Return all clouds, or those of `among` that exist, the best to ask first."""
        numbers = [n for n in (self._ports if among is None else among) if n in self._ports]
        with self._lock:
            demerits = {n: self._ports[n].demerit(operation) for n in numbers}
            return self._ranking.order(numbers, operation, size, demerits)

    def usual(self, clouds: Iterable[int], operation: Operation, size: int) -> float:
        """Return the seconds in which these clouds usually answer."""
        with self._lock:
            return self._ranking.timer(clouds, operation, size)

    def by_name(self, reasons: Mapping[int, str]) -> dict[str, str]:
        """Return reasons by cloud number as reasons by name."""
        return {self._ports[n].name if n in self._ports else f"cloud {n}": r for n, r in reasons.items()}

    def mark_late(self, numbers: Iterable[int], operation: Operation, size: int, seconds: float) -> None:
        """Take note of those that have not answered for `seconds`, which is longer than usual."""
        for number in numbers:
            self._ports[number].late(operation, size, seconds)

    def explain_interrupt(self, event: Interrupt, flying: Iterable[int], timeout: float) -> str:
        """Say why an operation ends now; at its deadline that counts against those that owe an answer."""
        if event is not DEADLINE:
            return "the engine is being closed"
        for number in flying:
            self._ports[number].silent(timeout)
        return f"no answer within {timeout:.0f} s"

    def status(self) -> list[CloudStatus]:
        """Return the state of every cloud."""
        return [port.status() for port in self]

    def close(self, grace: float) -> None:
        """End all operations, stop the threads and close the stores; waits `grace` seconds at most."""
        until = time.monotonic() + grace
        self.operations.abort()
        self.throttle.close()
        for port in self:
            port.stop()
        for port in self:
            port.close(max(0.0, until - time.monotonic()))
