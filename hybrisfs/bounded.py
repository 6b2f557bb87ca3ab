"""Work in bounded portions: so many jobs at a time, so many items in a group, so much of something in use."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["Room", "in_groups", "in_parallel"]

# -- dividing what is to be done into parts of a bounded size -------------------------------------------


T = TypeVar("T")


def in_groups(items: Iterable[T], size_of: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The items, in order, in groups of *most* in size together; a larger item is a group of its own."""
    group: list[T] = []
    size = 0
    for item in items:
        one = size_of(item)
        if group and size + one > most:
            yield group
            group, size = [], 0
        group.append(item)
        size += one
    if group:
        yield group


# -- running many jobs, a bounded number at a time ------------------------------------------------------


def in_parallel(jobs: Iterable[Callable[[], T]], workers: int, name: str) -> Iterator[T]:
    """Yield what *jobs* return, in their order, running so many at a time; jobs are taken as they are needed.

    When the caller stops early, jobs that have not begun are dropped and those that run are waited for.
    """
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix=name) as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(job))
                if len(waiting) >= 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


# -- using no more than there is, in the order of arrival -----------------------------------------------


class _Turn:
    """One who waits. A plain lock: unlike an event, it can be interrupted while it is waited for."""

    __slots__ = ("_lock", "amount", "has_come")

    def __init__(self, amount: int) -> None:
        self.amount = amount
        self.has_come = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def come(self) -> None:
        self.has_come = True
        self._lock.release()

    def wait(self) -> None:
        self._lock.acquire()


class Room:
    """So much of something, given out in the order of arrival: those who come too late wait. Thread-safe."""

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._free = self._size = size
        self._line: deque[_Turn] = deque()

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        """Within the block *amount* is in use; all that there is when it is more. Waits for it."""
        turn = _Turn(min(amount, self._size))
        try:
            with self._lock:
                self._line.append(turn)
                self._serve()
            turn.wait()
            yield
        finally:
            with self._lock:
                if turn.has_come:
                    self._free += turn.amount
                elif turn in self._line:  # interrupted while it waited
                    self._line.remove(turn)
                self._serve()

    def _serve(self) -> None:
        while self._line and self._line[0].amount <= self._free:
            turn = self._line.popleft()
            self._free -= turn.amount
            turn.come()
