"""The shipper: puts the log of signed updates on the clouds, in sealed segments.

Data goes before the metadata that names it: an update is shipped when every chunk it names is in a pack
that the clouds hold. Updates are shipped in order, and only after they are durable on this device.
A segment and the head that announces it must each be acknowledged by f+1 clouds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hybrisfs.dispersal.errors import CloudsUnavailable
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.pipeline.commit import Committer
from hybrisfs.pipeline.signals import Signals
from hybrisfs.store.updates import UpdateLog
from sync import NONCE_SIZE, DeviceKey, Extent, Head, encode_head, encode_segment, head_name, segment_name

__all__ = ["LINGER_SECONDS", "Shipper"]

log = logging.getLogger(__name__)

LINGER_SECONDS: Final = 5.0
_SEGMENT_BYTES: Final = 4 << 20
_SEGMENT_UPDATES: Final = 4096
_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Batch:
    """Consecutive updates that may be shipped now."""

    updates: list[bytes]
    first: int
    last: int
    size: int


class Shipper:
    """One thread. *put_object* stores a small object on f+1 clouds, *put_everywhere* on all that answer."""

    def __init__(
        self,
        fs: FileSystem,
        updates: UpdateLog,
        signals: Signals,
        committer: Committer,
        device: DeviceKey,
        segment_key: bytes,
        put_object: Callable[[str, bytes], tuple[int, ...]],
        put_everywhere: Callable[[str, bytes], tuple[int, ...]],
    ) -> None:
        self._fs = fs
        self._updates = updates
        self._signals = signals
        self._committer = committer
        self._device = device
        self._key = segment_key
        self._put_object = put_object
        self._put_everywhere = put_everywhere
        self._waiting_since: float | None = None
        self._delay = _FIRST_RETRY

    def run(self) -> None:
        """The thread's body."""
        while self._signals.wait_for_updates():
            batch = self._shippable()
            while batch is not None and self._due(batch) and not self._signals.stopping:
                if not self._ship_or_wait(batch):
                    break
                batch = self._shippable()

    def _due(self, batch: _Batch) -> bool:
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return (
            self._signals.flushing
            or batch.size >= _SEGMENT_BYTES
            or now - self._waiting_since >= LINGER_SECONDS
        )

    def _shippable(self) -> _Batch | None:
        with self._fs.lock:
            published: int = self._fs.db.meta("published")
            lowest = self._fs.db.execute("SELECT min(number) FROM chunk WHERE pack IS NULL").fetchone()[0]
            rows = self._updates.own_after(published, _SEGMENT_UPDATES)
        ready: list[bytes] = []
        size = last = 0
        for clock, chunk_high, data in rows:
            if (lowest is not None and chunk_high >= lowest) or (ready and size + len(data) > _SEGMENT_BYTES):
                break
            ready.append(data)
            size += len(data)
            last = clock
        return _Batch(ready, rows[0][0], last, size) if ready else None

    def _ship_or_wait(self, batch: _Batch) -> bool:
        try:
            self._ship(batch)
        except (CloudsUnavailable, OSError) as error:
            log.warning("the log waits for the clouds: %s", error)
            self._signals.pause(self._delay)
            self._delay = min(self._delay * 2, _LAST_RETRY)
            return False
        self._delay = _FIRST_RETRY
        self._waiting_since = None
        self._signals.progressed()
        return True

    def _ship(self, batch: _Batch) -> None:
        self._committer.commit_now()
        with self._fs.lock:
            row = self._fs.db.execute("SELECT max(first), count(*) FROM log_segment").fetchone()
        previous, count = row[0] or 0, row[1]
        data = encode_segment(batch.updates, previous, self._key, os.urandom(NONCE_SIZE))
        name = segment_name(self._device.device_id, batch.first)
        placement = bytes(self._put_object(name, data))
        self._announce(Extent(count + 1, batch.first, batch.last))
        with self._fs.lock:
            self._fs.db.execute(
                "INSERT INTO log_segment (first, last, name, size, placement) VALUES (?, ?, ?, ?, ?)",
                (batch.first, batch.last, name, len(data), placement),
            )
            self._fs.changes.published(batch.last)
        log.debug("shipped updates %d to %d", batch.first, batch.last)

    def _announce(self, extent: Extent) -> None:
        with self._fs.lock:
            state = self._updates.state
            tip = state.tip(self._device.device_id)
            assert tip is not None
            head = Head(state.volume, self._device.device_id, time.time_ns(), state.vector, tip.hash, extent)
        name = head_name(self._device.device_id)
        self._put_everywhere(name, encode_head(head, self._device, self._key, os.urandom(NONCE_SIZE)))
