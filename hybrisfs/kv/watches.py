"""Subscriptions to changes of the metadata of single keys (Hybris 3.5)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from hybrisfs.kv.recent import Place

__all__ = ["Watches"]


class Watches:
    """Who wants to hear of which key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[Place, list[Callable[[], None]]] = {}

    @contextmanager
    def subscribed(self, place: Place, callback: Callable[[], None]) -> Iterator[None]:
        """Have `callback`, which must be quick, called after each change of the key until the end."""
        with self._lock:
            self._callbacks.setdefault(place, []).append(callback)
        try:
            yield
        finally:
            with self._lock:
                callbacks = self._callbacks[place]
                callbacks.remove(callback)
                if not callbacks:
                    del self._callbacks[place]

    def tell(self, places: Iterable[Place]) -> None:
        """Call everybody who wants to hear of these."""
        if not self._callbacks:
            return
        with self._lock:
            concerned = [callback for place in places for callback in self._callbacks.get(place, ())]
        for callback in concerned:
            callback()
