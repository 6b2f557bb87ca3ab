"""Devices that publish their log as the shipper does, clouds in memory that lie, and a follower of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sync.beacons import Report, Sighting
from sync.chase import Deliver, FetchSegment, ListSegments
from sync.errors import DecodeError
from sync.follow import Action, FetchHead, Follow, FollowLimits
from sync.head import Head, LogOnClouds, OwnTip, encode_head, head_name
from sync.identity import DeviceKey, Members
from sync.outcome import Accepted, Duplicate
from sync.seal import OneKey
from sync.segment import SegmentId, encode_segment, segment_name
from sync.trail import Wanted, id_of, open_piece
from sync.update import SignedUpdate, decode_signed
from tests.sync.support import BOX_KEY, MEMBERS, NONCE, NOON, VOLUME, Device

SECOND = 10**9
HOUR = 3600.0


class Publisher(Device):
    """A device that ships what it writes. `clone` it to get one restored from a backup."""

    def __init__(self, key: DeviceKey, members: Members = MEMBERS, box_key: OneKey = BOX_KEY) -> None:
        super().__init__(key, members)
        self.box_key = box_key
        self.unshipped: list[SignedUpdate] = []
        self.previous: SegmentId | None = None
        self.last = 0
        self.segments = 0
        self.serial = 0
        self.salt = 0  # so that what it writes on two branches differs

    @property
    def id(self) -> bytes:
        return self.key.device_id

    def write_more(self, count: int = 1) -> None:
        for _ in range(count):
            value = b"%d/%d" % (self.salt, len(self.order))
            self.unshipped.append(self.write((b"key", value)))

    def ship(self, time_ns: int) -> list[tuple[str, bytes]]:
        """The objects to put, in order: the segment with all that is unshipped, if any, and the head."""
        objects = []
        if self.unshipped:
            name, data = sealed_segment(self.unshipped, self.previous, self.box_key)
            objects.append((name, data))
            self.previous, self.last = id_of(name), self.unshipped[-1].header.clock
            self.segments += 1
            self.unshipped = []
        return [*objects, (head_name(self.id), self.head(time_ns))]

    def head(self, time_ns: int, *, offline: bool = False) -> bytes:
        on_clouds = None
        if self.previous is not None:
            on_clouds = LogOnClouds(self.segments, self.previous, self.last)
        newest = self.state.newest(self.id)
        tips = sorted(
            (tip for tip in self.state.tips() if tip.device == self.id), key=lambda tip: tip != newest
        )
        own = tuple(OwnTip(tip.clock, tip.hash) for tip in tips)
        self.serial = max(self.serial + 1, time_ns)
        head = Head(VOLUME, self.id, self.serial, time_ns, self.state.vector, own, on_clouds, offline)
        return encode_head(head, self.key, self.box_key, NONCE)

    def holds_update(self, update: SignedUpdate) -> bool:
        return update.hash[:16] in self.log.stamps

    def restored(self, salt: int = 1) -> Publisher:
        """The same device, gone on from a backup made now."""
        twin = Publisher(self.key, self.members, self.box_key)
        twin.receive_all(self.order)
        twin.signed, twin.salt = self.signed, salt
        twin.restart()
        twin.unshipped = list(self.unshipped)
        twin.previous, twin.last, twin.segments = self.previous, self.last, self.segments
        return twin


Lie = Callable[["Shelf", str], bytes | None]


@dataclass
class Shelf:
    """One cloud: every version of every object that it was given, and what it tells instead."""

    versions: dict[str, list[bytes]] = field(default_factory=dict)
    lie: Lie | None = None
    lied: set[str] = field(default_factory=set)

    def put(self, name: str, data: bytes) -> None:
        self.versions.setdefault(name, []).append(data)

    def truth(self, name: str) -> bytes | None:
        return self.versions[name][-1] if name in self.versions else None

    def get(self, name: str) -> bytes | None:
        truth = self.truth(name)
        if self.lie is None:
            return truth
        told = self.lie(self, name)
        if told != truth:
            self.lied.add(name)
        return told


def hide(shelf: Shelf, name: str) -> bytes | None:
    """Deny having anything."""
    return None


def roll_back(shelf: Shelf, name: str) -> bytes | None:
    """Return the first version of everything."""
    return shelf.versions[name][0] if name in shelf.versions else None


def corrupt(shelf: Shelf, name: str) -> bytes | None:
    truth = shelf.truth(name)
    return None if truth is None else truth[:-1] + bytes([truth[-1] ^ 1])


def corrupt_segments(shelf: Shelf, name: str) -> bytes | None:
    return corrupt(shelf, name) if name.startswith("log/") else shelf.truth(name)


def mix(shelf: Shelf, name: str) -> bytes | None:
    """Return another object of the same kind."""
    names = sorted(other for other in shelf.versions if other.split("/")[0] == name.split("/")[0])
    return shelf.truth(names[(names.index(name) + 1) % len(names)]) if name in names else None


def withhold(*names: str) -> Lie:
    """Deny having just these."""
    return lambda shelf, name: None if name in names else shelf.truth(name)


class Watcher(Device):
    """A device that follows others through shelves: a `Follow`, what it asks for and where it leads to."""

    def __init__(
        self,
        key: DeviceKey,
        shelves: Sequence[Shelf],
        f: int,
        order: Sequence[SignedUpdate] = (),
        *,
        remembered: Mapping[bytes, Sighting] | None = None,
        now: float = 0.0,
        limits: FollowLimits | None = None,
        members: Members = MEMBERS,
    ) -> None:
        super().__init__(key, members)
        self.receive_all(order)
        self.shelves = shelves
        self.f = f
        self.now = now
        clouds = range(len(shelves))
        limits = limits or FollowLimits()
        self.follow = Follow(VOLUME, BOX_KEY, key.device_id, clouds, f, self.holds, now, limits=limits)
        self.follow.remember(remembered or {})
        self.follow.set_members(members, self.now)
        self.last: dict[tuple[bytes, int], bytes] = {}
        self.waiting: list[SignedUpdate] = []
        self.done: list[Action] = []
        self.longest_wait = 0
        self.receiving = True

    def list_branches(self, device: bytes) -> None:
        """Have segments looked for that no head leads to, as after a head with several tips."""
        self.follow._chase.list_branches(device, self.now)

    @property
    def time_ns(self) -> int:
        return NOON + int(self.now * SECOND)

    def holds(self, device: bytes, start: bytes) -> bool:
        return any(
            update.header.writer == device and update.hash.startswith(start)
            for update, _ in self.log.rows.values()
        )

    def holds_update(self, update: SignedUpdate) -> bool:
        return update.hash[:16] in self.log.stamps

    def restarted(self) -> Watcher:
        """The same device after a restart, with its log and what it keeps of the others."""
        order = list(self.order)
        return Watcher(
            self.key, self.shelves, self.f, order, remembered=self.follow.sightings(), now=self.now
        )

    def reports(self) -> list[Report]:
        return [action for action in self.done if isinstance(action, Report)]

    def fetched(self) -> list[str]:
        return [action.wanted.name for action in self.done if isinstance(action, FetchSegment)]

    def asked(self) -> list[FetchHead]:
        return [action for action in self.done if isinstance(action, FetchHead)]

    def run(self, seconds: float) -> None:
        """Do all that is due within that time."""
        until = self.now + seconds
        while True:
            steps = 0
            while queue := self.follow.due(self.now, self.time_ns):
                while queue:
                    action = queue.pop(0)
                    self.done.append(action)
                    queue += self._carry_out(action)
                    steps += 1
                    assert steps < 10_000, "it never comes to rest"
            due = self.follow.next_due()
            assert due > self.now, "something is due that is not done"
            if due > until:
                break
            self.now = due
        self.now = until

    def _carry_out(self, action: Action) -> list[Action]:
        match action:
            case FetchHead(device, cloud, again):
                return self._fetch_head(device, cloud, again)
            case FetchSegment(device, wanted):
                return self._fetch_segment(device, wanted)
            case ListSegments(device):
                names = {name for shelf in self.shelves for name in shelf.versions}
                made_up = ["log/made-up", f"log/{device.hex()}/{99:016x}-{99:016x}"]
                self.follow.names_arrived(device, [*made_up, *sorted(names)])
            case Deliver():
                if not self._take_in([decode_signed(data) for data in action.updates]):
                    self.follow.lacking(action.device, self.state.vector)
            case Report():
                pass
        return []

    def _fetch_head(self, device: bytes, cloud: int, again: bool) -> list[Action]:
        data = self.shelves[cloud].get(head_name(device))
        if data is None:
            return self.follow.head_missing(device, cloud, self.now)
        if again and self.last[device, cloud] == data:
            return self.follow.head_unchanged(device, cloud, self.now)
        self.last[device, cloud] = data
        return self.follow.head_arrived(device, cloud, data, self.now, self.time_ns)

    def _fetch_segment(self, device: bytes, wanted: Wanted) -> list[Action]:
        missing = 0
        for shelf in self.shelves:
            data = shelf.get(wanted.name)
            if data is None:
                missing += 1
                continue
            try:
                piece = open_piece(data, wanted, VOLUME, BOX_KEY)
            except DecodeError:
                continue
            self.follow.segment_arrived(device, piece)
            return []
        gone = missing >= len(self.shelves) - self.f
        return self.follow.segment_failed(device, wanted.name, "not there", self.now, gone=gone)

    def _take_in(self, updates: Sequence[SignedUpdate]) -> bool:
        """Offer updates to the log, with what waited; False when some of them wait."""
        if not self.receiving:
            return False
        self.waiting += updates
        progress = True
        while progress:
            progress = False
            for update in list(self.waiting):
                outcome = self.receive(update)
                if isinstance(outcome, Accepted | Duplicate):
                    self.waiting.remove(update)
                    progress = True
        self.longest_wait = max(self.longest_wait, len(self.waiting))
        return not any(update in self.waiting for update in updates)


def publish(device: Publisher, shelves: Sequence[Shelf], time: float, count: int = 1) -> None:
    """Write, and put all of it on all clouds, `time` seconds after noon."""
    device.write_more(count)
    for name, data in device.ship(NOON + int(time * SECOND)):
        for shelf in shelves:
            shelf.put(name, data)


def announce(device: Publisher, shelves: Sequence[Shelf], time: float, *, offline: bool = False) -> None:
    for shelf in shelves:
        shelf.put(head_name(device.id), device.head(NOON + int(time * SECOND), offline=offline))


def sealed_segment(
    updates: Sequence[SignedUpdate], previous: SegmentId | None, box_key: OneKey = BOX_KEY
) -> tuple[str, bytes]:
    """The name and the bytes of the segment of these updates."""
    first, last = updates[0].header, updates[-1].header
    data = encode_segment([update.data for update in updates], previous, box_key, NONCE)
    return segment_name(first.writer, SegmentId.of(first.clock, last.hash)), data


def segment_of(first: SignedUpdate, last: SignedUpdate) -> str:
    """The name of the segment from one update to the other."""
    return segment_name(first.header.writer, SegmentId.of(first.header.clock, last.hash))


def shelves(count: int = 3) -> list[Shelf]:
    return [Shelf() for _ in range(count)]


def caught_up(watcher: Watcher, *devices: Publisher) -> bool:
    return all(watcher.state.vector.covers(device.state.vector) for device in devices)
