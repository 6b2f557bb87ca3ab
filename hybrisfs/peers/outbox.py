"""What a link has to send: a bounded queue in which messages overtake chunks."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from hybrisfs.peers.frames import MAX_REQUESTS

__all__ = ["ADVANCED", "Advanced", "Item", "Last", "Outbox", "Serve"]

_OVERHEAD: Final = 64  # bytes that a message costs besides its own


@dataclass(frozen=True, slots=True)
class Serve:
    """A chunk that the other side waits for. It is read when its turn comes, so that none waits in memory."""

    number: int
    chunk_id: bytes


@dataclass(frozen=True, slots=True)
class Last:
    """The last bytes of the link."""

    data: bytes


class Advanced:
    """The log has grown: ask the exchange what to send."""


ADVANCED: Final = Advanced()

Item: TypeAlias = bytes | Serve | Last | Advanced


class Outbox:
    """Filled by any thread, emptied by one. Nothing here waits but `take`."""

    def __init__(self, max_queued: int) -> None:
        """Nothing is added to *max_queued* bytes or more; what is added to less may be of any size."""
        self._max_queued = max_queued
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
        """What to send next; None when there was nothing until *deadline* (`time.monotonic`)."""
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
                wait = deadline - time.monotonic()
                if wait <= 0:
                    return None
                self._changed.wait(wait)
