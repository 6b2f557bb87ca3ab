"""Threads that run the blocking calls to one cloud.

A call may hang for ever, and Python cannot stop it. So the threads are daemons, at most a few per cloud,
and nobody ever waits for a call: callers wait for events with a deadline, and `close` for idle threads
with one. A cloud whose threads all hang takes no further work but keeps nothing else from working.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from hybrisfs.dispersal.stopwatch import Stopwatch
from hybrisfs.environment import Environment

__all__ = ["CloudWorkers", "Job"]

logger = logging.getLogger(__name__)


class Job(Struct, eq=False):
    """One call. Calls with equal `key` run one after the other, in order.

    `run` must not raise. It returns a function that reports the answer: that is called when the call is not
    under way any more, so that the listener may delete what the call has written. `clock` times the
    call from its start. `stuck` is called when the call waits, or is going to wait, for threads some of which
    are at work on a call that is late.
    """

    run: Callable[[], Callable[[], None]]
    clock: Stopwatch
    writes: bool = False
    small: bool = False  # it moves so little that the line hardly notices
    key: str | None = None
    detached: bool = False  # nobody waits for it any more
    stuck: Callable[[], None] | None = None
    size: int = 0  # bytes that it is going to move
    late: bool = False  # it takes longer than usual
    state: Literal["waiting", "running", "ended"] = "waiting"


class WorkerLimits(Struct, frozen=True):
    """How many calls to one cloud there are at a time."""

    threads: int = 6
    """That run."""
    reserved: int = 2
    """Of these threads never write, so that long uploads do not keep a read waiting."""
    backlog: int = 256
    """That wait."""


class CloudWorkers:
    """Runs calls to one cloud, and `more` at a time than the limits say if these are small; the others wait:
    reads before writes.
    """

    def __init__(self, name: str, environment: Environment, *, more: int = 0) -> None:
        limits = environment.limits.of(WorkerLimits)
        self._wait = environment.wait
        self._name = name
        self._threads = limits.threads
        self._more = more
        self._writers = limits.threads - limits.reserved
        self._backlog = limits.backlog
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._running: set[Job] = set()
        self._idle = 0
        self._count = 0
        self._closed = False

    def submit(self, job: Job) -> bool:
        """Queue a call. Returns False when the backlog is full or the workers are closed.

        A detached call with the same key that has not begun is dropped: it would be overwritten anyway.
        """
        with self._changed:
            if job.key is not None:
                self._drop_detached(job.key)
            if self._closed or len(self._waiting) >= self._backlog:
                job.state = "ended"
                return False
            self._waiting.append(job)
            self._changed.notify()
            if len(self._waiting) > self._idle and self._count < self._threads + self._more:
                self._count += 1
                threading.Thread(target=self._work, name=f"cloud-{self._name}", daemon=True).start()
            stuck = any(one.late for one in self._running)
        if stuck and job.stuck is not None:
            job.stuck()
        return True

    def cancel(self, job: Job) -> None:
        """Do not start the call if it is still waiting."""
        with self._changed:
            if job in self._waiting:
                self._drop(job)

    def mark_late(self, job: Job) -> None:
        """The call takes longer than usual, if it runs: those that wait learn of it."""
        with self._changed:
            if job not in self._running or job.late:
                return
            job.late = True
            waiting = list(self._waiting)
        for one in waiting:
            if one.stuck is not None:
                one.stuck()

    def detach(self, job: Job) -> None:
        """Nobody waits for this call, but it is to run unless a newer one with its key comes first."""
        with self._changed:
            job.detached = True

    def under_way(self) -> set[str]:
        """Return the keys of the calls that run or wait."""
        with self._changed:
            return {job.key for job in (*self._running, *self._waiting) if job.key is not None}

    def awaited(self) -> int:
        """Return how many bytes the reads that wait are going to move."""
        with self._changed:
            return sum(job.size for job in self._waiting if not job.writes)

    def standstill(self) -> float | None:
        """Return for how many seconds a running call has been at a standstill, the longest of all; None when
        all threads are idle.

        The time in which a call is held back does not count.
        """
        return max((job.clock.standstill() for job in self.running()), default=None)

    def running(self) -> list[Job]:
        """Return the calls at work."""
        with self._changed:
            return list(self._running)

    def stop(self) -> None:
        """Start no further call and drop those that wait."""
        with self._changed:
            self._closed = True
            for job in list(self._waiting):
                self._drop(job)
            self._changed.notify_all()

    def close(self, grace: float) -> bool:
        """Stop, and wait up to `grace` seconds for the running calls.

        Returns whether all ended; those that did not are abandoned.
        """
        self.stop()
        with self._changed:
            ended = self._wait(self._changed, lambda: not self._running, grace)
        if not ended:
            logger.warning("cloud %s: abandoned calls that do not return", self._name)
        return ended

    def _drop_detached(self, key: str) -> None:
        for job in [job for job in self._waiting if job.detached and job.key == key]:
            self._drop(job)

    def _drop(self, job: Job) -> None:
        self._waiting.remove(job)
        job.state = "ended"

    def _work(self) -> None:
        while (job := self._take()) is not None:
            try:
                report = job.run()
            finally:
                with self._changed:
                    self._running.remove(job)
                    job.state = "ended"
                    self._changed.notify_all()
                del job  # it may hold a share of several MiB
            report()
            del report  # so may this

    def _take(self) -> Job | None:
        with self._changed:
            self._idle += 1
            try:
                while not self._closed:
                    job = self._runnable()
                    if job is not None:
                        self._waiting.remove(job)
                        self._running.add(job)
                        job.clock.start()
                        job.state = "running"
                        return job
                    self._changed.wait()
                return None
            finally:
                self._idle -= 1

    def _runnable(self) -> Job | None:
        """Return the first call that may start: reads before writes, none while one with its key runs."""
        taken = {job.key for job in self._running if job.key is not None}
        room = {small: self._room(small=small) for small in (False, True)}
        write = None
        for job in self._waiting:
            if job.key not in taken:
                any_call, any_write = room[job.small]
                if not job.writes and any_call:
                    return job
                if job.writes and any_write and write is None:
                    write = job
            if job.key is not None:
                taken.add(job.key)
        return write

    def _room(self, *, small: bool) -> tuple[bool, bool]:
        """Whether there is room for one more call, and whether for one that writes."""
        beside = [job for job in self._running if small or not job.small]
        more = self._more if small else 0
        free = len(beside) < self._threads + more
        writes = sum(job.writes for job in beside) < self._writers + more
        reads_keep_theirs = sum(job.writes for job in self._running) < self._writers + self._more
        return free, free and writes and reads_keep_theirs
