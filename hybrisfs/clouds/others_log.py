"""What clouds hold of the logs of other devices, for repair: their heads, and the segments these lead to.

Each device looks after its own log (`clouds.segment_repair`). One that is away cannot; and what a third
device has yet to read must not be lost with everything else that was deleted on the clouds. So a repair puts
back the newest head of each other device that is known here or kept by a cloud, and the segments that it
leads to, where clouds keep older versions of them (`dispersal.reader`).

An older head never takes the place of a newer one: what is there counts as wrong only when it cannot be the
device's, or precedes the newest head that this device has seen. And every device judges what clouds show by
what it has seen itself: that a head is there again makes it no fresher.

Nobody here knows which clouds another device reaches: it may lack the secrets of some, or be slow. So a cloud
is not to blame for a head that it lacks, or for an earlier one. And an earlier one is left alone while its
device was seen just now and another cloud has the newest: the device may be replacing it this moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Container, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from hybrisfs.clouds.segment_repair import SegmentMender
from hybrisfs.dispersal.errors import Finding, UnreadableHereError
from hybrisfs.dispersal.upkeep import Repair, Upkeep
from hybrisfs.parts import Clouds
from hybrisfs.state.stored_log import end_of_segment
from hybrisfs.tree.filesystem import FileSystem
from sync import (
    DecodeError,
    Head,
    Members,
    NewerFormatError,
    SealKeys,
    UnknownEpochError,
    decode_head,
    decode_segment,
    device_id_of,
    head_name,
    segment_name,
)
from sync.beacons import PROPAGATION_SECONDS, Sighting, precedes

__all__ = ["OthersLog"]

_HEAD_LIMIT: Final = 1 << 20
_MOST_HEADS: Final = 2000  # versions of a head: of these not the first is wanted but the last right one
_MOST_NAMES: Final = 1_000_000
_MOST_SEGMENTS: Final = 100_000  # of one device that are followed
_PROPAGATION_NS: Final = int(PROPAGATION_SECONDS * 10**9)
_NEVER_SEEN: Final = Sighting(None, None)


class OthersLog:
    """One caller at a time, without the volume's lock."""

    def __init__(
        self,
        fs: FileSystem,
        own: bytes,
        volume: bytes,
        keys: SealKeys,
        upkeep: Upkeep,
        segments: SegmentMender,
        clouds: Clouds,
    ) -> None:
        self._fs = fs
        self._own = own
        self._volume = volume
        self._keys = keys
        self._upkeep = upkeep
        self._segments = segments
        self._clouds = clouds

    def mends(
        self, clouds: Collection[int], writable: Container[int]
    ) -> Iterator[Callable[[], list[Repair]]]:
        """What is to be run to put right the log of each other device."""
        for device, sighting in self._seen():
            yield partial(self._mend, device, sighting, clouds, writable)

    def _seen(self) -> Iterator[tuple[bytes, Sighting]]:
        """Each other device, with its last sighting."""
        with self._fs.state.transaction() as tx:
            sightings = tx.sightings.load()
        members = self._followed()
        for device in sorted({*members.public_keys, *map(device_id_of, members.former)}):
            if device != self._own:
                yield device, sightings.get(device, _NEVER_SEEN)

    def looks(self, clouds: Collection[int]) -> list[Callable[[], list[tuple[int, Finding | None]]]]:
        """The looks at the log of each other device. Each yields the cloud of an object, and what is wrong
        with it. Objects that no cloud has or keeps are left out: whether they should be there is unknown."""
        return [partial(self._look, device, sighting, clouds) for device, sighting in self._seen()]

    def _look(
        self, device: bytes, sighting: Sighting, clouds: Collection[int]
    ) -> list[tuple[int, Finding | None]]:
        heads, findings = self._look_for_heads(device, sighting, clouds)
        if heads.newest is None:
            return []
        told = [] if heads.newer else list(findings.items())

        def look(name: str, listing: set[int], listed: set[int], copies: int) -> bytes | None:
            data, found = self._segments.look_for(name, listing, listed, copies=copies)
            told.extend(found)
            return data

        self._follow(device, heads.newest[0], clouds, look)
        return told

    def _mend(
        self, device: bytes, sighting: Sighting, clouds: Collection[int], writable: Container[int]
    ) -> list[Repair]:
        heads, findings = self._look_for_heads(device, sighting, clouds)
        name = head_name(device)
        if heads.newest is None:
            return []
        repairs = self._mend_segments(device, heads.newest[0], clouds, writable)
        for cloud, finding in findings.items() if not heads.newer else ():
            if finding is not None:
                repairs.append(self._put_head(cloud, name, finding, heads, writable))
                self._upkeep.excuse(cloud, name)
        return repairs

    def _look_for_heads(
        self, device: bytes, sighting: Sighting, clouds: Collection[int]
    ) -> tuple[_Heads, dict[int, Finding | None]]:
        """The heads of a device, and what is wrong with that on each cloud that tells."""
        heads = _Heads(sighting.head, partial(self._decoded, device))
        name = head_name(device)
        findings: dict[int, Finding | None] = {}
        for cloud in clouds:
            found = self._look_at(cloud, name, heads)
            if found is None or found.kind != "unreadable":
                findings[cloud] = found
        age_ns = self._fs.environment.time_ns() - (sighting.seen_ns or 0)
        replacing = age_ns < _PROPAGATION_NS and None in findings.values()
        findings = {
            cloud: None if replacing and found is not None and found.kind == "stale" else found
            for cloud, found in findings.items()
        }
        for cloud, found in findings.items():
            if found is not None:
                older = self._upkeep.recall(cloud, name, _HEAD_LIMIT, heads.consider, _MOST_HEADS)
                findings[cloud] = replace(found, older=older, expected=None)
                self._upkeep.excuse(cloud, name)  # no record here says that it has it
        return heads, findings

    def _look_at(self, cloud: int, name: str, heads: _Heads) -> Finding | None:
        """What is wrong with a head on a cloud."""
        late = list[str]()

        def take(data: bytes) -> None:
            late[:] = [reason] if (reason := heads.take(data)) else []

        found = self._upkeep.look_at(cloud, name, _HEAD_LIMIT, heads.check, take, acknowledged=False)
        return Finding("stale", f"{name} is {late[0]}") if found is None and late else found

    def _put_head(
        self, cloud: int, name: str, finding: Finding, heads: _Heads, writable: Container[int]
    ) -> Repair:
        assert heads.newest is not None
        if cloud not in writable:
            return Repair(cloud, finding, None, "no cloud can take it now")
        # Not over one that the device itself has put there since.
        put = self._upkeep.put_if_absent if finding.kind == "missing" else self._upkeep.put
        refused = put(cloud, name, heads.newest[1])
        if refused is not None:
            return Repair(cloud, finding, None, refused)
        after = self._look_at(cloud, name, heads)
        return Repair(cloud, finding, cloud if after is None else None, after.what if after else "")

    def _followed(self) -> Members:
        """The devices whose logs are read, including those whose removal may not be known everywhere yet."""
        with self._fs.state.transaction() as tx:
            return tx.members.writers()

    def _decoded(self, device: bytes, data: bytes) -> Head:
        """Raises DecodeError, and UnreadableHereError when nobody here can tell."""
        members = self._followed()
        public = members.public_key(device) or members.former_key(device)
        if public is None:
            raise UnreadableHereError("nobody here knows the machine")
        try:
            return decode_head(data, self._volume, public, self._keys)
        except (NewerFormatError, UnknownEpochError) as error:
            raise UnreadableHereError(str(error)) from error

    # -- segments --------------------------------------------------------------------------------

    def _mend_segments(
        self, device: bytes, head: Head, clouds: Collection[int], writable: Container[int]
    ) -> list[Repair]:
        repairs = list[Repair]()

        def mend(name: str, listing: set[int], listed: set[int], copies: int) -> bytes | None:
            data, mended = self._segments.put_back(name, listing, listed, copies=copies, writable=writable)
            repairs.extend(mended)
            return data

        self._follow(device, head, clouds, mend)
        return repairs

    def _follow(
        self,
        device: bytes,
        head: Head,
        clouds: Collection[int],
        visit: Callable[[str, set[int], set[int], int], bytes | None],
    ) -> None:
        """Visit the segments that the head leads to, down to what a checkpoint has replaced or no cloud has.

        *visit* gets a name, the clouds that list it, all that tell what they have, and how many are to have
        it; it returns the segment's bytes.
        """
        prefix = f"log/{device.hex()}/"
        listed = {cloud: self._upkeep.names(cloud, prefix, _MOST_NAMES) for cloud in clouds}
        silent = [cloud for cloud, names in listed.items() if names is None]  # they may have a copy
        holders = {cloud: frozenset(names) for cloud, names in listed.items() if names is not None}
        copies = self._clouds.copies() - len(silent)
        name = segment_name(device, head.on_clouds.newest) if head.on_clouds is not None else None
        for _ in range(_MOST_SEGMENTS):
            if name is None or self._is_bare(name):
                return
            listing = {cloud for cloud, names in holders.items() if name in names}
            data = visit(name, listing, set(holders), copies)
            if data is None:
                return
            segment = decode_segment(data, name, self._volume, self._keys)
            name = None if segment.previous is None else segment_name(device, segment.previous)

    def _is_bare(self, name: str) -> bool:
        with self._fs.state.transaction() as tx:
            end = end_of_segment(tx, name)
        return end is not None and end.bare


