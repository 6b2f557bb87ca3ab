"""A client whose reads show at least what it has written itself: read-my-writes (Hybris 3.10)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from hybrisfs.kv.record import Timestamp
from hybrisfs.kv.store import Key, KeyValueStore, Versioned

__all__ = ["Session"]

_REMEMBERED: Final = 4096  # own writes; older ones are read like those of others


class Session:
    """Writes like the store itself; the cache may answer reads of what it has written. Thread-safe."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._written: OrderedDict[Key, Timestamp] = OrderedDict()

    def put(self, container: str, key: str, value: bytes) -> Timestamp:
        """See `KeyValueStore.put`."""
        timestamp = self._store.put(container, key, value)
        self._remember(Key(container, key), timestamp)
        return timestamp

    def delete(self, container: str, key: str) -> Timestamp | None:
        """See `KeyValueStore.delete`."""
        timestamp = self._store.delete(container, key)
        with self._lock:
            self._written.pop(Key(container, key), None)  # the metadata know it best
        return timestamp

    def tput(self, values: Mapping[Key, bytes | None]) -> None:
        """See `KeyValueStore.tput`."""
        for (name, value), timestamp in zip(values.items(), self._store.tput(values), strict=True):
            if value is not None:
                self._remember(name, timestamp)
            else:
                with self._lock:
                    self._written.pop(name, None)

    def get(self, container: str, key: str) -> Versioned:
        """Return what this session wrote last under the key, or what was written later."""
        with self._lock:
            own = self._written.get(Key(container, key))
        return self._store.get(container, key, at_least=own)

    def _remember(self, name: Key, timestamp: Timestamp) -> None:
        with self._lock:
            self._written[name] = max(timestamp, self._written.get(name, timestamp))
            self._written.move_to_end(name)
            if len(self._written) > _REMEMBERED:
                self._written.popitem(last=False)
