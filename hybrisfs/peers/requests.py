"""Our own chunk requests on a link, matched with the answers by number."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Final

from hybrisfs.peers.frames import MAX_REQUESTS

__all__ = ["ChunkRequests", "Requests"]

_TOGETHER: Final = MAX_REQUESTS // 4
_MOST_PATIENCE: Final = 4  # times the patience, while others are answered


class Requests:
    """Some requests that were begun together; `numbers` are those of the frames, in order."""

    __slots__ = ("answers", "done", "numbers", "open")

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers: Final = numbers
        self.answers: dict[int, bytes | None] = {}
        self.open = len(numbers)
        self.done = threading.Event()


class ChunkRequests:
    """At most MAX_REQUESTS are open, or answered and not taken yet.

    One that was given up stays open until its answer came. They are begun and taken several at a time, for to
    wake a thread costs more than a small chunk. Used by any number of threads.
    """

    def __init__(self) -> None:
        self._room = threading.Condition()
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
        begun = time.monotonic()
        with self._room:
            while self._used + count > MAX_REQUESTS and not self._closed:
                wait = self._give_up(begun, patience) - time.monotonic()
                if wait <= 0:
                    return None
                self._room.wait(wait)
            if self._closed:
                return None
            requests = Requests([(self._next + number) % (1 << 32) for number in range(count)])
            self._next = (self._next + count) % (1 << 32)
            self._used += count
            self._open.update(dict.fromkeys(requests.numbers, requests))
            return requests

    def wait(self, requests: Requests, patience: float) -> list[bytes | None]:
        """The answers; None for chunks that the other side does not have, and for those that had not come
        when it had answered nothing at all for *patience* seconds, or when the link was closed."""
        begun = time.monotonic()
        while not requests.done.is_set():
            wait = self._give_up(begun, patience) - time.monotonic()
            if wait <= 0:
                break
            requests.done.wait(wait)
        with self._room:
            requests.done.set()  # what is answered later is dropped
            self._used -= len(requests.answers)
            self._room.notify_all()
            return [requests.answers.get(number) for number in requests.numbers]

    def _give_up(self, begun: float, patience: float) -> float:
        """When to wait no longer: while others are answered, the turn of these may come, but not for ever."""
        return min(max(begun, self._heard) + patience, begun + _MOST_PATIENCE * patience)

    def answer(self, number: int, data: bytes | None) -> bool:
        """Take an answer. False when nothing was asked under this number."""
        with self._room:
            requests = self._open.pop(number, None)
            if requests is None:
                return False
            self._heard = time.monotonic()
            if requests.done.is_set():
                self._used -= 1
                self._room.notify_all()
                return True
            requests.answers[number] = data
            requests.open -= 1
            if not requests.open:
                requests.done.set()
            return True

    def close(self) -> None:
        """Nothing more is answered: threads that wait get None."""
        with self._room:
            self._closed = True
            self._room.notify_all()
            for requests in self._open.values():
                requests.done.set()
