"""Our own chunk requests on a link, matched with the answers by number."""

from __future__ import annotations

import threading
import time

from hybrisfs.peers.frames import MAX_REQUESTS

__all__ = ["ChunkRequests"]


class _Request:
    __slots__ = ("answered", "data", "given_up")

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.data: bytes | None = None
        self.given_up = False


class ChunkRequests:
    """At most MAX_REQUESTS are open; one that was given up stays open until its answer came.

    Used by any number of threads.
    """

    def __init__(self) -> None:
        self._room = threading.Condition()
        self._open: dict[int, _Request] = {}
        self._next = 0
        self._closed = False

    def begin(self, deadline: float) -> int | None:
        """The number of a new request; None when there was no room until *deadline*, or the link closed."""
        with self._room:
            while len(self._open) >= MAX_REQUESTS and not self._closed:
                wait = deadline - time.monotonic()
                if wait <= 0:
                    return None
                self._room.wait(wait)
            if self._closed:
                return None
            number = self._next
            self._next = (number + 1) % (1 << 32)
            self._open[number] = _Request()
            return number

    def wait(self, number: int, deadline: float) -> bytes | None:
        """The answer; None when the other side has no such chunk, *deadline* came, or the link closed."""
        request = self._open[number]
        request.answered.wait(max(0.0, deadline - time.monotonic()))
        with self._room:
            if request.answered.is_set():
                self._remove(number)
            else:
                request.given_up = True
            return request.data

    def answer(self, number: int, data: bytes | None) -> bool:
        """Take an answer. False when nothing was asked under this number."""
        with self._room:
            request = self._open.get(number)
            if request is None or request.answered.is_set():
                return False
            if request.given_up:
                self._remove(number)
            else:
                request.data = data
                request.answered.set()
            return True

    def close(self) -> None:
        """Nothing more is answered: whoever waits gets None."""
        with self._room:
            self._closed = True
            self._room.notify_all()
            for request in self._open.values():
                request.answered.set()

    def _remove(self, number: int) -> None:
        del self._open[number]
        self._room.notify()
