"""Following the other devices of a volume through its clouds (Depot 4.1, 5.3), sans-IO.

In rounds heads are asked of f+1 clouds, in turns, so that one of them is correct: of all clouds in the
first round, when something is missing, and while clouds disagree or the device has been silent for too long.
With up to five members each head is in every round; with more, heads take turns, so that the requests of a
device do not grow with the number of the others (`Follow._chosen`).

What heads announce is fetched by `sync.chase`, what they tell of devices and clouds is kept in
`sync.beacons`. A head may also lead to segments of another device that were put there for it, our own device
included.

The head of our own device is looked at too, now and then: after our state was restored from a backup, or
copied to a second machine, it names updates of ours that we do not have (`sync.beacons`). Where it has not
been looked at since the start, it is in every round.

A head that is sealed with a key of an epoch unknown here makes its writer's grant be asked for, the object
that gives members the key; the caller opens it and adds the key to `keys`.

The caller carries out the actions and reports each outcome. Times `now` are seconds by a clock that never
goes back, `time_ns` is the time of day. Not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct, field

from sync.beacons import (
    PROPAGATION_SECONDS,
    Beacons,
    EarlierHeads,
    Fault,
    OwnHeads,
    Report,
    Sighting,
    Staleness,
)
from sync.chase import FIRST_RETRY, KEPT_BYTES, Chase, Deliver, FetchSegment, ListSegments
from sync.codec import Buffer
from sync.errors import DecodeError, NewerFormatError, UnknownEpochError
from sync.head import Head, decode_head, head_name
from sync.identity import Members
from sync.seal import SealKeys
from sync.trail import Holds, Piece, newest_segment, relayed_segments, tips_of
from sync.vector import VersionVector

__all__ = [
    "ANNOUNCE_SECONDS",
    "LONGEST_PAUSE",
    "SHORTEST_PAUSE",
    "STALE_SECONDS",
    "Action",
    "FetchGrant",
    "FetchHead",
    "Follow",
    "FollowLimits",
    "Pace",
    "poll_pause",
]

# -- how often to ask whether there is news: often while a device writes, seldom while none does --------
# The pause between two rounds is a fixed share of the time since something happened last, within limits.
# News is then found late by at most that share of the quiet before it, and the number of rounds
# grows only with the logarithm of the quiet.


SHORTEST_PAUSE: Final = 2.0
"""Seconds between rounds during the first twenty seconds after a change, here or elsewhere."""
LONGEST_PAUSE: Final = 300.0
"""Seconds between rounds when nothing has happened for 50 minutes or more."""
_SHARE: Final = 10


def poll_pause(quiet: float, shortest: float = SHORTEST_PAUSE, longest: float = LONGEST_PAUSE) -> float:
    """Seconds until the next round when nothing has happened for `quiet` seconds."""
    return min(max(quiet / _SHARE, shortest), longest)


class Pace:
    """When the next round is due. All times are in seconds by one clock that never goes back. `shortest` is
    the shortest pause."""

    def __init__(self, now: float, shortest: float = SHORTEST_PAUSE) -> None:
        self.longest = LONGEST_PAUSE
        """The longest pause."""
        self._shortest = shortest
        self._active = now
        self._last: float | None = None
        self._hurried = False

    @property
    def due(self) -> float:
        """When the next round should begin: at once in the beginning."""
        if self._last is None:
            return self._active
        quiet = 0.0 if self._hurried else max(0.0, self._last - self._active)
        return self._last + poll_pause(quiet, self._shortest, self.longest)

    def began(self, now: float) -> float:
        """A round begins. Returns how many seconds after the one before."""
        since = 0.0 if self._last is None else now - self._last
        self._last = now
        self._hurried = False
        return since

    def active(self, at: float) -> None:
        """A device wrote something at that time."""
        self._active = max(self._active, at)

    def hurry(self) -> None:
        """Let the next round begin as soon as the shortest pause is over."""
        self._hurried = True


# -- following the other devices of a volume through its clouds (Depot 4.1, 5.3), sans-IO ---------------


ANNOUNCE_SECONDS: Final = 900.0
"""How often a device that has nothing to say overwrites its head all the same (Depot's T_announce).

At the list prices of the dear clouds two devices that do so every ten minutes cost four cents a month. A
volume may ask for a shorter pause (`Follow.announce_every`)."""
STALE_SECONDS: Final = 2 * ANNOUNCE_SECONDS + PROPAGATION_SECONDS
"""A device whose last head is older than that is suspected to have written something that is withheld."""
_GRANT_PAUSE: Final = 60.0
_HEADS: Final = 4


class FetchHead(Struct, frozen=True):
    """Ask this cloud for the head of `device`; then call one of the `head_` methods."""

    device: bytes
    cloud: int
    again: bool
    """Whether it is enough to learn that the head is still the one that this cloud returned last."""


class FetchGrant(Struct, frozen=True):
    """Fetch what `device` gives members of an epoch's key; then call `grant_arrived` if it was of use."""

    device: bytes
    epoch: bytes


Action: TypeAlias = FetchHead | FetchGrant | FetchSegment | ListSegments | Deliver | Report


class FollowLimits(Struct, frozen=True):
    """How long to wait, in seconds, and how much to keep."""

    stale: float = STALE_SECONDS
    """A device that is silent for longer is suspect."""
    shortest_pause: float = SHORTEST_PAUSE
    """Between two rounds."""
    heads: int = _HEADS
    """How many heads come into a round at the shortest pause because they have waited longest; as many more
    do that are likely to be new."""
    first_retry: float = FIRST_RETRY
    """Until a segment that could not be had is tried again for the first time."""
    kept_bytes: int = KEPT_BYTES
    """Of segments that are there before those that come first."""


_USUAL: Final = FollowLimits()


class _Follower(Struct):
    """What is kept of one device."""

    beacons: Beacons
    sealed: bytes | None = None  # the newest head as it arrived
    others: deque[int] = field(default_factory=deque)  # clouds to ask when one fails in this round
    looks: int = 0  # how often its head was asked for
    asked: float = float("-inf")  # when it was asked for last
    told: float = float("-inf")  # when its head told news
    lacked: bool = False  # whether its updates are causes of some that have come
    granted_at: float = 0.0  # when its grant is to be asked for again


class Follow:
    """The devices other than `own`, and `own` itself, as the clouds show them.

    `known` tells what our log holds.
    """

    def __init__(
        self,
        volume: bytes,
        keys: SealKeys,
        own: bytes,
        clouds: Sequence[int],
        f: int,
        known: Holds,
        now: float,
        *,
        limits: FollowLimits = _USUAL,
    ) -> None:
        self._remembered: dict[bytes, Sighting] = {}
        self._volume = volume
        self._keys = keys
        self._own = own
        self._clouds = tuple(clouds)
        self._quorum = f + 1
        self._limits = limits
        self._stale = limits.stale
        self._members = Members(())
        self._followers: dict[bytes, _Follower] = {}
        self._known = known
        self._chase = Chase(known, limits.kept_bytes, limits.first_retry)
        self._own_heads = OwnHeads(known)
        self._pace = Pace(now, limits.shortest_pause)
        self._everybody = True
        self._reports: dict[tuple[bytes, int | None, str], Report] = {}

    # -- what the caller knows -------------------------------------------------------------------

    def remember(self, sightings: Mapping[bytes, Sighting]) -> None:
        """Take up the `sightings` from before the last start, of members that are yet to be set."""
        self._remembered.update(sightings)

    def set_members(self, members: Members, now: float) -> None:
        """The members of the volume may have changed."""
        if members is self._members:
            return
        self._members = members
        for device in set(self._followers).difference(members):
            del self._followers[device]
            self._chase.forget(device)
        for device in members:
            if device not in self._followers:
                self._followers[device] = _Follower(Beacons(now))
                self._recall(device, now)
                self.hurry()

    def _recall(self, device: bytes, now: float) -> None:
        follower, public = self._followers[device], self._members.public_key(device)
        sighting = self._remembered.pop(device, None)
        if sighting is None or public is None:
            return
        head = None
        if sighting.head is not None:
            try:
                head = decode_head(sighting.head, self._volume, public, self._keys)
            except DecodeError:
                head = None  # sealed with a key of before, or damaged: there will be another one
        follower.beacons.remember(head, sighting.seen_ns)
        if head is not None:
            follower.sealed = sighting.head
            self._aim(head, now)

    def set_clouds(self, clouds: Sequence[int], f: int) -> None:
        """Look on these clouds from now on, `f` of which may be faulty."""
        if (tuple(clouds), f + 1) == (self._clouds, self._quorum):
            return
        self._clouds, self._quorum = tuple(clouds), f + 1
        self._own_heads.keep_clouds(self._clouds)
        for follower in self._followers.values():
            follower.beacons.keep_clouds(self._clouds)
            follower.others = deque(one for one in follower.others if one in self._clouds)
        self.hurry()

    def announce_every(self, seconds: float) -> None:
        """Devices announce themselves at least so often, which is no less than the usual pause. They are
        asked as often, and suspect when they miss two announcements, and what one takes to be seen."""
        self._pace.longest = min(LONGEST_PAUSE, seconds)
        propagation = PROPAGATION_SECONDS - LONGEST_PAUSE + self._pace.longest
        self._stale = min(self._limits.stale, 2 * seconds + propagation)

    def active(self, at: float) -> None:
        """A program or a person changed something here at that time: others may answer."""
        self._pace.active(at)

    def hurry(self) -> None:
        """Something is missing: ask all clouds for all heads now."""
        self._everybody = True
        self._pace.hurry()

    def lacking(self, device: bytes, vector: VersionVector) -> None:
        """Causes of updates of `device` are not in our log, which holds `vector`. Ask all clouds for the
        heads of those that wrote them, by the head of `device`; for all heads when it does not tell."""
        head = self.newest(device)
        told = VersionVector() if head is None else head.vector
        authors = [one for one in self._followers if one != device and told[one] > vector[one]]
        if not authors:
            self.hurry()
        for author in authors:
            self._followers[author].lacked = True
        self._pace.hurry()

    def heard(self, device: bytes, time_ns: int) -> None:
        """The device was alive at that time, and said by a direct way that we have all that it wrote."""
        follower = self._followers.get(device)
        if follower is not None:
            follower.beacons.heard(time_ns)

    # -- what to do ------------------------------------------------------------------------------

    def due(self, now: float, time_ns: int) -> list[Action]:
        """What to do now. Do it, report how it went, and call again until there is nothing."""
        actions: list[Action] = []
        if now >= self._pace.due:
            actions += self._begin_round(now, time_ns)
        actions += self._chase.due(now)
        return actions

    def next_due(self) -> float:
        """When to call `due` again if nothing happens before."""
        segments = self._chase.next_due()
        return self._pace.due if segments is None else min(self._pace.due, segments)

    def _begin_round(self, now: float, time_ns: int) -> list[Action]:
        since = self._pace.began(now)
        everybody, self._everybody = self._everybody, False
        chosen = self._followers if everybody else self._chosen(now, since)
        actions: list[Action] = []
        for device, follower in self._followers.items():
            if device not in chosen:
                unread = [cloud for cloud in self._clouds if device == self._own and self._is_unread(cloud)]
                actions += [self._ask(device, follower, cloud) for cloud in unread]
                continue
            turn = follower.looks % len(self._clouds) if self._clouds else 0
            order = self._clouds[turn:] + self._clouds[:turn]
            beacons = follower.beacons
            suspect = device != self._own and beacons.staleness(device, self._stale, now, time_ns).suspect
            everywhere = everybody or suspect or follower.lacked or beacons.disputed
            count = len(order) if everywhere else self._quorum
            follower.looks, follower.asked, follower.lacked = follower.looks + 1, now, False
            follower.others = deque(order[count:])
            actions += [self._ask(device, follower, cloud) for cloud in order[:count]]
        return actions

    def _chosen(self, now: float, since: float) -> set[bytes]:
        """The devices whose heads come into the round at `now`, `since` seconds after the one before.

        Those that have waited longest come first, so many that none waits much longer than the longest pause.
        As many as in their usual share follow of those that are likely to be new: updates depend on them that
        have come, or the time since they last told news says so, as it does for rounds."""
        followers, shortest = self._followers, self._limits.shortest_pause
        others = [one for one in followers if one != self._own]
        others.sort(key=lambda one: followers[one].asked)
        share = int(self._limits.heads * max(1.0, since / shortest))
        waiting = max(share, int(2 * len(others) * since / self._pace.longest) + 1)
        likely = [one for one in others[waiting:] if self._is_likely(followers[one], now)]
        likely.sort(key=lambda one: (followers[one].lacked, followers[one].told), reverse=True)
        chosen = {*others[:waiting], *likely[:share]}
        own = followers.get(self._own)
        if own is not None and (own.lacked or now >= own.asked + LONGEST_PAUSE):
            chosen.add(self._own)
        return chosen

    def _is_likely(self, follower: _Follower, now: float) -> bool:
        quiet = poll_pause(now - follower.told, self._limits.shortest_pause, self._pace.longest)
        return follower.lacked or now >= follower.asked + quiet

    def _is_unread(self, cloud: int) -> bool:
        """Whether our own head on the cloud must not be overwritten yet."""
        return cloud not in self._own_heads.earlier_heads.clouds

    @staticmethod
    def _ask(device: bytes, follower: _Follower, cloud: int) -> FetchHead:
        return FetchHead(device, cloud, follower.beacons.last_of(cloud) is not None)

    # -- heads -----------------------------------------------------------------------------------

    def head_arrived(self, device: bytes, cloud: int, data: Buffer, now: float, time_ns: int) -> list[Action]:
        """A cloud returned this as the head of `device`."""
        follower, public = self._followers.get(device), self._members.public_key(device)
        if follower is None or public is None:
            return []
        try:
            head = decode_head(data, self._volume, public, self._keys)
        except NewerFormatError as error:
            return self._unreadable(device, cloud, Fault.NEWER_FORMAT, f"is not readable here: {error}")
        except UnknownEpochError as error:
            return self._sealed_away(device, cloud, follower, error, now)
        except DecodeError as error:
            return self._unreadable(device, cloud, Fault.UNREADABLE, f"is wrong: {error}")
        if follower.beacons.arrived(head, time_ns) and self._tells_news(head):
            self._pace.active(now)
            follower.told = now
        if follower.beacons.newest is head:
            follower.sealed = bytes(data)
        if device == self._own:
            self._own_heads.seen(cloud, head)
        self._aim(head, now)
        return self._judge(device, cloud, follower, head, now)

    def _tells_news(self, head: Head) -> bool:
        """Whether it states updates that are not here. Most heads only say that their writer has got some."""
        told = [(head.writer, tip) for tip in tips_of(head)]
        told += [(author, relayed.end) for author, relayed in relayed_segments(head)]
        return any(not self._known(*one) for one in told)

    def _sealed_away(
        self, device: bytes, cloud: int, follower: _Follower, error: UnknownEpochError, now: float
    ) -> list[Action]:
        reason = f"cannot be read: {error}; this machine may have been removed from the volume"
        actions = self._unreadable(device, cloud, Fault.UNKNOWN_EPOCH, reason)
        return [*actions, *self._grant_due(device, follower, error.epoch, now)]

    @staticmethod
    def _grant_due(device: bytes, follower: _Follower, epoch: bytes, now: float) -> list[Action]:
        if now < follower.granted_at:
            return []
        follower.granted_at = now + _GRANT_PAUSE
        return [FetchGrant(device, epoch)]

    def grant_arrived(self) -> None:
        """There is a key more in `keys`."""
        for follower in self._followers.values():
            follower.granted_at = 0.0
        self.hurry()

    def head_unchanged(self, device: bytes, cloud: int, now: float) -> list[Action]:
        """The cloud still has the head that it returned last."""
        follower = self._followers.get(device)
        if follower is None:
            return []
        head = follower.beacons.last_of(cloud)
        return [] if head is None else self._judge(device, cloud, follower, head, now)

    def head_missing(self, device: bytes, cloud: int, now: float) -> list[Action]:
        """The cloud says that it has no head of `device`."""
        follower = self._followers.get(device)
        if follower is None:
            return []
        if device == self._own:
            self._own_heads.seen(cloud, None)
        return self._judge(device, cloud, follower, None, now)

    def head_failed(self, device: bytes, cloud: int, reason: str, *, wrong: bool = False) -> list[Action]:
        """The cloud did not answer; or, when `wrong`, with something that cannot be the object."""
        if wrong:
            return self._unreadable(device, cloud, Fault.UNREADABLE, f"is wrong: {reason}")
        return self._ask_another(device)

    def _aim(self, head: Head, now: float) -> None:
        device, tips = head.writer, tips_of(head)
        wanted = newest_segment(head)
        if wanted is not None:
            self._chase.aim(device, wanted, tips)
        elif len(tips) > 1:
            self._chase.list_branches(device, now)
        for author, relayed in relayed_segments(head):
            if self._members.known(author):
                self._chase.aim_relayed(author, relayed, device)

    def _judge(
        self, device: bytes, cloud: int, follower: _Follower, head: Head | None, now: float
    ) -> list[Action]:
        newest = follower.beacons.newest
        fault = follower.beacons.judge(cloud, head, now)
        if fault is None or newest is None:
            return []
        reason = {
            Fault.ROLLED_BACK: "is an earlier one than this cloud returned before",
            Fault.LOST: "is gone, although this cloud returned it before",
        }.get(fault, "is not the newest, which was seen elsewhere or before")
        floor = follower.beacons.best_of(cloud) if fault.lie else newest
        return [self._report(Report(device, cloud, head_name(device), fault, reason, floor))]

    def _unreadable(self, device: bytes, cloud: int, fault: Fault, reason: str) -> list[Action]:
        follower = self._followers.get(device)
        actions = self._ask_another(device)
        if device == self._own and fault is Fault.UNREADABLE:
            self._own_heads.seen(cloud, None)
        if follower is None or follower.beacons.unreadable(cloud, fault) is None:
            return actions
        floor = follower.beacons.best_of(cloud)
        return [*actions, self._report(Report(device, cloud, head_name(device), fault, reason, floor))]

    def _report(self, report: Report) -> Report:
        self._reports[report.device, report.cloud, report.name] = report
        return report

    def _ask_another(self, device: bytes) -> list[Action]:
        follower = self._followers.get(device)
        if follower is None or not follower.others:
            return []
        return [self._ask(device, follower, follower.others.popleft())]

    # -- segments --------------------------------------------------------------------------------

    def segment_arrived(self, device: bytes, piece: Piece) -> None:
        """The segment was fetched and opened."""
        self._chase.segment_arrived(device, piece)

    def segment_failed(
        self, device: bytes, name: str, reason: str, now: float, *, gone: bool, epoch: bytes | None = None
    ) -> list[Action]:
        """No cloud returned the segment; `gone` when so many deny having it that it was withheld or lost.
        `epoch`: it is sealed with the key of that epoch, which is not known here and was kept from this
        device while a member wanted to remove it."""
        sealers = self._chase.may_have_sealed(device, name) if epoch is not None else ()
        report = self._chase.segment_failed(device, name, reason, now, gone=gone)
        actions: list[Action] = [] if report is None else [self._report(report)]
        for sealer in sealers:
            follower = self._followers.get(sealer)
            if epoch is not None and follower is not None:
                actions += self._grant_due(sealer, follower, epoch, now)
        return actions

    def names_arrived(self, device: bytes, names: Iterable[str]) -> None:
        """These are the names of the segments of `device` that clouds list."""
        self._chase.names_arrived(device, names)

    # -- what is known ---------------------------------------------------------------------------

    @property
    def own_looked_for(self) -> bool:
        """Whether all clouds but f have said which head of our own device they have."""
        missing = sum(self._is_unread(cloud) for cloud in self._clouds)
        return missing < self._quorum or (self._own not in self._followers and bool(self._followers))

    @property
    def earlier_heads(self) -> EarlierHeads:
        """What clouds have shown of our own head."""
        return self._own_heads.earlier_heads

    def staleness(self, now: float, time_ns: int) -> list[Staleness]:
        """The last sign of life of every other member, and whether its silence is suspect."""
        return [
            follower.beacons.staleness(device, self._stale, now, time_ns)
            for device, follower in self._followers.items()
            if device != self._own
        ]

    def doubts(self) -> list[Report]:
        """What was reported and still holds."""
        self._reports = {key: report for key, report in self._reports.items() if self._holds(report)}
        return list(self._reports.values())

    def _holds(self, report: Report) -> bool:
        follower = self._followers.get(report.device)
        if follower is None:
            return False
        if report.cloud is None:
            return self._chase.failing(report.device, report.name)
        return follower.beacons.told_of(report.cloud) is report.fault

    def newest(self, device: bytes) -> Head | None:
        """The newest head of `device` that any cloud returned."""
        follower = self._followers.get(device)
        return follower.beacons.newest if follower is not None else None

    @property
    def unread(self) -> frozenset[bytes]:
        """Other devices whose newest head cannot be read here: more clouds than may be faulty hold one
        with an unknown key, or in a newer format."""
        sealed = (Fault.UNKNOWN_EPOCH, Fault.NEWER_FORMAT)
        return frozenset(
            device
            for device, follower in self._followers.items()
            if device != self._own
            and sum(follower.beacons.told_of(cloud) in sealed for cloud in self._clouds) >= self._quorum
        )

    def sightings(self) -> dict[bytes, Sighting]:
        """What to keep of each member for the next start."""
        return {
            device: Sighting(follower.sealed, follower.beacons.last_ns)
            for device, follower in self._followers.items()
        }

    def pending(self, device: bytes) -> bool:
        """Whether updates of `device` are announced that our log does not hold yet."""
        return self._chase.pending(device)
