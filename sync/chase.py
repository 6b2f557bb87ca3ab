"""Getting the log segments that heads announce, on every branch of every device, causes first.

Each head aims at a segment of its device, and at those that its device relays for others; a walk
(`sync.trail`) leads from there to what is known. An update's causes have lower clocks. So nothing is
delivered while a walk is on its way back, and then always the segment with the lowest clock of all walks:
what waits for causes of other devices stays within a few segments.

What cannot be had is tried again later, each time after twice as long, and keeps nothing else waiting:
neither other devices nor other branches of the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from msgspec import Struct, field

from sync.beacons import Fault, Report
from sync.segment import SegmentId
from sync.trail import Budget, ChainWalk, Holds, Piece, Wanted, id_of, segments_of

__all__ = ["FIRST_RETRY", "KEPT_BYTES", "Chase", "ChaseAction", "Deliver", "FetchSegment", "ListSegments"]

KEPT_BYTES: Final = 64 << 20
_MAX_TARGETS: Final = 64
FIRST_RETRY: Final = 1.0
"""Seconds until what could not be had is tried again for the first time."""
_LAST_RETRY: Final = 3600.0


class FetchSegment(Struct, frozen=True):
    """Get a segment of `device` from any cloud and open it with `open_piece`; then call `segment_arrived`
    or `segment_failed`."""

    device: bytes
    wanted: Wanted


class ListSegments(Struct, frozen=True):
    """Find out which segments of `device` there are on all clouds, then call `names_arrived`."""

    device: bytes


class Deliver(Struct, frozen=True):
    """Offer these updates of `device` to the log, in order. Each may be there already, or come too early."""

    device: bytes
    name: str
    updates: tuple[bytes, ...]


ChaseAction: TypeAlias = FetchSegment | ListSegments | Deliver


class _Target(Struct):
    wanted: Wanted
    by: bytes  # the device whose head aims at it
    tips: tuple[bytes, ...] = ()  # what the head knows to exist; the first may not be in any segment yet
    listed: bool = False  # from a listing, which any cloud may have made up
    walk: ChainWalk | None = None
    flying: str | None = None  # the segment that is being fetched
    end: bytes | None = None  # the last update in the segment
    failed: str | None = None  # the segment that could not be fetched
    failures: int = 0  # how often, in a row
    walks: int = 0  # that were finished
    retry_at: float = 0.0


class _LogFetch(Struct):
    """The fetch of one device's log."""

    targets: dict[str, _Target] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # listed and not yet looked at, the highest clock last
    list_at: float | None = None
    listings: int = 0
    listing: bool = False


