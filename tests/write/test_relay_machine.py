"""Relaying, by its machine alone: in whatever order devices write, ship, relay, hear of each other and crash,
what is on the clouds stays in reach of whoever follows the heads, and all of it comes there in the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hybrisfs.write.relay import PRESENT_SECONDS, Forget, Point, Relay, RelayMachine, Seen, Steps, TakeOver
from sync import Head, SegmentId, parse_segment_name, segment_name
from sync import Known as Tip
from sync.beacons import EarlierHeads
from sync.head import LogOnClouds, OwnTip
from sync.segment import if_followed
from sync.update import SignedUpdate
from tests.sync.support import KEYS, VOLUME, Device

AUTHOR: Final = 0
"""Stays away at last, and lies in some lives."""
MOST: Final = 2  # updates in a relayed segment
devices = st.integers(0, len(KEYS) - 1)


class Cloud:
    """Segments by name, each with the one before; and the newest heads."""

    def __init__(self) -> None:
        self.segments: dict[str, tuple[list[SignedUpdate], SegmentId | None]] = {}
        self.heads: dict[bytes, Head] = {}

    def put(self, author: bytes, updates: list[SignedUpdate], previous: SegmentId | None) -> str:
        name = segment_name(author, SegmentId.of(updates[0].header.clock, updates[-1].hash))
        self.segments[name] = updates, if_followed(previous, updates[0].data)
        return name

    def in_reach(self) -> dict[bytes, SignedUpdate]:
        """The updates to which heads lead, by hash."""
        ends = [(head.writer, head.on_clouds.newest) for head in self.heads.values() if head.on_clouds]
        ends += [(one.author, one.segment) for head in self.heads.values() for one in head.relayed]
        found: dict[bytes, SignedUpdate] = {}
        for author, end in ends:
            segment: SegmentId | None = end
            while segment is not None and (there := self.segments.get(segment_name(author, segment))):
                updates, segment = there
                found |= {update.hash: update for update in updates}
        return found


class Peer(Device):
    """A device: the log that `RelayMachine` reads, what it knows of segments, and its machine."""

    def __init__(self, number: int, cloud: Cloud) -> None:
        super().__init__(KEYS[number])
        self.cloud = cloud
        self.own: list[str] = []  # its segments, in order
        self.put: dict[bytes, list[str]] = {}  # those that it has relayed, by author
        self.noted: list[str] = []  # all that it ever has
        self.serial = 0
        self.start()

    def start(self) -> None:
        self.machine = RelayMachine()

    # -- as `RelayRows` ----------------------------------------------------------------------------

    @property
    def updates(self) -> Peer:
        return self

    @property
    def segments(self) -> Peer:
        return self

    # -- as `RelayLog` -----------------------------------------------------------------------------

    @property
    def device(self) -> bytes:
        return self.key.device_id

    def is_suspended(self) -> bool:
        return False

    def own_tip(self) -> Tip | None:
        return self.state.newest(self.device)

    def path_through(self, branch: bytes, clock: int) -> list[tuple[bytes, int]]:
        return self.state.branches.path(branch, clock)

    def update_at(self, branch: bytes, clock: int) -> bytes | None:
        row = self.log.rows.get((branch, clock))
        return row[0].data if row else None

    def next_whole(self, path: Steps, clock: int) -> int | None:
        return next((one.header.clock for one in self.after(path, clock)), None)

    def after(self, path: Steps, above: int) -> Iterator[SignedUpdate]:
        for branch, end in reversed(path):
            on_it = sorted(clock for one, clock in self.log.rows if one == branch and above < clock <= end)
            yield from (self.log.rows[branch, clock][0] for clock in on_it)

    # -- as `RelayedSegments` ------------------------------------------------------------------------

    def end(self, name: str) -> tuple[bytes, int] | None:
        prefix = parse_segment_name(name)[1].prefix
        stamps = (stamp for identity, stamp in self.log.stamps.items() if identity.startswith(prefix))
        return next(stamps, None)

    def relayed(self, author: bytes) -> list[str]:
        return list(self.put.get(author, ()))

    def newest_name(self, through: int) -> str | None:
        return self.own[-1] if self.own else None

    # -- what it does ------------------------------------------------------------------------------

    def seen(self) -> Seen:
        return Seen(self.cloud.heads, {}, EarlierHeads())

    def ship(self, *, lies: bool = False) -> list[SignedUpdate]:
        """Ship what it has written since; when it *lies*, only say so."""
        tip = self.own_tip()
        if tip is None:
            return []
        before = parse_segment_name(self.own[-1])[1] if self.own else None
        ended = self.end(self.own[-1]) if self.own else None
        updates = list(self.after(self.path(tip), ended[1] if ended else 0))
        if updates:
            name = self.cloud.put(self.device, updates, before)
            if lies:
                del self.cloud.segments[name]
            self.own.append(name)
        return updates

    def announce(self, time_ns: int) -> None:
        self.serial += 1
        tip = self.own_tip()
        own = (OwnTip(tip.clock, tip.hash),) if tip else ()
        on_clouds = None
        if self.own and tip:
            newest = parse_segment_name(self.own[-1])[1]
            end = self.end(self.own[-1])
            assert end is not None
            on_clouds = LogOnClouds(len(self.own), newest, end[1])
        listed = self.machine.listed(self, self.seen())
        vector = self.state.vector
        head = Head(VOLUME, self.device, self.serial, time_ns, vector, own, on_clouds, relayed=listed)
        self.cloud.heads[self.device] = head

    def relay(self, now: float, time_ns: int, *, crash: str) -> None:
        """What the relayer does until nothing is due; a *crash* may come before the first segment is noted,
        or before the head."""
        for _ in range(20):
            segment = self._next(now, time_ns)
            if segment is None:
                break
            author, name = segment
            if crash == "before it is noted":
                self.start()
                return
            if name not in self.put.setdefault(author, []):
                self.put[author].append(name)
            self.noted.append(name)
        if crash == "before the head":
            self.start()
        else:
            self.announce(time_ns)

    def _next(self, now: float, time_ns: int) -> tuple[bytes, str] | None:
        for action in self.machine.due(self, self.seen(), (), now, time_ns):
            match action:
                case Forget(name):
                    self.put[parse_segment_name(name)[0]].remove(name)
                case TakeOver():
                    raise AssertionError("there are no files")
                case Relay(path, before, _, _):
                    rows = list(self.after(path.steps, before.clock if before else 0))[:MOST]
                    self._check(rows, before)
                    return path.author, self.cloud.put(path.author, rows, before.segment if before else None)
        return None

    def _check(self, rows: list[SignedUpdate], before: Point | None) -> None:
        """A segment goes on where one ends, or is the first."""
        assert rows, "there is something to relay"
        if before is not None:
            assert rows[0].header.prev == self.log.rows[before.branch, before.clock][0].hash
        else:
            assert rows[0].header.prev_clock == 0

    def pull(self) -> None:
        """Take in all to which heads lead, causes first."""
        for update in sorted(self.cloud.in_reach().values(), key=lambda one: one.header.clock):
            self.receive(update)


class Relaying(RuleBasedStateMachine):
    """Four devices that are linked now and then, and one cloud."""

    @initialize(lies=st.booleans(), ahead=st.booleans())
    def begin(self, lies: bool, ahead: bool) -> None:
        """*ahead*: when the first device stays away, others have not got all that its head leads to."""
        self.lies = lies
        self.ahead = ahead
        self.now = 0.0
        self.cloud = Cloud()
        self.peers = [Peer(number, self.cloud) for number in range(len(KEYS))]
        self.reached: set[bytes] = set()

    @property
    def time_ns(self) -> int:
        return int(self.now * 1e9) + 10**18

    @rule(number=devices)
    def write(self, number: int) -> None:
        self.peers[number].write()

    @rule(sender=devices, receiver=devices)
    def link(self, sender: int, receiver: int) -> None:
        for update in list(self.peers[sender].order):
            self.peers[receiver].receive(update)

    @rule(number=devices, lies=st.booleans(), crash=st.booleans())
    def ship(self, number: int, lies: bool, crash: bool) -> None:
        peer = self.peers[number]
        if crash:
            peer.start()
        peer.ship(lies=lies and self.lies and number == AUTHOR)
        peer.announce(self.time_ns)

    @rule(number=devices, crash=st.sampled_from(["no", "no", "no", "before it is noted", "before the head"]))
    def relay(self, number: int, crash: str) -> None:
        self.peers[number].relay(self.now, self.time_ns, crash=crash)

    @rule(number=devices)
    def pull(self, number: int) -> None:
        self.peers[number].pull()

    @rule(seconds=st.sampled_from([1.0, 30.0, 200.0, 1000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nothing_gets_out_of_reach(self) -> None:
        if not hasattr(self, "peers") or self.lies:
            return
        reached = set(self.cloud.in_reach())
        assert reached >= self.reached
        self.reached = reached

    @invariant()
    def heads_lead_to_whole_chains(self) -> None:
        if not hasattr(self, "peers") or self.lies:
            return
        for peer in self.peers:
            assert len(set(peer.noted)) == len(peer.noted), "once is enough"
        for updates, previous in self.cloud.segments.values():
            author = updates[0].header.writer
            assert previous is None or segment_name(author, previous) in self.cloud.segments
            assert previous is not None or updates[0].header.prev_clock == 0

    def teardown(self) -> None:
        """The first device tells another one of something and stays away. All that others have of it comes to
        all of them by the cloud alone."""
        if not hasattr(self, "peers"):
            return
        self.write(AUTHOR)
        self.link(AUTHOR, AUTHOR + 1)
        if self.lies:
            if self.ahead:
                self.write(AUTHOR)
            self.ship(AUTHOR, lies=True, crash=False)
        others = [peer for peer in self.peers if peer is not self.peers[AUTHOR]]
        for _ in range(16):
            for peer in others:
                peer.ship()
                peer.announce(self.time_ns)
                peer.relay(self.now, self.time_ns, crash="no")
                peer.pull()
            self.now += PRESENT_SECONDS / 2
        known = [{update.hash for update in peer.order} for peer in others]
        assert all(one == known[0] for one in known)
        self.nothing_gets_out_of_reach()
        self.heads_lead_to_whole_chains()


TestRelaying = Relaying.TestCase
