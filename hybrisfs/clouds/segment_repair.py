"""Repair of what this device has put on the clouds of its log: segments and the head."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import replace
from functools import partial

from hybrisfs.dispersal.errors import Finding
from hybrisfs.dispersal.upkeep import Repair, Upkeep, candidates, restore
from hybrisfs.state.segments import OwnSegment
from hybrisfs.tree.filesystem import FileSystem
from sync import NONCE_SIZE, SealKeys, decode_segment, encode_segment, parse_segment_name
from sync.segment import if_followed

__all__ = ["SEGMENT_LIMIT", "SegmentMender"]

SEGMENT_LIMIT = 64 << 20
"""Bytes; more than any segment has."""


class SegmentMender:
    """Repairs own log segments, one at a time per caller. Thread-safe."""

    def __init__(self, fs: FileSystem, volume: bytes, keys: SealKeys, upkeep: Upkeep) -> None:
        self._fs = fs
        self._random_bytes = fs.environment.random_bytes
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
        if self._segment(name) is None:  # a checkpoint has taken its place
            for cloud, _ in wrong:
                self._upkeep.excuse(cloud, name)
            return []
        for cloud, finding in wrong:
            if finding.kind != "unreadable" and not copies:
                self._upkeep.recall(cloud, name, SEGMENT_LIMIT, partial(self._take, name, copies.append))
        repairs = []
        for cloud, finding in wrong:
            data = self._bytes(segment, copies)
            outcome = data if isinstance(data, str) else self._restore(cloud, name, data, writable, move)
            if isinstance(outcome, str):
                repairs.append(Repair(cloud, finding, None, outcome))
            else:
                repairs.append(Repair(cloud, finding, outcome))
        return repairs

    def move(self, name: str, away: int, *, ask: bool, writable: Container[int]) -> str | None:
        """Move the copy of a segment from *away* to another cloud. See `PackMender.move`."""
        segment = self._segment(name)
        if segment is None or away not in segment.placement:
            return None
        copies: list[bytes] = []
        for cloud in segment.placement:
            if not copies and (ask or cloud != away):
                self._look_at(cloud, name, copies.append)
        data = self._bytes(segment, copies)
        outcome = data if isinstance(data, str) else self._restore(away, name, data, writable, move=True)
        return f"{name}: {outcome}" if isinstance(outcome, str) else None

    def renumber(self, name: str, before: int, now: int) -> None:
        """Record a copy, if it is there, under the cloud number *now* in place of *before*, the number when
        it was put."""
        if self._look_at(now, name, lambda _: None) is not None:
            self._upkeep.excuse(now, name)
            return
        self._replace(name, before, now)

    def copy(
        self, name: str, source: int, *, holders: set[int], copies: int, writable: Container[int]
    ) -> str | None:
        """Copy a segment of another device from *source* until so many clouds have it; *holders* are those
        known to have it. Returns why that failed, None when it is done."""
        if len(holders) >= copies:
            return None
        found: list[bytes] = []
        finding = self._look_at(source, name, found.append)
        if finding is not None:
            self._upkeep.excuse(source, name)  # no record here says that it has it
            return finding.what if finding.kind == "unreadable" else None
        return self._spread(name, found[0], holders, copies, writable)

    def put_back(
        self,
        name: str,
        listing: Collection[int],
        clouds: Collection[int],
        *,
        copies: int,
        writable: Container[int],
    ) -> tuple[bytes | None, list[Repair]]:
        """Bring a segment of another device to so many clouds. Those of *listing* claim to have it, others of
        *clouds* may keep it as an older version. Returns its bytes, if any cloud has them, and what was
        wrong."""
        found, right, wrong, _ = self._look_for(name, listing, clouds)
        if not found:
            return None, []
        repairs = []
        for cloud, finding in wrong.items():
            outcome = self._put(name, found[0], cloud, right, writable, move=False)
            right |= {outcome} if isinstance(outcome, int) else set()
            failure = outcome if isinstance(outcome, str) else ""
            repairs.append(Repair(cloud, finding, None if failure else cloud, failure))
        if len(right) < copies:
            lacking, finding = _lacking(name, right, clouds, copies)
            trouble = self._spread(name, found[0], right, copies, writable) or ""
            repairs.append(Repair(lacking, finding, None if trouble else max(right), trouble))
        return found[0], repairs

    def look_for(
        self, name: str, listing: Collection[int], clouds: Collection[int], *, copies: int
    ) -> tuple[bytes | None, list[tuple[int, Finding | None]]]:
        """Like `put_back`, but nothing is changed: the clouds that were looked at, or should have it, and
        what is wrong there."""
        found, right, wrong, older = self._look_for(name, listing, clouds)
        if not found:
            return None, []
        told: list[tuple[int, Finding | None]] = [*((cloud, None) for cloud in sorted(right)), *wrong.items()]
        if len(right) < copies and not wrong:
            lacking, finding = _lacking(name, right, clouds, copies)
            told.append((lacking, replace(finding, older=older)))
        return found[0], told

    def _look_for(
        self, name: str, listing: Collection[int], clouds: Collection[int]
    ) -> tuple[list[bytes], set[int], dict[int, Finding], bool]:
        """The bytes of a segment of another device, where it is right, where it is wrong, and whether the
        bytes are those of an older version."""
        found: list[bytes] = []
        right, wrong = set[int](), dict[int, Finding]()
        for cloud in sorted(listing):
            finding = self._look_at(cloud, name, found.append)
            if finding is None:
                right.add(cloud)
                continue
            wrong[cloud] = finding
            self._upkeep.excuse(cloud, name)  # no record here says that it has it
        older = False
        for cloud in sorted(clouds):
            if not found:
                older = self._upkeep.recall(
                    cloud, name, SEGMENT_LIMIT, partial(self._take, name, found.append)
                )
        return found, right, wrong, older

    def spread(self, name: str, copies: int, *, writable: Container[int]) -> str | None:
        """Bring an own segment to so many clouds. Returns why that failed, None when it is done."""
        segment = self._segment(name)
        if segment is None or len(segment.placement) >= copies:
            return None
        found: list[bytes] = []
        for cloud in segment.placement:
            if not found:
                self._look_at(cloud, name, found.append)
        holders = set(segment.placement)
        data = self._bytes(segment, found)
        if isinstance(data, str):
            return f"{name}: {data}"
        trouble = self._spread(name, data, holders, copies, writable)
        with self._fs.state.transaction() as tx:
            placement = self.holders(name)
            placement += bytes(sorted(holders.difference(segment.placement, placement)))
            tx.segments.move(name, placement)
        return trouble

    def short_of(self, copies: int) -> list[str]:
        """The own segments that fewer clouds have."""
        with self._fs.state.transaction() as tx:
            return [one.name for one in tx.segments.with_fewer_copies(copies)]

    def _spread(
        self, name: str, data: bytes, holders: set[int], copies: int, writable: Container[int]
    ) -> str | None:
        """Put copies onto further clouds, which join *holders*."""
        while len(holders) < copies:
            nobody = -1
            outcome = self._put(name, data, nobody, holders, writable, move=True)
            if isinstance(outcome, str):
                return f"{name}: {outcome}"
            holders.add(outcome)
        return None

    def holders(self, name: str) -> bytes:
        """The clouds that are to have a copy."""
        segment = self._segment(name)
        return segment.placement if segment is not None else b""

    def _segment(self, name: str) -> OwnSegment | None:
        with self._fs.state.transaction() as tx:
            return tx.segments.find(name)

    def _look_at(self, cloud: int, name: str, keep: Callable[[bytes], object]) -> Finding | None:
        verify = partial(self._take, name, lambda _: None)
        return self._upkeep.look_at(cloud, name, SEGMENT_LIMIT, verify, partial(self._take, name, keep))

    def _take(self, name: str, keep: Callable[[bytes], object], data: bytes) -> None:
        decode_segment(data, name, self._volume, self._keys)
        keep(data)

    def _bytes(self, segment: OwnSegment, copies: Sequence[bytes]) -> bytes | str:
        """An own segment: one of these copies, or made again from the own log; or why there is none."""
        try:
            return copies[0] if copies else self._seal_again(segment)
        except ValueError as error:
            return f"no cloud has it, nor has this machine: {error}"

    def _seal_again(self, segment: OwnSegment) -> bytes:
        """Raises ValueError."""
        with self._fs.state.transaction() as tx:
            updates = tx.updates.own_between(segment.first, segment.last)
            before = tx.segments.before(segment)
        if not updates:
            raise ValueError("its updates are not known here")
        previous = if_followed(parse_segment_name(before.name)[1] if before else None, updates[0])
        data = encode_segment(updates, previous, self._keys, self._random_bytes(NONCE_SIZE))
        decode_segment(data, segment.name, self._volume, self._keys)  # never put anything else in its place
        return data

    def _restore(self, cloud: int, name: str, data: bytes, writable: Container[int], move: bool) -> int | str:
        outcome = self._put(name, data, cloud, self.holders(name), writable, move=move)
        if isinstance(outcome, int) and outcome != cloud:
            self._replace(name, cloud, outcome)
            self._upkeep.excuse(cloud, name)
        return outcome

    def _put(
        self,
        name: str,
        data: bytes,
        cloud: int,
        holders: Collection[int],
        writable: Container[int],
        *,
        move: bool,
    ) -> int | str:
        """Where a copy is now: on *cloud*, or with *move* on another one that is none of the *holders*; or
        why it is nowhere."""
        targets = candidates(self._upkeep, cloud, holders, len(data), writable=writable, move=move)
        return restore(
            self._upkeep, name, data, targets, lambda target: self._look_at(target, name, lambda _: None)
        )

    def _replace(self, name: str, before: int, now: int) -> None:
        """Note that a copy is on another cloud."""
        with self._fs.state.transaction() as tx:
            placement = self.holders(name).replace(bytes((before,)), bytes((now,)))
            tx.segments.move(name, placement)


def _lacking(name: str, right: Collection[int], clouds: Collection[int], copies: int) -> tuple[int, Finding]:
    """A cloud that could have a segment which too few have, and what is wrong."""
    what = f"{name} is on {len(right)} clouds, not on {copies}"
    return min(set(clouds).difference(right), default=0), Finding("missing", what)
