"""What came over a link and takes long to carry out: a bounded queue between the thread that reads and the
one that takes in, so that chunks that come at the same time need not wait."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, TypeAlias

from hybrisfs.peers.frames import Beacon

__all__ = ["Backlog", "Item"]

_OVERHEAD: Final = 64  # bytes that an item costs besides its own

Item: TypeAlias = bytes | Beacon
"""A message of the exchange, or a sealed head: in the order in which they came, since what a head says is
compared with what is known here."""


class Backlog:
    """Filled by one thread, emptied by another."""

    def __init__(self, most: int) -> None:
        """Who puts something waits while more than *most* bytes wait to be taken."""
        self._most = most
        self._changed = threading.Condition()
        self._items: deque[Item] = deque()
        self._waiting = 0
        self._ended = False

    def put(self, item: Item) -> None:
        """Add something, as soon as there is room; after the end it is dropped."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._waiting <= self._most)
            if not self._ended:
                self._items.append(item)
                self._waiting += _size(item)
                self._changed.notify_all()

    def take(self) -> Item | None:
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


def _size(item: Item) -> int:
    return len(item.data if isinstance(item, Beacon) else item) + _OVERHEAD
