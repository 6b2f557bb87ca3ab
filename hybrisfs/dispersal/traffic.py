"""What goes on between this device and one cloud: counted since the volume was opened, and under way now.

Calls that run side by side share the line. What one of them takes is what a call takes that moves, alone, all
that the line *carried* in that time: it says nothing of calls of its own size.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from msgspec import Struct

from backends.pacing import Pacer
from hybrisfs.dispersal.counting import Request
from hybrisfs.dispersal.ranking import Operation
from hybrisfs.environment import Environment

__all__ = ["CloudTraffic", "Counters", "CountingPacer", "Traffic", "Transfer"]

_SMALL: Final = 64 << 10  # bytes; the time of a larger transfer tells of the line rather than of the cloud


class Counters(Struct, frozen=True):
    """Requests by class, those that failed, bytes of content, and how long small reads and writes took.

    `reads` and `writes` are the small ones that were answered, `read_seconds` and `write_seconds` the sums
    of their times.
    """

    put: int = 0
    get: int = 0
    list: int = 0
    delete: int = 0
    failed: int = 0
    up: int = 0
    down: int = 0
    reads: int = 0
    read_seconds: float = 0.0
    writes: int = 0
    write_seconds: float = 0.0


class Transfer(Struct, frozen=True):
    """A call that is under way: how many bytes it is about, how many have moved, for how long it has run."""

    operation: Operation
    size: int
    moved: int
    seconds: float


class CloudTraffic(Struct, frozen=True):
    """What goes on between this device and a cloud; `state` is a `ranking.CloudState`."""

    number: int
    name: str
    state: str
    counters: Counters
    transfers: Sequence[Transfer]


class _Call(Struct, eq=False):
    operation: Operation
    size: int
    began: float
    before: int  # what had been moved in its direction when it began
    moved: int = 0


class Traffic:
    """Counts for one cloud. Thread-safe."""

    def __init__(self, environment: Environment) -> None:
        self._clock = environment.monotonic
        self._lock = threading.Lock()
        self._requests = {"put": 0, "get": 0, "list": 0, "delete": 0}
        self._failed = self._up = self._down = 0
        self._answers = {"put": (0, 0.0), "get": (0, 0.0)}
        self._calls: set[_Call] = set()

    def request(self, one: Request) -> None:
        """A request is made, as it is billed. Its bytes are counted as they move."""
        with self._lock:
            self._requests[one.kind] += 1

    def failed(self) -> None:
        """A call found no answer, or one that says that it cannot be carried out."""
        with self._lock:
            self._failed += 1

    def answered(self, operation: Operation, size: int, seconds: float) -> None:
        """A call about so many bytes was answered after so many seconds."""
        if size > _SMALL:
            return
        with self._lock:
            count, total = self._answers[operation]
            self._answers[operation] = count + 1, total + seconds

    @contextmanager
    def transfer(self, operation: Operation, size: int, pacer: Pacer) -> Iterator[CountingPacer]:
        """A call runs within the block; the pacer that is yielded counts what it moves."""
        with self._lock:
            call = _Call(operation, size, self._clock(), self._total(operation))
            self._calls.add(call)
        try:
            yield CountingPacer(self, call, pacer)
        finally:
            with self._lock:
                self._calls.discard(call)

    def load(self, operation: Operation) -> int:
        """Bytes that calls under way have yet to move in this direction."""
        with self._lock:
            return sum(max(0, one.size - one.moved) for one in self._calls if one.operation == operation)

    def carried(self, operation: Operation, size: int) -> int:
        """Bytes moved in this direction since the oldest call about *size* bytes that is under way began; at
        least *size*."""
        with self._lock:
            alike = (one for one in self._calls if (one.operation, one.size) == (operation, size))
            return max([size, *map(self._carried, alike)])

    def carried_since(self, call: _Call) -> int:
        """Bytes moved in a call's direction since it began; at least its size."""
        with self._lock:
            return self._carried(call)

    def _carried(self, call: _Call) -> int:
        return max(call.size, self._total(call.operation) - call.before)

    def _total(self, operation: Operation) -> int:
        return self._up if operation == "put" else self._down

    def moved(self, call: _Call, up: int, down: int) -> None:
        """A call has moved so many bytes more."""
        with self._lock:
            self._up += up
            self._down += down
            call.moved += up + down

    def counters(self) -> Counters:
        """What was counted so far."""
        with self._lock:
            (writes, write_seconds), (reads, read_seconds) = self._answers["put"], self._answers["get"]
            return Counters(
                **self._requests,
                failed=self._failed,
                up=self._up,
                down=self._down,
                reads=reads,
                read_seconds=read_seconds,
                writes=writes,
                write_seconds=write_seconds,
            )

    def transfers(self) -> list[Transfer]:
        """What is under way, the oldest first."""
        with self._lock:
            now = self._clock()
            found = [Transfer(one.operation, one.size, one.moved, now - one.began) for one in self._calls]
        return sorted(found, key=lambda one: -one.seconds)


class CountingPacer:
    """A `backends.pacing.Pacer` that counts what another one lets pass."""

    def __init__(self, traffic: Traffic, call: _Call, pacer: Pacer) -> None:
        self._traffic = traffic
        self._call = call
        self._pacer = pacer

    @property
    def carried(self) -> int:
        """Bytes moved in the call's direction since it began; at least its size."""
        return self._traffic.carried_since(self._call)

    @property
    def limited(self) -> bool:
        return self._pacer.limited

    def sending(self, count: int) -> float:
        self._traffic.moved(self._call, count, 0)
        return self._pacer.sending(count)

    def received(self, count: int) -> float:
        self._traffic.moved(self._call, 0, count)
        return self._pacer.received(count)