class Chase:
    """The segments under way. Times are seconds by a clock that never goes back."""

    def __init__(self, known: Holds, kept_bytes: int, first_retry: float) -> None:
        self._known = known
        self._first_retry = first_retry
        self._budget = Budget(kept_bytes)
        self._fetches: dict[bytes, _LogFetch] = {}

    def aim(self, device: bytes, wanted: Wanted, tips: tuple[bytes, ...]) -> None:
        """A head of `device` states that its log ends in `wanted` and that the updates `tips` exist."""
        fetch = self._fetches.setdefault(device, _LogFetch())
        target = fetch.targets.get(wanted.name)
        if target is None or target.by != device or target.wanted != wanted:
            _add(fetch, _Target(wanted, device, tips))
        else:
            target.tips = tips

    def aim_relayed(self, device: bytes, wanted: Wanted, by: bytes) -> None:
        """A head of another device, `by`, states that it has put the segment there for `device`."""
        fetch = self._fetches.setdefault(device, _LogFetch())
        if wanted.name not in fetch.targets and not self._known(device, wanted.end):
            _add(fetch, _Target(wanted, by))

    def list_branches(self, device: bytes, now: float) -> None:
        """Look for segments of `device` that no head leads to, unless that was done not long ago."""
        fetch = self._fetches.setdefault(device, _LogFetch())
        if fetch.list_at is None:
            fetch.list_at = now + (self._pause(fetch.listings + 5) if fetch.listings else 0.0)

    def forget(self, device: bytes) -> None:
        """The device is no longer a member."""
        for target in self._fetches.pop(device, _LogFetch()).targets.values():
            _close(target)
        for fetch in self._fetches.values():
            for name in [name for name, target in fetch.targets.items() if target.by == device]:
                _close(fetch.targets.pop(name))

    def due(self, now: float) -> list[ChaseAction]:
        """What to do now; call again after it was done, until nothing is due."""
        actions: list[ChaseAction] = []
        for device, fetch in self._fetches.items():
            self._review(device, fetch, now)
            if not fetch.listing and fetch.list_at is not None and fetch.list_at <= now:
                fetch.listing = True
                actions.append(ListSegments(device))
        active = [(device, target) for device, target in self._active(now) if target.walk is not None]
        returning = [(device, target) for device, target in active if not _turned(target)]
        if returning:
            return actions + [action for one in returning for action in self._fetch(*one)]
        if active:
            device, target = min(active, key=lambda one: _clock(one[1]))
            actions += self._fetch(device, target) or self._deliver(device, target, now)
        return actions

    def next_due(self) -> float | None:
        """When to call `due` again if nothing arrives before, None when nothing is left to do."""
        times = [
            target.retry_at
            for fetch in self._fetches.values()
            for target in fetch.targets.values()
            if target.flying is None
        ]
        times += [q.list_at for q in self._fetches.values() if q.list_at is not None and not q.listing]
        return min(times, default=None)

    def segment_arrived(self, device: bytes, piece: Piece) -> None:
        """The segment was fetched."""
        target = self._waiting(device, piece.name)
        if target is None or target.walk is None:
            return
        target.flying = None
        target.failed, target.failures = None, 0
        # It may have reached our log on another way by now.
        target.walk.skip_known()
        wanted = target.walk.wanted
        if wanted is not None and wanted.name == piece.name:
            target.walk.arrived(piece)

    def segment_failed(
        self, device: bytes, name: str, reason: str, now: float, *, gone: bool
    ) -> Report | None:
        """No cloud has the segment for us: `gone` when they say so, and not just do not answer."""
        target = self._waiting(device, name)
        if target is None:
            return None
        target.flying = None
        target.failed, first = name, not target.failures
        target.retry_at = now + self._pause(target.failures)
        target.failures += 1
        if target.listed:
            _close(target)
            del self._fetches[device].targets[target.wanted.name]
            return None  # the cloud that listed it may have made it up
        if not (gone and first):
            return None
        return Report(device, None, name, Fault.OMITTED, f"is announced, but no cloud has it: {reason}")

    def may_have_sealed(self, device: bytes, name: str) -> tuple[bytes, ...]:
        """The likely sealers of the segment that is being fetched: the device whose head led to it, then the
        author."""
        target = self._waiting(device, name)
        return (device,) if target is None or target.by == device else (target.by, device)

    def names_arrived(self, device: bytes, names: Iterable[str]) -> None:
        """The segments of `device` that clouds claim to have; none when they did not answer."""
        fetch = self._fetches.get(device)
        if fetch is not None:
            fetch.listing = False
            fetch.list_at = None
            fetch.listings = min(fetch.listings + 1, 32)
            fetch.names = segments_of(device, names)

    def failing(self, device: bytes, name: str) -> bool:
        """Whether the segment of that name could still not be had."""
        fetch = self._fetches.get(device)
        targets = fetch.targets.values() if fetch is not None else ()
        return any(target.failed == name for target in targets)

    def pending(self, device: bytes) -> bool:
        """Whether updates of `device` are announced that have not been delivered."""
        fetch = self._fetches.get(device)
        return fetch is not None and bool(fetch.targets)

    def _review(self, device: bytes, fetch: _LogFetch, now: float) -> None:
        """Drop the targets that have been reached, and take up a listed one when no other is due."""
        searching = bool(fetch.names) or any(target.listed for target in fetch.targets.values())
        for name, target in list(fetch.targets.items()):
            if target.flying is not None:
                continue
            reached = self._reached(device, target)
            # A tip beyond the newest segment may just not have been shipped; on another branch it has been.
            lacking = not all(self._known(device, tip) for tip in target.tips[1:])
            if lacking and not searching and (reached or target.end is not None):
                self.list_branches(device, now)
            if reached:
                _close(target)
                del fetch.targets[name]
        while fetch.names and all(target.retry_at > now for target in fetch.targets.values()):
            name = fetch.names.pop()
            if name not in fetch.targets and not self._known(device, id_of(name).prefix):
                fetch.targets[name] = _Target(Wanted(name), device, listed=True)

    def _reached(self, device: bytes, target: _Target) -> bool:
        end = target.end or target.wanted.end
        return self._known(device, end) or (bool(target.tips) and self._known(device, target.tips[0]))

    def _active(self, now: float) -> Iterator[tuple[bytes, _Target]]:
        """The target to walk to now of each device: of those that are not postponed that with the highest
        clock, from which the others may be passed on the way."""
        for device, fetch in self._fetches.items():
            ready = [t for t in fetch.targets.values() if t.flying is not None or t.retry_at <= now]
            if not ready:
                continue
            target = max(ready, key=_precedence)
            if target.walk is None:
                target.walk = ChainWalk(device, target.wanted, self._known, self._budget)
            target.walk.skip_known()
            if target.walk.over:
                self._finish(device, target, now)
                continue
            yield device, target

    def _fetch(self, device: bytes, target: _Target) -> list[ChaseAction]:
        assert target.walk is not None
        wanted = target.walk.wanted
        if target.flying is not None or wanted is None:
            return []
        target.flying = wanted.name
        return [FetchSegment(device, wanted)]

    def _deliver(self, device: bytes, target: _Target, now: float) -> list[ChaseAction]:
        assert target.walk is not None
        if target.flying is not None or target.walk.over:
            return []
        piece = target.walk.take()
        if target.walk.over:
            self._finish(device, target, now)
        return [Deliver(device, piece.name, piece.updates)]

    def _finish(self, device: bytes, target: _Target, now: float) -> None:
        """All segments were delivered. When the log does not take them, they are brought once more later."""
        assert target.walk is not None
        target.end = target.walk.end
        target.walk.close()
        target.walk = None
        target.retry_at = now + self._pause(target.walks)
        target.walks += 1
        if target.listed:
            self._fetches[device].targets.pop(target.wanted.name, None)

    def _pause(self, times: int) -> float:
        """Seconds to wait after so many failures before this one."""
        return float(min(self._first_retry * 2.0 ** min(times, 32), _LAST_RETRY))

    def _waiting(self, device: bytes, name: str) -> _Target | None:
        """The target whose walk waits for this segment."""
        fetch = self._fetches.get(device)
        targets = fetch.targets.values() if fetch is not None else ()
        return next((target for target in targets if target.flying == name), None)


def _precedence(target: _Target) -> tuple[bool, bool, SegmentId]:
    return target.flying is not None, target.walk is not None, id_of(target.wanted.name)


def _add(fetch: _LogFetch, target: _Target) -> None:
    """Take up a target. Each device has room for its own, so that none can crowd out another's."""
    replaced = fetch.targets.pop(target.wanted.name, None)
    if replaced is not None:
        _close(replaced)
    theirs = [name for name, one in fetch.targets.items() if one.by == target.by]
    if len(theirs) >= _MAX_TARGETS:
        _close(fetch.targets.pop(min(theirs, key=id_of)))
    fetch.targets[target.wanted.name] = target


def _close(target: _Target) -> None:
    if target.walk is not None:
        target.walk.close()
        target.walk = None


def _turned(target: _Target) -> bool:
    return target.walk is not None and target.walk.turned


def _clock(target: _Target) -> int:
    return target.walk.clock if target.walk is not None and not target.walk.over else 0
