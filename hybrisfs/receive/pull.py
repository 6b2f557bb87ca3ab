"""The puller: follows the other devices through the clouds and hands on what they have written.

One thread asks for heads and segments as `sync.follow` says and gives the updates in them, in order, to
`receive`. After a restart it looks at all heads again, and fetches what the log does not hold; it remembers
the newest head of each device, so that no cloud can return an earlier one unnoticed. What a cloud cannot have
returned in good faith it is accused of, so that `status` names it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeVar

from msgspec import Struct, field

from hybrisfs.dispersal.errors import CloudsUnavailable, ObjectMissing, UnreadableHereError
from hybrisfs.dispersal.probe import Changed, Failed, Listing, Look, Missing, Polled, Unchanged
from hybrisfs.stages import Pause, Signals
from hybrisfs.state.state import State
from sync import (
    MAX_SEGMENT,
    Head,
    Members,
    NewerFormatError,
    SealKeys,
    UnknownEpochError,
    VersionVector,
    head_name,
)
from sync.beacons import EarlierHeads, Report, Sighting, check_head
from sync.chase import Deliver, FetchSegment, ListSegments
from sync.follow import Action, FetchGrant, FetchHead, Follow, FollowLimits
from sync.trail import Piece, open_piece

__all__ = ["CloudReader", "DeviceSighting", "FollowedLog", "GrantSource", "Memory", "PullLimits", "Puller"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_HEAD_BYTES: Final = 1 << 16
_SEGMENT_BYTES: Final = MAX_SEGMENT + (2 << 20)  # sealed and, at worst, not compressible
_LIST_SECONDS: Final = 30.0
_MAX_NAMES: Final = 200_000
_REMEMBER_NS: Final = 60 * 10**9  # how much later a sign of life must be to be worth remembering
_LONGEST_WAIT: Final = 2.0  # so that changes made here quicken the pace


class CloudReader(Protocol):
    """What the puller uses of `dispersal.Engine`."""

    @property
    def followed(self) -> tuple[int, ...]: ...

    @property
    def f(self) -> int: ...

    def poll_objects(self, looks: Sequence[Look], *, limit: int, timeout: float) -> dict[Look, Polled]: ...

    def get_object(self, name: str, limit: int, verify: Callable[[bytes], T]) -> T: ...

    def list_objects(self, prefix: str, *, most: int, timeout: float) -> Listing: ...

    def accuse(
        self, cloud: int, name: str, reason: str, limit: int, recheck: Callable[[bytes], object]
    ) -> None: ...


class FollowedLog(Protocol):
    """The log that is filled from the clouds."""

    def followed(self) -> Members:
        """The devices whose updates are looked for."""

    def holds(self, device: bytes, start: bytes) -> bool:
        """Whether the log has the update of the device whose hash begins so."""

    def receive_pulled(self, updates: Sequence[bytes]) -> bool:
        """Take in consecutive updates of one device; False when the causes of some are missing. Raises
        OSError."""

    def vector(self) -> VersionVector:
        """Of the log."""

    def announce_seconds(self) -> float:
        """How often the devices announce themselves at least."""


class GrantSource(Protocol):
    """Brings the keys of others to this device."""

    def fetch(self, writer: bytes, epoch: bytes) -> bool:
        """Get the key of an epoch that a device uses. Returns whether there are new keys."""

    @property
    def is_shut_out(self) -> bool:
        """Whether members keep their keys from this device."""


class Memory(Protocol):
    """Keeps what was seen of the devices until the next start."""

    def load(self) -> Mapping[bytes, Sighting]: ...

    def store(self, sightings: Mapping[bytes, Sighting]) -> None: ...


class Sightings:
    """Keeps them in the volume's database."""

    def __init__(self, state: State) -> None:
        self._state = state

    def load(self) -> Mapping[bytes, Sighting]:
        with self._state.transaction() as tx:
            return tx.sightings.load()

    def store(self, sightings: Mapping[bytes, Sighting]) -> None:
        with self._state.transaction() as tx:
            tx.sightings.store(sightings)


class PullLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    follow: FollowLimits = field(default_factory=FollowLimits)
    head_seconds: float = 15.0
    """Within which all clouds that are asked for heads should answer."""


class DeviceSighting(Struct, frozen=True):
    """What the clouds hold of another device.

    `last_seen_ns` is the last time that it was certainly alive, None when it never was. `vector` is what it
    had accepted then, `lag` how many steps of logical time that is behind this device. A `suspect` has been
    silent for longer than it promised: changes of it may be missing here.
    """

    device_id: bytes
    last_seen_ns: int | None
    vector: VersionVector
    lag: int
    suspect: bool


class Puller:
    """A stage that follows all members, this device, *own*, included; the other methods may be called from
    any thread. The stage alone calls *log*, *memory* and *grants*.
    """

    def __init__(
        self,
        engine: CloudReader,
        volume: bytes,
        segment_keys: SealKeys,
        own: bytes,
        signals: Signals,
        log: FollowedLog,
        memory: Memory,
        grants: GrantSource,
    ) -> None:
        self._engine = engine
        self._volume = volume
        self._keys = segment_keys
        self._own = own
        self._signals = signals
        self._monotonic = signals.environment.monotonic
        self._time_ns = signals.environment.time_ns
        self._limits = signals.environment.limits.of(PullLimits)
        self._log = log
        self._memory = memory
        self._grants = grants
        self._looked = threading.Event()
        self._rounds = 0  # that have ended
        self._requests: SimpleQueue[Callable[[Follow], None]] = SimpleQueue()
        self._sightings: tuple[DeviceSighting, ...] = ()
        self._doubts: tuple[str, ...] = ()
        self._heads: Mapping[bytes, Head] = {}
        self._unread = frozenset[bytes]()
        self._earlier_heads = EarlierHeads()
        self._follow: Follow | None = None
        self._remembered: dict[bytes, Sighting] = {}
        self._tags: dict[tuple[bytes, int], str] = {}

    # -- from any thread -------------------------------------------------------------------------

    def devices(self) -> list[DeviceSighting]:
        """What is known of the other members."""
        return list(self._sightings)

    def doubts(self) -> list[str]:
        """The faults of the log on the clouds, in sentences."""
        return list(self._doubts)

    def heads(self) -> Mapping[bytes, Head]:
        """The newest head of each member, this device included, that was seen on a cloud."""
        return self._heads

    def unread(self) -> frozenset[bytes]:
        """The other members that may have said something later, which cannot be read here: see
        `Follow.unread`. This device may have been removed."""
        return self._unread

    def earlier_heads(self) -> EarlierHeads:
        """What clouds have shown of our own head since the start."""
        return self._earlier_heads

    def look_now(self) -> None:
        """Ask all clouds for all heads, something is missing."""
        self._ask(Follow.hurry)

    def look_through(self, timeout: float) -> bool:
        """The same, and wait until it is done; False when *timeout* seconds are over."""
        # The round that is under way may have begun before, so that the next one counts.
        deadline, begun = self._monotonic() + timeout, self._rounds
        self.look_now()
        if self._signals.wait_until(lambda: self._rounds > begun, deadline):
            self.look_now()
        return self._signals.wait_until(lambda: self._rounds > begun + 1, deadline)

    def heard(self, device: bytes, time_ns: int) -> None:
        """The device said over a link, at that time of day, that we have all its updates."""
        self._ask(lambda follow: follow.heard(device, time_ns))

    def wait_until_looked(self, timeout: float) -> bool:
        """Wait until all clouds but f were searched since the start, and their updates received. Our own head
        should not be overwritten before: it may name updates that this device wrote before its state was
        restored from a backup.
        """
        return self._looked.wait(timeout)

    def _ask(self, request: Callable[[Follow], None]) -> None:
        self._requests.put(request)
        self._signals.look_around()

    # -- the stage ------------------------------------------------------------------------------

    def step(self) -> Pause:
        """Do all that is due. After a failure the devices are followed from the beginning."""
        follow, self._follow = self._follow or self._begin(), None
        if self._signals.wait_until_free():
            _Pull(self, follow, self._tags).run()
            self._publish(follow)
            self._rounds += 1
            self._signals.progressed()
            self._remember(follow)
            if follow.own_looked_for and not self._signals.stopping:
                self._looked.set()
        self._follow = follow
        return Pause(min(max(0.0, follow.next_due() - self._monotonic()), _LONGEST_WAIT))

    def _begin(self) -> Follow:
        follow = Follow(
            self._volume,
            self._keys,
            self._own,
            self._engine.followed,
            self._engine.f,
            self._log.holds,
            self._monotonic(),
            limits=self._limits.follow,
        )
        follow.remember(self._memory.load())
        follow.set_members(self._log.followed(), self._monotonic())
        self._remembered = follow.sightings()
        self._tags.clear()
        self._publish(follow)
        return follow

    def _remember(self, follow: Follow) -> None:
        news = {
            device: sighting
            for device, sighting in follow.sightings().items()
            if _is_news(sighting, self._remembered.get(device))
        }
        if not news:
            return
        try:
            self._memory.store(news)
        except OSError as error:
            log.warning("what was seen of the other machines is not kept: %s", error)
            return
        self._remembered.update(news)

    def _publish(self, follow: Follow) -> None:
        newest = {device: follow.newest(device) for device in follow.sightings()}
        self._heads = {device: head for device, head in newest.items() if head is not None}
        self._unread = follow.unread
        before, self._earlier_heads = self._earlier_heads, follow.earlier_heads
        if not self._earlier_heads.clouds <= before.clouds:
            self._signals.announce()
        ours = self._log.vector().highest
        sightings = []
        for one in follow.staleness(self._monotonic(), self._time_ns()):
            head = follow.newest(one.device)
            vector = head.vector if head is not None else VersionVector()
            lag = max(0, ours - vector.highest)
            sightings.append(DeviceSighting(one.device, one.last_ns, vector, lag, one.suspect))
        self._sightings = tuple(sightings)
        self._doubts = tuple(_sentence(report) for report in follow.doubts())


