"""What the clouds of a volume are known to hold besides packs, and how each such object is verified."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from hybrisfs.clouds.segment_repair import SEGMENT_LIMIT
from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.probe import Marker
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.keyring import KeyRing
from hybrisfs.state.pack_chunks import PackPlace, owed_count, owed_packs
from hybrisfs.state.segments import OwnSegment
from hybrisfs.stores.marker import MARKER_NAME, belongs_to_another, marker
from hybrisfs.tree.filesystem import FileSystem
from sync import Head, decode_head, decode_segment, head_name

__all__ = ["ExpectedObjects", "is_only_said"]

_HEAD_LIMIT: Final = 1 << 20
_MARKER_LIMIT: Final = 4096
_ROWS: Final = 256


def is_only_said(fs: FileSystem, upkeep: Upkeep, pack: bytes) -> bool:
    """Whether a member says that there is such a pack, this device has neither put nor read it, and no cloud
    shows any share of it: then no cloud is to blame."""
    with fs.state.transaction() as tx:
        found = tx.packs.find(pack)
    if found is None or found.proven:
        return False
    return not any(upkeep.find_share(pack, index) is not None for index in range(found.n))


class ExpectedObjects:
    """Tells what should be where, and looks whether it is. Thread-safe."""

    def __init__(self, fs: FileSystem, upkeep: Upkeep, ring: KeyRing, volume: bytes) -> None:
        self._fs = fs
        self._upkeep = upkeep
        self._ring = ring
        self._volume = volume
        self.marker = Marker(MARKER_NAME, marker(volume))
        self.head = head_name(ring.keys.device.device_id)

    def packs(self) -> Iterator[PackPlace]:
        """All packs that the clouds should hold, also those that come during the iteration."""
        last = 0
        while True:
            with self._fs.state.transaction() as tx:
                found = list(owed_packs(tx, last, _ROWS))
            if not found:
                return
            yield from found
            last = found[-1].number

    def segments(self) -> Iterator[OwnSegment]:
        """All own log segments on the clouds."""
        last = 0
        while True:
            with self._fs.state.transaction() as tx:
                found = tx.segments.after(last, _ROWS)
            if not found:
                return
            yield from found
            last = found[-1].first

    def counts(self) -> tuple[int, int]:
        """How many packs and segments there are."""
        with self._fs.state.transaction() as tx:
            return owed_count(tx), tx.segments.count()

    def holder(self, pack: bytes, index: int) -> int | None:
        """The cloud that is to have a share, None when no such share is known."""
        with self._fs.state.transaction() as tx:
            placement = tx.packs.placement(pack)
        return placement[index] if index < len(placement) else None

    def look_at_marker(self, cloud: int) -> tuple[Finding | None, bool]:
        """What is wrong with the marker, and whether the place belongs to another volume by its marker."""
        foreign: list[bool] = []

        def take(data: bytes) -> None:
            foreign[:] = [belongs_to_another(data, self._volume)]
            self.marker.verify(data)

        found = self._upkeep.look_at(cloud, MARKER_NAME, _MARKER_LIMIT, self.marker.verify, take)
        return found, any(foreign)

    def look_at_segment(self, cloud: int, name: str) -> Finding | None:
        """What is wrong with the copy of a segment on a cloud."""
        found = self._upkeep.look_at(cloud, name, SEGMENT_LIMIT, self.segment_check(name))
        if found is not None and not self.is_recorded(name):
            self._upkeep.excuse(cloud, name)
            return None
        return found

    def is_recorded(self, name: str) -> bool:
        """Whether a segment is still to be on the clouds: a checkpoint may have taken its place."""
        with self._fs.state.transaction() as tx:
            return tx.segments.find(name) is not None

    def look_at_head(self, cloud: int, shipped: int) -> Finding | None:
        """What is wrong with the own head on a cloud; it is stale when it does not lead to clock *shipped*.

        A slow cloud may have an old head for a while, so that this is no lie.
        """
        heads: list[Head] = []

        found = self._upkeep.look_at(
            cloud, self.head, _HEAD_LIMIT, self.head_check, lambda data: heads.append(self.head_check(data))
        )
        if found is not None:
            return replace(found, expected=None)  # an earlier one would be no remedy
        on_clouds = heads[-1].on_clouds
        if on_clouds is None or on_clouds.last < shipped:
            return Finding("stale", f"{self.head} is an earlier one than the clouds have acknowledged")
        return None

    def segment_check(self, name: str) -> Callable[[bytes], object]:
        """What raises DecodeError unless it gets the own segment of this name."""
        return lambda data: decode_segment(data, name, self._volume, self._ring.segments)

    def head_check(self, data: bytes) -> Head:
        """Decode an own head, of whatever time. Raises DecodeError."""
        return decode_head(data, self._volume, self._ring.keys.device.public, self._ring.segments)

    def shipped(self) -> int | None:
        """The clock up to which the own head must lead, None before there is one."""
        with self._fs.state.transaction() as tx:
            newest = tx.segments.newest()
        return None if newest is None else newest.last
