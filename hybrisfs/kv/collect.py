"""Deletes from the clouds what no key refers to any more (Hybris 3.4), also what a crash has left there.

What is to be deleted is in the metadata store before it may be on any cloud, so nothing is searched for. A
cloud that does not answer is remembered with what it owes, and asked again later.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from hybrisfs.dispersal.values import Values
from hybrisfs.errors import HybrisError
from hybrisfs.kv.rmds import Garbage, MetadataStore
from hybrisfs.kv.transaction import Owed
from hybrisfs.kv.values import Uploader

__all__ = ["Collector"]

log = logging.getLogger(__name__)

_BATCH: Final = 500  # writes
_RETRY_PAUSES: Final = (5.0, 600.0)  # seconds, first and longest


class Collector:
    """`run` is the body of a thread. Writes are under way from `draw`, or `begin`, to `end`.

    *delay* is for how many seconds deletions are gathered, and
    readers of the old version may finish.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        values: Values,
        uploader: Uploader,
        delay: float,
    ) -> None:
        self._metadata = metadata
        self._values = values
        self._uploader = uploader
        self._delay = delay
        self._lock = threading.Lock()
        self._under_way = Counter[int]()
        self._collecting = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()

    def draw(self, count: int) -> list[int]:
        """Begin so many writes; return their numbers."""
        with self._lock:
            writes = [self._metadata.new_write() for _ in range(count)]
            self._under_way.update(writes)
        return writes

    def begin(self, writes: Sequence[int]) -> None:
        """These are not garbage although no key refers to them yet."""
        with self._lock:
            self._under_way.update(writes)

    def end(self, writes: Sequence[int]) -> None:
        """These are garbage now unless a key refers to them; what they have replaced is."""
        with self._lock:
            self._under_way.subtract(writes)
            self._under_way += Counter()  # drops those that nobody has under way any more
        self._wake.set()

    @contextmanager
    def sparing(self, write: int) -> Iterator[None]:
        """The objects of this write are not deleted in this context, even if the key gets another value."""
        self.begin([write])
        try:
            yield
        finally:
            self.end([write])

    def under_way(self) -> frozenset[int]:
        """The writes that have begun and not ended."""
        with self._lock:
            return frozenset(self._under_way)

    def run(self) -> None:
        """Collect whenever something was replaced, until `stop`."""
        pause = _RETRY_PAUSES[0]
        timeout: float | None = 0.0  # what an earlier run has left
        while not self._stop.is_set():
            self._wake.wait(timeout)
            if self._stop.wait(self._delay):
                return
            self._wake.clear()
            try:
                left = self.collect()
            except (HybrisError, OSError, sqlite3.Error) as error:
                log.warning("what no key refers to cannot be deleted now: %s", error)
                left = True
            timeout = pause if left else None
            pause = min(pause * 2, _RETRY_PAUSES[1]) if left else _RETRY_PAUSES[0]

    def stop(self) -> None:
        """Make `run` return, soon. What is left is collected at the next start."""
        self._stop.set()
        self._wake.set()

    def collect(self) -> bool:
        """Delete all that can be deleted now; return whether some cloud still owes a deletion."""
        with self._collecting:
            return self._collect()

    def _collect(self) -> bool:
        after = 0
        while not self._stop.is_set() and not self._metadata.failed:
            # Nothing begins or ends meanwhile: a write that is not under way is what the database says.
            with self._lock:
                found = self._metadata.garbage(after, _BATCH)
                settled = [one for one in found if one.write not in self._under_way]
            if not found:
                break
            after = found[-1].write
            if settled:
                self._delete_everywhere(settled)
        owing = self._metadata.owing()
        left = {cloud for cloud in owing if not self._stop.is_set() and self._delete_owed(cloud)}
        return bool(left)

    def _delete_everywhere(self, found: Sequence[Garbage]) -> None:
        names = [name for one in found for name in self._uploader.names(one.write, one.names)]
        failed = self._values.delete(dict.fromkeys(self._values.numbers, names))
        owed = [Owed(cloud, one.write, one.names) for cloud in failed for one in found]
        for cloud, reason in failed.items():
            log.info("cloud %d will delete %d objects later: %s", cloud, len(names), reason)
        self._metadata.forget_garbage([one.write for one in found], owed)

    def _delete_owed(self, cloud: int) -> bool:
        """Whether the cloud still owes a deletion. One that is no longer the volume's owes nothing."""
        while owed := self._metadata.owed(cloud, _BATCH):
            if cloud in self._values.numbers:
                names = [name for one in owed for name in self._uploader.names(one.write, one.names)]
                if self._values.delete({cloud: names}):
                    return True
            self._metadata.forget_owed(owed)
            if self._stop.is_set():
                return True
        return False
