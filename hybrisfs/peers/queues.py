"""The queues of a link: what is to be sent, what has come and takes long, which answers are awaited."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from hybrisfs.environment import Environment
from hybrisfs.peers.frames import MAX_REQUESTS, Beacon

__all__ = [
    "ADVANCED",
    "Advanced",
    "Backlog",
    "ChunkRequests",
    "Delayed",
    "Item",
    "Last",
    "Outbox",
    "Requests",
    "Serve",
]

_OVERHEAD: Final = 64  # bytes that a message costs besides its own


class Serve(Struct, frozen=True):
    """A chunk that the other side waits for. It is read when its turn comes, so that none waits in memory."""

    number: int
    chunk_id: bytes


class Last(Struct, frozen=True):
    """The last bytes of the link."""

    data: bytes


class Advanced:
    """The log has grown: ask the exchange what to send."""


ADVANCED: Final = Advanced()

Item: TypeAlias = bytes | Serve | Last | Advanced


class Outbox:
    """Filled by any thread, emptied by one. Nothing here waits but `take`."""

    def __init__(self, max_queued: int, environment: Environment) -> None:
        """Nothing is added to *max_queued* bytes or more; what is added to less may be of any size."""
        self._max_queued = max_queued
        self._monotonic = environment.monotonic
        self._wait = environment.wait
        self._changed = threading.Condition()
        self._messages: deque[bytes] = deque()
        self._queued = 0
        self._serves: deque[Serve] = deque()
        self._advanced = False
        self._last: Last | None = None

    def put(self, message: bytes) -> bool:
        """Queue encoded frames. False when the queue is full: the other side reads too slowly."""
        with self._changed:
            if self._last is not None:
                return True
            if self._queued > self._max_queued:
                return False
            self._messages.append(message)
            self._queued += len(message) + _OVERHEAD
            self._changed.notify()
            return True

    def serve(self, request: Serve) -> bool:
        """Queue a request of the other side. False when it has more than MAX_REQUESTS unanswered."""
        with self._changed:
            if len(self._serves) >= MAX_REQUESTS:
                return False
            if self._last is None:
                self._serves.append(request)
                self._changed.notify()
            return True

    def take_serve(self) -> Serve | None:
        """The next request, if there is one and nothing that overtakes it."""
        with self._changed:
            overtaken = self._last is not None or self._messages or self._advanced
            return self._serves.popleft() if self._serves and not overtaken else None

    def advanced(self) -> None:
        """Queue `ADVANCED`, once however often it is called."""
        with self._changed:
            self._advanced = True
            self._changed.notify()

    def close(self, last: bytes) -> None:
        """Drop what is queued and send *last*; only the first call counts."""
        with self._changed:
            if self._last is None:
                self._last = Last(last)
                self._messages.clear()
                self._serves.clear()
                self._queued = 0
                self._changed.notify()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._last is not None

    def take(self, deadline: float) -> Item | None:
        """What to send next; None when there was nothing until *deadline* (monotonic)."""
        with self._changed:
            while True:
                if self._last is not None:
                    return self._last
                if self._messages:
                    message = self._messages.popleft()
                    self._queued -= len(message) + _OVERHEAD
                    return message
                if self._advanced:
                    self._advanced = False
                    return ADVANCED
                if self._serves:
                    return self._serves.popleft()
                wait = deadline - self._monotonic()
                if wait <= 0:
                    return None
                self._wait(self._changed, self._is_filled, wait)

    def _is_filled(self) -> bool:
        return self._last is not None or bool(self._messages or self._advanced or self._serves)


# -- what came over a link and takes long to carry out --------------------------------------------------


_ITEM_OVERHEAD: Final = 64  # bytes that an item costs besides its own

Delayed: TypeAlias = bytes | Beacon
"""A message of the exchange, or a sealed head: in the order in which they came, since what a head says is
compared with what is known here."""


class Backlog:
    """Filled by one thread, emptied by another."""

    def __init__(self, most: int) -> None:
        """Who puts something waits while more than *most* bytes wait to be taken."""
        self._most = most
        self._changed = threading.Condition()
        self._items: deque[Delayed] = deque()
        self._waiting = 0
        self._ended = False

    def put(self, item: Delayed) -> None:
        """Add something, as soon as there is room; after the end it is dropped."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._waiting <= self._most)
            if not self._ended:
                self._items.append(item)
                self._waiting += _size(item)
                self._changed.notify_all()

    def take(self) -> Delayed | None:
        """What came next, as soon as it is there; None when there is no more."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self._items))
            if not self._items:
                return None
            item = self._items.popleft()
            self._waiting -= _size(item)
            self._changed.notify_all()
            return item

    def finish(self) -> None:
        """Nothing more comes; what is there is still taken."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def drop(self) -> None:
        """Nothing more is to be taken."""
        with self._changed:
            self._items.clear()
            self._waiting = 0
        self.finish()


def _size(item: Delayed) -> int:
    return len(item.data if isinstance(item, Beacon) else item) + _ITEM_OVERHEAD


# -- our own chunk requests on a link, matched with the answers by number -------------------------------


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

    def __init__(self, environment: Environment) -> None:
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
                self._wait(self._room, lambda: self._closed or self._used + count <= MAX_REQUESTS, wait)
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
