"""Work in bounded portions: so many jobs at a time, so many items in a group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_groups", "in_parallel"]

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
