"""Has the kernel drop the pages that it keeps of files.

For that it waits for pages that are being read, and a read may wait for a cloud that does not answer. So this
is done by threads: when one does not come back in a moment, another goes on with the other files.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Collection
from typing import Final, Protocol

__all__ = ["MOST_WAITING", "Pages"]

MOST_WAITING: Final = 8
"""Files with slow reads that are waited for side by side; further ones wait for these."""
_MOMENT: Final = 0.05  # seconds without any progress, after which a thread counts as one that waits
_JOIN_SECONDS: Final = 5.0


class Kernel(Protocol):
    """The kernel's caches of one mount."""

    def drop_pages(self, ino: int, /) -> None:
        """Have the pages of a file dropped; that waits for reads of it that are under way."""

    def dropped_late(self, ino: int, /) -> None:
        """The pages of a file are gone that `drop` has not waited for."""


class Pages:
    """Has *kernel* drop the pages of files, by their numbers, in threads of its own. Thread-safe."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._condition = threading.Condition()
        self._due: deque[int] = deque()
        self._left: Counter[int] = Counter()  # how often each is due, or being dropped
        self._late: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._progress = time.monotonic()
        self._stopping = False

    @property
    def late(self) -> frozenset[int]:
        """The files of which the kernel has pages still that it is to drop."""
        with self._condition:
            return frozenset(self._late)

    def drop(self, files: Collection[int]) -> None:
        """Have the pages of these files dropped; returns when that is done, but for files with slow reads."""
        with self._condition:
            self._due.extend(files)
            self._left.update(files)
            if files and not self._threads:
                self._begin()
            self._progress = time.monotonic()
            self._condition.notify_all()
            while not self._stopping and any(one in self._left for one in files):
                self._condition.wait(_MOMENT)
                if time.monotonic() - self._progress < _MOMENT:
                    continue
                if not self._due or len(self._threads) >= MOST_WAITING:
                    break
                self._begin()
                self._progress = time.monotonic()
            self._late.update(one for one in files if one in self._left)

    def stop(self) -> None:
        """End the threads; those that wait for the kernel are waited for no longer than some seconds."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _begin(self) -> None:
        thread = threading.Thread(target=self._run, name="notify-pages", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (ino := self._next()) is not None:
            try:
                self._kernel.drop_pages(ino)
            finally:
                if self._done(ino):
                    self._kernel.dropped_late(ino)

    def _next(self) -> int | None:
        with self._condition:
            self._condition.wait_for(lambda: self._due or self._stopping)
            return None if self._stopping else self._due.popleft()

    def _done(self, ino: int) -> bool:
        """Whether a callback is due when the last of its pages are gone."""
        with self._condition:
            self._left[ino] -= 1
            self._progress = time.monotonic()
            self._condition.notify_all()
            if self._left[ino]:
                return False
            del self._left[ino]
            is_late = ino in self._late
            self._late.discard(ino)
            return is_late
