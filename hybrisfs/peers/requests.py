"""Our own chunk requests on a link, matched with the answers by number."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.peers.frames import MAX_REQUESTS

__all__ = ["ChunkRequests", "Requests"]

_TOGETHER: Final = MAX_REQUESTS // 4
_MOST_PATIENCE: Final = 4  # times the patience, while others are answered


class Requests:
    """Some requests that were begun together; `numbers` are those of the frames, in order."""

    __slots__ = ("answers", "changed", "done", "numbers", "open")

    def __init__(self, numbers: Sequence[int], changed: threading.Condition) -> None:
        self.numbers: Final = numbers
        self.answers: dict[int, bytes | None] = {}
        self.open = len(numbers)
        self.done = False
        self.changed: Final = changed


class ChunkRequests:
    """At most MAX_REQUESTS are open, or answered and not taken yet.

    One that was given up stays open until its answer came. They are begun and taken several at a time, for to
    wake a thread costs more than a small chunk. Used by any number of threads.
    """

    def __init__(self, environment: Environment = SYSTEM) -> None:
        self._monotonic = environment.monotonic
        self._wait = environment.wait
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._used = 0
        self._open: dict[int, Requests] = {}
        self._next = 0
        self._heard = 0.0  # when an answer came last
        self._closed = False

    def begin(self, wanted: int, patience: float) -> Requests | None:
        """Begin at most *wanted* requests.

        None when there was no room, and no answer, for *patience* seconds, or when the link is closed.
        """
        count = min(wanted, _TOGETHER)
        begun = self._monotonic()
        with self._lock:
            while self._used + count > MAX_REQUESTS and not self._closed:
                wait = self._give_up(begun, patience) - self._monotonic()
                if wait <= 0:
                    return None
                self._room.wait(wait)
            if self._closed:
                return None
            numbers = [(self._next + number) % (1 << 32) for number in range(count)]
            requests = Requests(numbers, threading.Condition(self._lock))
            self._next = (self._next + count) % (1 << 32)
            self._used += count
            self._open.update(dict.fromkeys(requests.numbers, requests))
            return requests

    def wait(self, requests: Requests, patience: float) -> list[bytes | None]:
        """The answers; None for chunks that the other side does not have, and for those that had not come
        when it had answered nothing at all for *patience* seconds, or when the link was closed."""
        begun = self._monotonic()
        with self._lock:
            while not requests.done:
                wait = self._give_up(begun, patience) - self._monotonic()
                if wait <= 0:
                    break
                self._wait(requests.changed, lambda: requests.done, wait)
            requests.done = True  # what is answered later is dropped
            self._used -= len(requests.answers)
            self._room.notify_all()
            return [requests.answers.get(number) for number in requests.numbers]

    def _give_up(self, begun: float, patience: float) -> float:
        """When to wait no longer: while others are answered, the turn of these may come, but not for ever."""
        return min(max(begun, self._heard) + patience, begun + _MOST_PATIENCE * patience)

    def answer(self, number: int, data: bytes | None) -> bool:
        """Take an answer. False when nothing was asked under this number."""
        with self._lock:
            requests = self._open.pop(number, None)
            if requests is None:
                return False
            self._heard = self._monotonic()
            if requests.done:
                self._used -= 1
                self._room.notify_all()
                return True
            requests.answers[number] = data
            requests.open -= 1
            if not requests.open:
                _end(requests)
            return True

    def close(self) -> None:
        """Nothing more is answered: threads that wait get None."""
        with self._lock:
            self._closed = True
            self._room.notify_all()
            for requests in self._open.values():
                _end(requests)


def _end(requests: Requests) -> None:
    requests.done = True
    requests.changed.notify_all()