class _Pull:
    """Everything that is due now, done one after the other."""

    def __init__(self, puller: Puller, follow: Follow, tags: dict[tuple[bytes, int], str]) -> None:
        self._puller = puller
        self._monotonic = puller._monotonic
        self._time_ns = puller._time_ns
        self._engine = puller._engine
        self._follow = follow
        self._tags = tags
        self._members = Members(())
        self._queue: deque[Action] = deque()

    def run(self) -> None:
        puller, follow = self._puller, self._follow
        while not puller._signals.stopping:
            follow.set_clouds(self._engine.followed, self._engine.f)
            self._members = puller._log.followed()
            follow.set_members(self._members, self._monotonic())
            follow.announce_every(puller._log.announce_seconds())
            follow.active(puller._signals.last_change)
            self._take_requests()
            self._queue.extend(follow.due(self._monotonic(), self._time_ns()))
            if not self._queue:
                return
            # Put off, not given up: `Follow` counts on an answer to all that it has asked for.
            while self._queue and puller._signals.wait_until_free():
                self._carry_out(self._queue.popleft())

    def _take_requests(self) -> None:
        while True:
            try:
                request = self._puller._requests.get_nowait()
            except Empty:
                return
            request(self._follow)

    def _carry_out(self, action: Action) -> None:
        match action:
            case FetchHead():
                self._look(action)
            case FetchGrant(device, epoch):
                if self._puller._grants.fetch(device, epoch):
                    self._follow.grant_arrived()
            case FetchSegment():
                self._fetch(action)
            case ListSegments(device):
                prefix = f"log/{device.hex()}/"
                listing = self._engine.list_objects(prefix, most=_MAX_NAMES, timeout=_LIST_SECONDS)
                self._follow.names_arrived(device, listing.names)
            case Deliver():
                self._deliver(action)
            case Report():
                self._report(action)

    def _look(self, first: FetchHead) -> None:
        """Look at all heads that are asked for, at once."""
        asked = [first, *(action for action in self._queue if isinstance(action, FetchHead))]
        self._queue = deque(action for action in self._queue if not isinstance(action, FetchHead))
        looks = {
            Look(
                head_name(one.device),
                one.cloud,
                self._tags.get((one.device, one.cloud)) if one.again else None,
            ): one
            for one in asked
        }
        seconds = self._puller._limits.head_seconds
        answers = self._engine.poll_objects(list(looks), limit=_HEAD_BYTES, timeout=seconds)
        now, time_ns = self._monotonic(), self._time_ns()
        for look, answer in answers.items():
            device, cloud = looks[look].device, look.cloud
            match answer:
                case Changed(data, tag):
                    self._tags[device, cloud] = tag
                    self._queue += self._follow.head_arrived(device, cloud, data, now, time_ns)
                case Unchanged():
                    self._queue += self._follow.head_unchanged(device, cloud, now)
                case Missing():
                    self._queue += self._follow.head_missing(device, cloud, now)
                case Failed(reason, wrong):
                    self._queue += self._follow.head_failed(device, cloud, reason, wrong=wrong)

    def _fetch(self, action: FetchSegment) -> None:
        device, name = action.device, action.wanted.name
        sealed: list[bytes] = []  # the epochs whose keys are not known here
        try:
            piece = self._engine.get_object(
                name, _SEGMENT_BYTES, lambda data: self._open(data, action, sealed)
            )
        except CloudsUnavailable as error:
            gone, epoch = isinstance(error, ObjectMissing), next(iter(sealed), None)
            now = self._monotonic()
            self._queue += self._follow.segment_failed(device, name, str(error), now, gone=gone, epoch=epoch)
        else:
            self._follow.segment_arrived(device, piece)

    def _open(self, data: bytes, action: FetchSegment, sealed: list[bytes]) -> Piece:
        try:
            return open_piece(data, action.wanted, self._puller._volume, self._puller._keys)
        except (NewerFormatError, UnknownEpochError) as error:
            if isinstance(error, UnknownEpochError):
                sealed.append(error.epoch)
            raise UnreadableHereError(str(error)) from error  # no lie, when all clouds say so

    def _deliver(self, action: Deliver) -> None:
        try:
            complete = self._puller._log.receive_pulled(action.updates)
        except OSError as error:
            # The log lacks the updates, so that they are fetched again later.
            log.warning("updates of machine %s were not received: %s", action.device.hex(), error)
            return
        if not complete:
            self._follow.lacking(action.device, self._puller._log.vector())

    def _report(self, report: Report) -> None:
        log.warning("%s", _sentence(report))
        public = self._members.public_key(report.device)
        if report.cloud is None or not report.fault.lie or public is None:
            return
        volume, keys, floor = self._puller._volume, self._puller._keys, report.floor
        self._engine.accuse(
            report.cloud,
            report.name,
            report.reason,
            _HEAD_BYTES,
            lambda data: check_head(data, volume, public, keys, floor),
        )


def _is_news(sighting: Sighting, remembered: Sighting | None) -> bool:
    if remembered is None:
        return True
    later = (sighting.seen_ns or 0) - (remembered.seen_ns or 0)
    return sighting.head != remembered.head or later >= _REMEMBER_NS


def _sentence(report: Report) -> str:
    where = "" if report.cloud is None else f" on cloud {report.cloud}"
    return f"{report.name}{where} {report.reason}"
