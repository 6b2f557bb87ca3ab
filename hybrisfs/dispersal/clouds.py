"""All clouds of a volume: which to ask first, how they are, and the wait loop of one operation on them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from hybrisfs.dispersal.cloud import Cloud, CloudPort, CloudStatus
from hybrisfs.dispersal.ranking import Operation, Ranking, Timing
from hybrisfs.dispersal.stopwatch import Stopwatch
from hybrisfs.dispersal.throttle import Throttle
from hybrisfs.dispersal.workers import Job
from hybrisfs.environment import Environment

__all__ = ["ABORTED", "DEADLINE", "SUPERSEDED", "TIMER", "Clouds", "Interrupt", "OperationLoop", "Operations"]


class Clouds:
    """The clouds by number, with one ranking. Thread-safe.

    A cloud may be *closed to writes*: it is read, but gets nothing. One that was *retired* is asked for
    nothing; what is under way there may end.
    """

    def __init__(self, clouds: Sequence[Cloud], timing: Timing, environment: Environment) -> None:
        self._lock = threading.Lock()
        self.first_pause = timing.timers.first_pause
        self.start_patience = timing.timers.start_patience
        self._ranking = Ranking(timing.timers, environment)
        self.operations = Operations(environment)
        self.throttle = Throttle(environment)
        self.chance: Final = environment.chance()
        self._environment = environment
        self._timing = timing
        self._retired: list[CloudPort] = []
        self._former: dict[int, CloudPort] = {}
        self._closed_to_writes: frozenset[int] = frozenset()
        self._ports: dict[int, CloudPort] = {}  # replaced, never changed: others may be going over it
        for cloud in clouds:
            self.add(cloud)

    def __len__(self) -> int:
        return len(self._ports)

    def __iter__(self) -> Iterator[CloudPort]:
        return iter(self._ports.values())

    def __contains__(self, number: int) -> bool:
        return number in self._ports

    def __getitem__(self, number: int) -> CloudPort:
        port = self._ports.get(number)
        return self._former[number] if port is None else port

    def add(self, cloud: Cloud) -> None:
        """Use one more cloud. ValueError when there is one with this number."""
        if cloud.number in self._ports:
            raise ValueError("two clouds have one number")
        port = CloudPort(cloud, self._ranking, self._lock, self.throttle, self._timing, self._environment)
        self._ports = {**self._ports, cloud.number: port}

    def retire(self, number: int) -> None:
        """Ask a cloud for nothing any more."""
        port = self._ports.get(number)
        if port is not None:
            self._retired.append(port)
            self._former[number] = port
            self._ports = {one: port for one, port in self._ports.items() if one != number}

    def rename(self, number: int, name: str) -> None:
        """Call a cloud *name* from now on; one that is not asked any more keeps its name."""
        port = self._ports.get(number)
        if port is not None:
            port.name = name

    def close_to_writes(self, numbers: Iterable[int]) -> None:
        """Write to all clouds but these."""
        self._closed_to_writes = frozenset(numbers)

    def takes_writes(self, number: int) -> bool:
        """Whether anything new may go there."""
        return number in self._ports and number not in self._closed_to_writes

    def order(
        self, operation: Operation, size: int, among: Iterable[int] | None = None, *, asked: int = 0
    ) -> list[int]:
        """Return all clouds, or those of `among` that exist, the best first; see `Ranking.order`.

        Reads that are `asked` for go where they will be over first, behind what is under way.
        """
        ports = self._ports
        numbers = [n for n in (ports if among is None else among) if n in ports]
        if operation == "put":
            numbers = [n for n in numbers if n not in self._closed_to_writes]
        loads = {n: ports[n].load() for n in numbers} if operation == "get" and asked else {}
        with self._lock:
            penalties = {n: ports[n].penalty(operation) for n in numbers}
            return self._ranking.order(numbers, operation, size, penalties, asked=asked, loads=loads)

    def usual(self, clouds: Iterable[int], operation: Operation, size: int) -> float:
        """Return the seconds in which these clouds usually answer, with what they have to do already."""
        ports = self._ports
        sizes = {n: size + ports[n].traffic.load(operation) for n in clouds if n in ports}
        with self._lock:
            return self._ranking.timer(sizes, operation)

    def by_name(self, reasons: Mapping[int, str]) -> dict[str, str]:
        """Return reasons by cloud number as reasons by name."""
        ports = self._ports
        return {ports[n].name if n in ports else f"cloud {n}": r for n, r in reasons.items()}

    def mark_late(self, numbers: Iterable[int], operation: Operation, size: int, seconds: float) -> None:
        """Take note of those that have not answered for `seconds`, which is longer than usual."""
        for number in numbers:
            self[number].late(operation, size, seconds)

    def status(self) -> list[CloudStatus]:
        """Return the state of every cloud."""
        return [port.status() for port in self]

    def close(self, grace: float) -> None:
        """End all operations, stop the threads and close the stores; waits `grace` seconds at most."""
        until = self._environment.monotonic() + grace
        self.operations.abort()
        self.throttle.close()
        ports = [*self, *self._retired]
        for port in ports:
            port.stop()
        for port in ports:
            port.close(max(0.0, until - self._environment.monotonic()))


# -- the wait loop of one operation: events from the clouds' threads, one timer, one deadline -----------


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

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
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

    Timer and deadline go by `clock`, which stands still while a call of the operation is held back. The
    deadline comes when the operation has been at a standstill for `timeout` seconds. They begin again while a
    call of it waits for its turn behind transfers that go on: on a slow line that is nobody's fault.
    """

    def __init__(self, operations: Operations, timeout: float) -> None:
        self._operations = operations
        self._events: SimpleQueue[E | Interrupt] = SimpleQueue()
        self.clock = Stopwatch(operations.environment)
        self._timeout = timeout
        self._began = self.clock()
        self._timer: float | None = None
        self.timer_length = 0.0  # seconds that the last timer was set to
        self._jobs: list[tuple[CloudPort, Job]] = []

    def __enter__(self) -> OperationLoop[E]:
        self._operations.begin(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._operations.end(self)
        for port, job in self._jobs:
            if not job.detached:
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
        """Take note of a call of the operation. If it has not begun at the end, and is not detached, it is
        cancelled."""
        self._jobs.append((port, job))

    def set_timer(self, seconds: float) -> None:
        """Return TIMER from `wait` after so many seconds, unless it is set again before."""
        self._timer = self.clock() + seconds
        self.timer_length = seconds

    def remaining(self) -> float:
        """Return the seconds until the deadline, if nothing moves until then."""
        return max(0.0, self._timeout - self.clock.standstill())

    def wait(self) -> E | Interrupt:
        """Return the next event, or an `Interrupt`, whichever comes first."""
        while True:
            left = self._timeout - self.clock.standstill()
            interrupt = DEADLINE
            if self._timer is not None and self._timer - self.clock() < left:
                left, interrupt = self._timer - self.clock(), TIMER
            if left <= 0 and interrupt is DEADLINE and self._is_in_line():
                self.clock.start()
            elif left <= 0:
                break
            with contextlib.suppress(Empty):
                return self._events.get(timeout=max(left, _LOOK_AGAIN))
        with contextlib.suppress(Empty):
            return self._events.get_nowait()
        self._timer = None
        for port, job in self._jobs:
            # Of a transfer that goes on, those behind it know that they have to be patient.
            if job.clock.standstill() >= self.timer_length / 2:
                port.mark_late(job)
        return interrupt

    def _is_in_line(self) -> bool:
        """Whether a call waits for its turn behind transfers that go on, if there is any time to wait."""
        return self._timeout > 0 and any(
            job.state == "waiting" and port.transfers() for port, job in self._jobs
        )

    def explain(self, event: Interrupt, owing: Iterable[int]) -> dict[int, str]:
        """Say why the operation ends now, for each of the clouds that owe it an answer.

        At the deadline that counts against those that had their turn and moved nothing.
        """
        if event is not DEADLINE:
            return dict.fromkeys(owing, "the engine is being closed")
        return {number: self._unanswered(number) for number in owing}

    def _unanswered(self, number: int) -> str:
        open_jobs = [
            (port, job) for port, job in self._jobs if port.number == number and job.state != "ended"
        ]
        if any(port.moves(job) for port, job in open_jobs):
            return f"the transfer had not ended after {self.clock() - self._began:.0f} s"
        if not any(job.state == "running" for _, job in open_jobs):
            return f"no answer within {self._timeout:.0f} s: the request waited behind others"
        for port, _ in open_jobs[:1]:
            port.silent(self._timeout)
        return f"no answer within {self._timeout:.0f} s"
