"""A watchdog: no step of a simulation takes longer than the bytes allow that came in it, and that are there.

Time is counted in calls of Python's functions and in steps of SQLite's machine, so that a seed that fails
fails again. What is allowed is many times what anything takes that takes linear time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from cProfile import Profile
from sqlite3 import Connection, ProgrammingError
from typing import Final

__all__ = ["SlowError", "Watchdog"]

_EVERY: Final = 1000  # steps of SQLite's machine, between two looks
_LEAST: Final = 2_000_000
_FOR_EACH_BYTE: Final = 2_000  # of updates that are accepted
_FOR_EACH_STORED: Final = 5  # bytes of a database: some steps look at all of it


class SlowError(AssertionError):
    """A step has taken longer than its bytes allow."""


class Watchdog:
    """Watches the devices with these databases, of which others may take the place. *least* is allowed for
    nothing at all, *for_each_stored* for each byte of a database."""

    def __init__(
        self,
        databases: Callable[[], Iterable[Connection]],
        least: int = _LEAST,
        for_each_stored: int = _FOR_EACH_STORED,
    ) -> None:
        self._databases = databases
        self._least = least
        self._for_each_stored = for_each_stored
        self._count = 0

    def _step(self) -> int:
        self._count += _EVERY
        return 0

    @contextmanager
    def watch(self, what: str) -> Iterator[None]:
        """Raises SlowError in the end."""
        self._count = 0
        before = {database: _newest(database) for database in self._databases()}
        for database in before:
            database.set_progress_handler(self._step, _EVERY)
        calls = Profile(subcalls=False, builtins=False)  # cheaper than a function of Python for each call
        calls.enable()
        try:
            yield
        finally:
            calls.disable()
            for database in before:
                with suppress(ProgrammingError):  # it is closed: another one has taken its place
                    database.set_progress_handler(None, _EVERY)
        self._count += sum(one.callcount for one in calls.getstats())
        allowed = self._least
        for database in self._databases():
            accepted = _accepted_since(database, before.get(database, 0))
            allowed += _FOR_EACH_BYTE * accepted + self._for_each_stored * _size(database)
        if self._count > allowed:
            raise SlowError(f"{what}: {self._count} steps, {allowed} are allowed")


def _newest(database: Connection) -> int:
    (number,) = database.execute("SELECT ifnull(max(number), 0) FROM log").fetchone()
    return int(number)


def _accepted_since(database: Connection, number: int) -> int:
    query = "SELECT ifnull(sum(length(bytes)), 0) FROM log WHERE number > ?"
    (size,) = database.execute(query, (number,)).fetchone()
    return int(size)


def _size(database: Connection) -> int:
    (pages,), (page,) = (
        database.execute(f"PRAGMA {what}").fetchone() for what in ("page_count", "page_size")
    )
    return int(pages * page)