class _Heads:
    """The newest of the heads of one device that are offered, with its bytes."""

    def __init__(self, kept: bytes | None, decode: Callable[[bytes], Head]) -> None:
        self._decode = decode
        self._floor: Head | None = None
        self.newest: tuple[Head, bytes] | None = None
        self.newer = False  # whether there is one that nobody here can read yet: others may, and it is later
        if kept is not None:
            with contextlib.suppress(DecodeError):
                self.consider(kept)
        if self.newest is not None:
            self._floor = self.newest[0]

    def consider(self, data: bytes) -> None:
        """Take note of a head. Raises DecodeError."""
        try:
            head = self._decode(data)
        except UnreadableHereError:
            self.newer = True
            return
        if self.newest is None or precedes(self.newest[0], head):
            self.newest = head, data

    def check(self, data: bytes) -> None:
        """Raise DecodeError unless it is a head of the device. One that this device cannot read passes."""
        with contextlib.suppress(UnreadableHereError):
            self._decode(data)

    def take(self, data: bytes) -> str:
        """Take note of what a cloud shows now. Return what is wrong with it if it is an earlier head than the
        one that this device has seen, else nothing. Raises DecodeError."""
        self.consider(data)
        with contextlib.suppress(UnreadableHereError):
            if self._floor is not None and precedes(self._decode(data), self._floor):
                return "an earlier one than the machine has written elsewhere"
        return ""
