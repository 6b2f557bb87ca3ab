"""Does each cloud still have what it acknowledged a minute or two ago?

A cloud that acknowledges and does not store costs a spare at once, and most of what is put is not read for
months. So a sample of what this device has put is asked for while that is new: the first bytes of each
object, one request, a fraction of what its put has cost. A cloud may be late in showing what it has taken:
only what is missing at a second look is held against it.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from hybrisfs.clouds.expected_objects import ExpectedObjects, is_only_said
from hybrisfs.dispersal.share import parse_share_name, share_name
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.environment import SYSTEM, Environment
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["RecentPuts", "RecentPutsLimits"]

log = logging.getLogger(__name__)

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


@dataclass(frozen=True, slots=True)
class RecentPutsLimits:
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
        environment: Environment = SYSTEM,
    ) -> None:
        self._fs = fs
        self._expected = expected
        self._upkeep = upkeep
        self._device = device
        self._clock = environment.monotonic
        self._limits = environment.limits.of(RecentPutsLimits)
        self._waiting: defaultdict[int, list[_Put]] = defaultdict(list)  # by cloud, the oldest first
        self._missed: defaultdict[int, set[str]] = defaultdict(set)
        self._pack, self._clock_shipped = self._before_start()

    @property
    def doubted(self) -> set[int]:
        """The clouds that something was missing of at the first look."""
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
                del waiting[random.randrange(len(waiting))]

    def _look_at(self, cloud: int) -> None:
        missed, self._missed[cloud] = self._missed[cloud], set()
        for name in missed:
            self._confirm(cloud, name)
        oldest = self._clock() - self._limits.age
        due = [one for one in self._waiting[cloud] if one.since <= oldest]
        self._waiting[cloud] = [one for one in self._waiting[cloud] if one.since > oldest]
        for one in random.sample(due, min(_SAMPLE, len(due))):
            found = self._upkeep.is_there(cloud, one.name)
            if found is None:  # nobody knows: the cloud is away
                self._waiting[cloud] += due
                return
            if not found:
                log.debug("cloud %d does not show %s yet", cloud, one.name)
                self._missed[cloud].add(one.name)

    def _confirm(self, cloud: int, name: str) -> None:
        """Look again, and hold against the cloud what is missing still and should be there."""
        share = parse_share_name(name)
        if share is None:
            if self._expected.is_recorded(name):
                self._expected.look_at_segment(cloud, name)
        elif self._expected.holder(*share) == cloud and not is_only_said(self._fs, self._upkeep, share[0]):
            self._upkeep.sample_share(cloud, *share)
