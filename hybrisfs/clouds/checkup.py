"""Looking after the clouds when nothing else happens: is each there, and does it still have what it took?

A check-up reads the marker and samples of two shares from every cloud: one chosen at random, and the newest,
which is the first to be missing when a cloud went back to an old copy of itself. It is run now and then. When
a person asks for the status, the marker is read and it is asked whether the newest share is there: some bytes
of each, as people and programs may ask often. Whether the newest share is there is also asked every five
minutes after something new was put, and later after a tenth of the time since, as rounds between devices are
(`sync.follow.poll_pause`). Clouds that are not well are looked at each minute. Half-hourly the headers of
further shares are looked at, each as old again as the one before, so that a run of them that was lost is
found, whatever was put since; and `Patrol` goes over all of them. The pauses, and the bytes of a sample, keep
an idle volume cheap: a few requests a minute are dollars a year. What was put in the last minutes is looked
at by `RecentPuts`.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.clouds.maintenance import Maintenance
from hybrisfs.clouds.objects import ExpectedObjects, is_only_said
from hybrisfs.clouds.patrol import Patrol
from hybrisfs.dispersal.engine import Engine, Marker
from hybrisfs.dispersal.share import parse_share_name, sealed_table_size, share_name
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.environment import Environment
from hybrisfs.stages import Pause, Signals, Wake
from hybrisfs.state.packs import PackPlace, count_of_pack, read_pack_near
from hybrisfs.topic import Topic
from hybrisfs.tree.filesystem import FileSystem
from sync.follow import poll_pause

__all__ = ["Checkup", "CheckupLimits", "RecentPuts", "RecentPutsLimits"]

log = logging.getLogger(__name__)

_NEWEST_INTERVAL: Final = 300.0  # between looks at the newest shares, at least
_CHECKUP_INTERVAL: Final = 1800.0  # between looks at all of them
_MARKER_LIMIT: Final = 4096
_SAMPLE_BYTES: Final = 16 << 10
"""That a sample reads of a fragment on average: 24 MB a month and cloud, for a fifth of a cent at Amazon."""


class CheckupLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    interval: float = 60.0
    """Seconds between looks at the clouds that are not well."""
    confirm_interval: float = 15.0
    """Seconds before what was missing at a first look is looked at again."""
    patience: float = 1.5
    """Seconds that a caller of `status` waits for a look at the clouds."""


class Checkup:
    """A stage that looks now and then, and at once when asked."""

    def __init__(
        self,
        fs: FileSystem,
        engine: Engine,
        marker: Marker,
        signals: Signals,
        recent: RecentPuts,
        maintenance: Maintenance,
        patrol: Patrol,
    ) -> None:
        self.minute = Topic[[]]()
        """Called about once a minute, for occasional work."""
        self._maintenance = maintenance
        self._recent = recent
        self._patrol = patrol
        self._earlier = [_newest_pack(fs)] * 2  # the newest packs at the last rounds, the earliest first
        self._unseen: frozenset[int] = frozenset()  # clouds of packs that none of them shows
        self._fs = fs
        self._monotonic = fs.environment.monotonic
        self._limits = fs.environment.limits.of(CheckupLimits)
        self._chance = fs.environment.chance()
        self._engine = engine
        self._marker = marker
        self._signals = signals
        self._lock = threading.Lock()
        self._wanted = self._thoroughly = False
        now = self._monotonic()
        self._newest_since = self._earlier[0], now  # the newest pack, and when it was first seen
        self._due = self._newest_due = self._minute_due = now + self._limits.interval
        self._looked = 0.0  # when the last look began that has ended

    @property
    def first(self) -> Pause:
        """How long it is until the first step, unless a person asks for one."""
        return Pause(self._limits.interval)

    def step(self) -> Pause:
        """Look at the clouds as far as that is due, or was asked for."""
        with self._lock:
            asked, self._wanted = self._wanted, False
            thoroughly, self._thoroughly = self._thoroughly, False
        begun = self._monotonic()
        thoroughly |= begun >= self._due
        if not self._signals.transfers_paused:
            self._engine.probe(self._marker)
            self._recent.look()
            if thoroughly:
                self._look(self._look_at)
                self._look(self._look_back)
                self._look(self._look_over)
                self._due = self._monotonic() + _CHECKUP_INTERVAL
                self._newest_due = self._monotonic() + self._newest_pause()
            elif begun >= self._newest_due:
                self._look(self._glance_at_newest)
                self._newest_due = self._monotonic() + self._newest_pause()
            if asked and not thoroughly:
                self._look(self._glance_at)
            self._keep_what_is_lost()
        if asked or thoroughly:
            self._looked = begun
            self._signals.progressed()
        if self._monotonic() >= self._minute_due:  # however often people ask
            self._note_newest()
            self.minute()
            self._minute_due = self._monotonic() + self._limits.interval
        left = max(0.0, self._minute_due - self._monotonic())
        return Pause(min(left, self._limits.confirm_interval) if self._recent.doubted else left)

    def refresh(self, timeout: float, *, thoroughly: bool = False) -> None:
        """Start a look at the present state of the clouds; wait at most *timeout* seconds. With *thoroughly*,
        samples of shares are read, too, as every half hour."""
        asked = self._monotonic()
        with self._lock:
            self._wanted = True
            self._thoroughly |= thoroughly
        self._signals.wake(Wake.CHECKUP)
        self._signals.wait_until(lambda: self._looked >= asked, asked + timeout)

    def _note_newest(self) -> None:
        newest = _newest_pack(self._fs)
        self._earlier = [*self._earlier[1:], newest]
        if newest != self._newest_since[0]:
            self._newest_since = newest, self._monotonic()
            self._newest_due = min(self._newest_due, self._monotonic() + _NEWEST_INTERVAL)

    def _newest_pause(self) -> float:
        """Seconds until the next look at the newest shares."""
        quiet = self._monotonic() - self._newest_since[1]
        return poll_pause(quiet, _NEWEST_INTERVAL, _CHECKUP_INTERVAL)

    def _keep_what_is_lost(self) -> None:
        """If more clouds than may fail have lost something, keep the chunks here that none of them has."""
        doubted = self._recent.doubted | self._unseen
        self._unseen = frozenset()
        troubled = {one.cloud for one in self._engine.upkeep.wrong_objects()} | doubted
        if len(troubled) > self._engine.f:
            self._maintenance.guard(doubted)

    def _look(self, look_at: Callable[[int], None]) -> None:
        threads = [
            threading.Thread(target=look_at, args=(cloud,), name=f"checkup-{cloud}", daemon=True)
            for cloud in self._engine.numbers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _look_at(self, cloud: int) -> None:
        if self._has_marker(cloud):
            self._sample(cloud, _newest_pack(self._fs), below=True)
            self._sample(cloud, self._chance.randint(0, _newest_pack(self._fs)))

    def _glance_at(self, cloud: int) -> None:
        if self._has_marker(cloud):
            self._glance_at_newest(cloud)

    def _has_marker(self, cloud: int) -> bool:
        wrong = self._engine.check_object(cloud, self._marker.name, _MARKER_LIMIT, self._marker.verify)
        if wrong is not None:
            log.debug("cloud %d: %s", cloud, wrong)
        return wrong is None

    def _glance_at_newest(self, cloud: int) -> None:
        self._sample(cloud, _newest_pack(self._fs), below=True, if_absent=True)

    def _look_back(self, cloud: int) -> None:
        """Look at one recent share, then at one twice as old (counted in packs), and so on."""
        age, newest = 1, _newest_pack(self._fs)
        while age < newest and not self._engine.upkeep.is_down(cloud):
            self._sample(cloud, newest - age, below=True, most=0)
            age *= 2

    def _look_over(self, cloud: int) -> None:
        """Check the shares whose turn it is."""

        def look(pack: PackPlace) -> bool:
            if not self._signals.transfers_paused and not self._engine.upkeep.is_down(cloud):
                self._look_at_share(cloud, pack, most=0)
            return not (
                self._signals.stopping or self._signals.transfers_paused or self._engine.upkeep.is_down(cloud)
            )

        self._patrol.check(cloud, look)

    def _sample(
        self,
        cloud: int,
        number: int,
        *,
        below: bool = False,
        if_absent: bool = False,
        most: float = _SAMPLE_BYTES,
    ) -> None:
        """Have a look at a share that this cloud acknowledged, of the first pack from a number on, or *below*
        down from it."""
        with self._fs.state.transaction() as tx:
            found = read_pack_near(tx, cloud, number, below=below)
        if found is not None:
            self._look_at_share(cloud, found, if_absent=if_absent, most=most)

    def _look_at_share(self, cloud: int, found: PackPlace, *, if_absent: bool = False, most: float) -> None:
        """Have a look at the share of a pack, at *most* so many bytes of its chunks; only *if_absent*, when
        its first bytes are not there. One that may have been put a moment ago gets a second chance."""
        pack, index = found.id, found.placement.index(cloud)
        recent = found.number > self._earlier[0]
        glances = recent or if_absent
        if glances and self._engine.upkeep.is_there(cloud, share_name(pack, index)) is not False:
            return
        if recent:
            self._recent.doubt(cloud, share_name(pack, index))
            return
        with self._fs.state.transaction() as tx:
            owed = (known := tx.packs.find(pack)) is not None and known.proven
            expected = sealed_table_size(count_of_pack(tx, pack), found.k, len(found.placement))
        sample = partial(self._engine.upkeep.sample_share, cloud, pack, index, expected=expected)
        wrong = sample(most=most, acknowledged=owed)
        if wrong is not None and wrong.kind == "missing" and not owed:
            if is_only_said(self._fs, self._engine.upkeep, pack):
                with self._lock:
                    self._unseen |= frozenset(found.placement)
                return
            wrong = sample(most=most)
        if wrong is not None:
            log.debug("cloud %d: %s", cloud, wrong.what)


def _newest_pack(fs: FileSystem) -> int:
    with fs.state.transaction() as tx:
        return tx.packs.newest()


# -- does each cloud still have what it acknowledged a minute or two ago? -------------------------------
# A cloud that acknowledges and does not store costs a spare at once, and most of what is put is not read for
# months. So a sample of what this device has put is asked for while that is new: the first bytes of each
# object, one request, a fraction of what its put has cost. A cloud may be late in showing what it has taken:
# only what is missing at a second look is held against it.


_SAMPLE: Final = (
    16  # objects of a cloud at a time: of a cloud that drops 15 %, 93 times of 100 one is missing
)
_MOST: Final = 1000  # objects of a cloud that wait to be asked for
_AT_START: Final = (
    64  # packs and segments, put before the daemon was started, that may not have been looked at
)


class _Put(NamedTuple):
    name: str
    since: float


class RecentPutsLimits(Struct, frozen=True):
    """See `hybrisfs.environment.Limits`."""

    age: float = 50.0
    """Seconds since a put was first seen, before it is asked for."""


class RecentPuts:
    """Samples what was put. Used by one thread, but for `doubted`."""

    def __init__(
        self,
        fs: FileSystem,
        expected: ExpectedObjects,
        upkeep: Upkeep,
        device: bytes,
        environment: Environment,
    ) -> None:
        self._fs = fs
        self._expected = expected
        self._upkeep = upkeep
        self._device = device
        self._clock = environment.monotonic
        self._limits = environment.limits.of(RecentPutsLimits)
        self._chance = environment.chance()
        self._waiting: defaultdict[int, list[_Put]] = defaultdict(list)  # by cloud, the oldest first
        self._missed: defaultdict[int, set[str]] = defaultdict(set)
        self._pack, self._clock_shipped = self._before_start()

    @property
    def doubted(self) -> set[int]:
        """The clouds that lacked something at the first look."""
        return {cloud for cloud, names in self._missed.items() if names}

    def doubt(self, cloud: int, name: str) -> None:
        """Something that may have been put a moment ago is missing: look again soon."""
        self._missed[cloud].add(name)

    def look(self) -> None:
        """Note what has been put since the last look, and ask for some of what was put a while ago."""
        self._note_new()
        threads = [
            threading.Thread(target=self._look_at, args=(cloud,), name=f"recent-{cloud}", daemon=True)
            for cloud in {*self._waiting, *self._missed}
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _before_start(self) -> tuple[int, int]:
        """The newest pack and clock of the log that need not be looked at."""
        with self._fs.state.transaction() as tx:
            pack = tx.packs.newest()
            segment = tx.segments.newest(skipping=_AT_START)
        return max(0, pack - _AT_START), 0 if segment is None else segment.last

    def _note_new(self) -> None:
        with self._fs.state.transaction() as tx:
            packs = tx.packs.of_device(self._device, self._pack)
            segments = tx.segments.ending_after(self._clock_shipped)
        now = self._clock()
        for pack in packs:
            self._pack = pack.number
            self._add(
                [(cloud, share_name(pack.id, index)) for index, cloud in enumerate(pack.placement)], now
            )
        for segment in segments:
            self._clock_shipped = segment.last
            self._add([(cloud, segment.name) for cloud in segment.placement], now)

    def _add(self, objects: Iterable[tuple[int, str]], now: float) -> None:
        for cloud, name in objects:
            waiting = self._waiting[cloud]
            waiting.append(_Put(name, now))
            if len(waiting) > _MOST:
                del waiting[self._chance.randrange(len(waiting))]

    def _look_at(self, cloud: int) -> None:
        missed, self._missed[cloud] = self._missed[cloud], set()
        for name in missed:
            self._confirm(cloud, name)
        oldest = self._clock() - self._limits.age
        due = [one for one in self._waiting[cloud] if one.since <= oldest]
        self._waiting[cloud] = [one for one in self._waiting[cloud] if one.since > oldest]
        for one in self._chance.sample(due, min(_SAMPLE, len(due))):
            found = self._upkeep.is_there(cloud, one.name)
            if found is None:  # nobody knows: the cloud is away
                self._waiting[cloud] += due
                return
            if not found:
                log.debug("cloud %d does not show %s yet", cloud, one.name)
                self._missed[cloud].add(one.name)

    def _confirm(self, cloud: int, name: str) -> None:
        """Look again, and report what is still missing and should be there as a fault of the cloud."""
        share = parse_share_name(name)
        if share is None:
            if self._expected.is_recorded(name):
                self._expected.look_at_segment(cloud, name)
        elif self._expected.holder(*share) == cloud and not is_only_said(self._fs, self._upkeep, share[0]):
            self._upkeep.sample_share(cloud, *share)
