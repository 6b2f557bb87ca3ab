"""Repair of what this device has put on the clouds of its log: segments and the head."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from dataclasses import dataclass

from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.filesystem.filesystem import FileSystem
from hybrisfs.pipeline.repair import Repair, candidates, restore
from hybrisfs.store.updates import UpdateLog
from sync import NONCE_SIZE, SealKeys, decode_segment, encode_segment, parse_segment_name

__all__ = ["SEGMENT_LIMIT", "SegmentMender"]

SEGMENT_LIMIT = 64 << 20
"""Bytes; more than any segment has."""


@dataclass(frozen=True, slots=True)
class _Segment:
    first: int
    last: int
    name: str
    placement: bytes


class SegmentMender:
    """Repairs own log segments, one at a time per caller. Thread-safe."""

    def __init__(
        self, fs: FileSystem, updates: UpdateLog, volume: bytes, keys: SealKeys, upkeep: Upkeep
    ) -> None:
        self._fs = fs
        self._updates = updates
        self._volume = volume
        self._keys = keys
        self._upkeep = upkeep

    def mend(self, name: str, *, writable: Container[int], move: bool) -> list[Repair]:
        """Verify every copy of a segment and put wrong ones right; what was wrong. See `PackMender.mend`."""
        segment = self._segment(name)
        if segment is None:
            return []
        copies: list[bytes] = []
        wrong: list[tuple[int, Finding]] = []
        for cloud in segment.placement:
            found = self._look_at(cloud, name, copies.append)
            if found is not None:
                wrong.append((cloud, found))
        repairs = []
        for cloud, finding in wrong:
            try:
                data = copies[0] if copies else self._seal_again(segment)
            except ValueError as error:
                repairs.append(Repair(cloud, finding, None, f"no cloud has it, nor has this device: {error}"))
                continue
            outcome = self._restore(cloud, name, data, writable, move)
            if isinstance(outcome, str):
                repairs.append(Repair(cloud, finding, None, outcome))
            else:
                repairs.append(Repair(cloud, finding, outcome))
        return repairs

    def holders(self, name: str) -> bytes:
        """The clouds that are to have a copy."""
        segment = self._segment(name)
        return segment.placement if segment is not None else b""

    def _segment(self, name: str) -> _Segment | None:
        with self._fs.lock:
            row = self._fs.db.execute(
                "SELECT first, last, name, placement FROM log_segment WHERE name = ?", (name,)
            ).fetchone()
        return _Segment(*row) if row else None

    def _look_at(self, cloud: int, name: str, keep: Callable[[bytes], object]) -> Finding | None:
        def verify(data: bytes) -> None:
            decode_segment(data, name, self._volume, self._keys)

        def take(data: bytes) -> None:
            verify(data)
            keep(data)

        return self._upkeep.look_at(cloud, name, SEGMENT_LIMIT, verify, take)

    def _seal_again(self, segment: _Segment) -> bytes:
        """The segment anew from the own log, when no cloud has a good copy."""
        with self._fs.lock:
            updates = self._updates.own_between(segment.first, segment.last)
            row = self._fs.db.execute(
                "SELECT name FROM log_segment WHERE first < ? ORDER BY first DESC LIMIT 1", (segment.first,)
            ).fetchone()
        previous = parse_segment_name(row[0])[1] if row else None
        data = encode_segment(updates, previous, self._keys, os.urandom(NONCE_SIZE))
        decode_segment(data, segment.name, self._volume, self._keys)  # never put anything else in its place
        return data

    def _restore(self, cloud: int, name: str, data: bytes, writable: Container[int], move: bool) -> int | str:
        targets = candidates(self._upkeep, cloud, self.holders(name), len(data), writable=writable, move=move)
        outcome = restore(
            self._upkeep,
            name,
            data,
            targets,
            lambda target: self._look_at(target, name, lambda _: None),
        )
        if isinstance(outcome, int) and outcome != cloud:
            with self._fs.lock:
                placement = self.holders(name).replace(bytes((cloud,)), bytes((outcome,)))
                self._fs.db.execute("UPDATE log_segment SET placement = ? WHERE name = ?", (placement, name))
            self._upkeep.excuse(cloud, name)
        return outcome
