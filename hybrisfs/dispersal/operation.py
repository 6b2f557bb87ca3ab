"""The wait loop of one operation: events from the clouds' threads, one timer, one deadline."""

from __future__ import annotations

import contextlib
import threading
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from hybrisfs.dispersal.cloud import CloudPort
from hybrisfs.dispersal.throttle import StandingClock
from hybrisfs.dispersal.workers import Job

__all__ = ["ABORTED", "DEADLINE", "SUPERSEDED", "TIMER", "Interrupt", "OperationLoop", "Operations"]

E = TypeVar("E")

_LOOK_AGAIN: Final = 0.005  # seconds; the clock may stand still just before the time is up


class Interrupt:
    """What `OperationLoop.wait` returns instead of an event."""

    def __init__(self, name: str) -> None:
        self.name = name


TIMER = Interrupt("timer")
DEADLINE = Interrupt("deadline")
ABORTED = Interrupt("aborted")
SUPERSEDED = Interrupt("superseded")


class Operations:
    """The operations under way, so that closing the engine ends them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loops: set[OperationLoop[Any]] = set()
        self._closed = False

    def begin(self, loop: OperationLoop[Any]) -> None:
        """Take note of an operation; it is aborted at once when all were."""
        with self._lock:
            self._loops.add(loop)
            closed = self._closed
        if closed:
            loop.abort()

    def end(self, loop: OperationLoop[Any]) -> None:
        """Forget an operation."""
        with self._lock:
            self._loops.discard(loop)

    def abort(self) -> None:
        """End all operations, and those to come."""
        with self._lock:
            self._closed = True
            loops = list(self._loops)
        for loop in loops:
            loop.abort()


class OperationLoop(Generic[E]):
    """Runs in the caller's thread; as a context manager it cancels what is still queued when it ends.

    Timer and deadline go by `clock`, which stands still while a call of the operation is held back.
    """

    def __init__(self, operations: Operations, timeout: float) -> None:
        self._operations = operations
        self._events: SimpleQueue[E | Interrupt] = SimpleQueue()
        self.clock = StandingClock()
        self._deadline = self.clock() + timeout
        self._timer: float | None = None
        self.timer_length = 0.0  # seconds that the last timer was set to
        self._jobs: list[tuple[CloudPort, Job]] = []

    def __enter__(self) -> OperationLoop[E]:
        self._operations.begin(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._operations.end(self)
        for port, job in self._jobs:
            port.cancel(job)
        # A job knows the loop it reports to: without this the two would keep the bytes of packs alive until
        # the garbage collector comes by.
        self._jobs.clear()

    def report(self, event: E) -> None:
        """Deliver an event; from any thread."""
        self._events.put(event)

    def abort(self) -> None:
        """Make `wait` return ABORTED; from any thread."""
        self._events.put(ABORTED)

    def supersede(self) -> None:
        """Make `wait` return SUPERSEDED; from any thread."""
        self._events.put(SUPERSEDED)

    def track(self, port: CloudPort, job: Job) -> None:
        """Cancel `job` at the end if it has not begun by then."""
        self._jobs.append((port, job))

    def set_timer(self, seconds: float) -> None:
        """Return TIMER from `wait` after so many seconds, unless it is set again before."""
        self._timer = self.clock() + seconds
        self.timer_length = seconds

    def remaining(self) -> float:
        """Return the seconds left until the deadline."""
        return max(0.0, self._deadline - self.clock())

    def wait(self) -> E | Interrupt:
        """Return the next event, or an `Interrupt`, whichever comes first."""
        until = self._deadline if self._timer is None else min(self._timer, self._deadline)
        while (left := until - self.clock()) > 0:
            with contextlib.suppress(Empty):
                return self._events.get(timeout=max(left, _LOOK_AGAIN))
        with contextlib.suppress(Empty):
            return self._events.get_nowait()
        if until >= self._deadline:
            return DEADLINE
        self._timer = None
        return TIMER
