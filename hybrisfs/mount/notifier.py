"""Tells the kernel what other devices have changed, so that it serves nothing stale.

A thread of its own does it: the kernel may hold a notice back until a handler has returned, so nobody who is
in a handler, or holds a lock that one takes, may give it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Final

from hybrisfs import fuse
from hybrisfs.merge.refresh import Change

__all__ = ["Notifier"]

log = logging.getLogger(__name__)

_JOIN_SECONDS: Final = 5.0


class Notifier:
    """One thread per mount, from construction to `stop`."""

    def __init__(self, session: fuse.Session) -> None:
        self._session = session
        self._queue: SimpleQueue[list[Change] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._thread.start()

    def notify(self, changes: Iterable[Change]) -> None:
        """Have the kernel told; returns at once, from any thread."""
        self._queue.put(list(changes))

    def stop(self) -> None:
        """End the thread; what has not been told yet is of no use any more."""
        self._queue.put(None)
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while (changes := self._queue.get()) is not None:
            while not self._queue.empty() and (more := self._queue.get()) is not None:
                changes += more
            try:
                self._tell(dict.fromkeys(changes))
            except fuse.FuseError as error:
                log.debug("the kernel was not told of changes: %s", error)

    def _tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if change.name is None:
                self._session.notify_inval_inode(change.ino)
            else:
                self._session.notify_inval_entry(change.ino, change.name)
