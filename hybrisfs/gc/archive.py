"""The archive: what has rested is stored with a wider code, which takes less room (Pond 3.3, Hybris 5.6).

New packs are *hot*: with k = 1 a read is one request to the fastest cloud, and f+1 clouds keep whole copies.
A pack has *rested* when it was made long ago, and no program here has had anything fetched from it for as
long. What is needed of it is packed again for k+f clouds, any k of which are enough to read it: with 4 of 5
it takes 1.25 times its size instead of 2, and survives the loss of as many clouds. The former pack stays
until the new one is on all its clouds and in the log, and then until all devices agree, as whenever something
is packed again (`hybrisfs.gc`). So in between there is never less redundancy.

What is read from the archive is kept in the cache like everything else (Pond's whole-block caching). A device
that has had something fetched from an archived pack on two days within a month packs it again as hot, of
whatever device it is. It looks after it then, and archives it when it has rested again.

What is asked for is a label of the root (`hybrisfs.registers.labels`). When that changes, archived packs stay
as they are, as long as they survive the loss of f clouds and the volume has a cloud for each of their shares.
When a cloud goes, there may be too few: then they are packed again for fewer (`hybrisfs.clouds.redundancy`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from hybrisfs.api import status as api
from hybrisfs.dispersal.pack import Redundancy
from hybrisfs.prices import PriceList, Prices
from hybrisfs.registers.labels import ArchiveAsked
from hybrisfs.settings.config import CloudConfig
from hybrisfs.settings.settings import Settings
from hybrisfs.state.packs import KeptPack, PackTable, filled_packs
from hybrisfs.tree.filesystem import FileSystem

__all__ = ["Archive", "ArchivePlan", "cheapest_code"]

_COUNTED_EVERY: Final = 60.0  # seconds
_READS: Final = 2  # days on which an archived pack was read until it is hot again


class ArchivePlan(Struct, frozen=True):
    """How packs are archived now."""

    code: Redundancy
    clouds: frozenset[int]
    """That shares may go to."""
    days: int | None
    """That a pack must have rested; None when nothing more is archived."""
    hot: int
    """The k of packs that are not archived."""
    charged_days: Mapping[int, int]
    """For how many days at least each cloud charges what is stored there, if for any."""

    def is_archived(self, k: int) -> bool:
        """Whether a pack of which *k* shares are needed is archived."""
        return k > self.hot

    def has_rested(self, pack: KeptPack, today: int) -> bool:
        """Whether a pack is to be archived. *today*: the day since the epoch."""
        if self.days is None or self.is_archived(pack.k) or not pack.used:
            return False
        least = max((self.charged_days.get(cloud, 0) for cloud in pack.placement), default=0)
        return today - pack.used >= max(self.days, least)

    def is_used_again(self, pack: KeptPack) -> bool:
        """Whether an archived pack is to be hot again."""
        return self.is_archived(pack.k) and pack.reads >= _READS


class _Room(NamedTuple):
    """Bytes, as in `api.Archive`; *clouds* are those of the archive by the cloud's number."""

    hot: int
    archived: int
    stored: int
    saved: int
    clouds: Mapping[int, int]


class _Counted(NamedTuple):
    """What was found at a moment of the monotonic clock, when these packs were archived."""

    packs: tuple[int, int]
    k: int
    since: float
    found: _Room

    def holds(self, packs: tuple[int, int], k: int, now: float) -> bool:
        return (self.packs, self.k) == (packs, k) and now - self.since < _COUNTED_EVERY


class Archive:
    """The archive of one volume. Thread-safe; called without the volume's lock. *own_prices*: the file with
    a person's own, see `hybrisfs.prices`."""

    def __init__(self, fs: FileSystem, settings: Settings, own_prices: Path) -> None:
        self._fs = fs
        self._settings = settings
        self._own_prices = own_prices
        self._counted: _Counted | None = None

    def asked(self) -> ArchiveAsked | None:
        """What the volume's devices are asked to archive; None when they never were."""
        with self._fs.state.transaction() as tx:
            return self._fs.labels.archive_asked(tx)

    def widest(self) -> int:
        """How many shares an archived pack may have; 0 when nothing was ever archived."""
        return 0 if self.asked() is None else len(self._clouds())

    def plan(self) -> ArchivePlan | None:
        """None when nothing is to be archived: nobody asked, or no code that the clouds allow takes less room
        than what is hot."""
        asked, config = self.asked(), self._settings.config
        if asked is None:
            return None
        clouds = self._prices(self._clouds())
        charged = {number: price.minimum_days for number, price in clouds.items() if price is not None}
        priced = {number: None if price is None else price.storage for number, price in clouds.items()}
        found = cheapest_code(config.f, config.k, priced, asked.k)
        if found is None:
            return None
        return ArchivePlan(Redundancy(config.f, found.k), found.clouds, asked.days, config.k, charged)

    def facts(self) -> api.Archive | None:
        """How much is archived; None when nothing ever was. How much is hot may be a minute old: to know it
        takes going through all chunks."""
        asked, plan = self.asked(), self.plan()
        if asked is None:
            return None
        code = "" if plan is None else f"{plan.code.k}+{plan.code.f}"
        room = self._count()
        names = {one.number: one.name for one in self._settings.config.clouds}
        return api.Archive(
            "off" if asked.days is None else f"{asked.days}d",
            code,
            hot=room.hot,
            archived=room.archived,
            stored=room.stored,
            saved=room.saved,
            clouds={names[number]: size for number, size in sorted(room.clouds.items()) if number in names},
            dollars=self._dollars(room),
        )

    def _dollars(self, room: _Room) -> float:
        """See `api.Archive`."""
        known = self._prices(self._settings.config.clouds)
        prices = {number: 0.0 if one is None else one.storage for number, one in known.items()}
        mean = sum(prices.values()) / len(prices) if prices else 0.0
        now = sum(size * prices.get(number, 0.0) for number, size in room.clouds.items())
        return max(0.0, (room.stored + room.saved) * mean - now) / 1e9

    def _count(self) -> _Room:
        f, k = self._settings.config.f, self._settings.config.k
        with self._fs.state.snapshot() as database:
            packs, now = PackTable(database).divided_by_more(k), self._fs.environment.monotonic()
            if self._counted is not None and self._counted.holds(packs, k, now):
                return self._counted.found
            hot = archived = stored = 0
            clouds: Counter[int] = Counter()
            for placement, needed, sealed in filled_packs(database):
                if needed > k:
                    archived += sealed
                    stored += sealed * len(placement) // needed
                    clouds.update(dict.fromkeys(placement, sealed // needed))
                else:
                    hot += sealed
        found = _Room(hot, archived, stored, max(0, archived * (f + k) // k - stored), clouds)
        self._counted = _Counted(packs, k, now, found)
        return found

    def _clouds(self) -> list[CloudConfig]:
        """Those that all devices use, also those that this one has yet to prove."""
        return [one for one in self._settings.config.clouds if not one.draining]

    def _prices(self, clouds: Iterable[CloudConfig]) -> dict[int, Prices | None]:
        """Of clouds by number; None where they are unknown."""
        known = PriceList.load(self._own_prices)
        return {one.number: known.of(one.url) for one in clouds}


class _Code(NamedTuple):
    k: int
    clouds: frozenset[int]


def cheapest_code(
    f: int, hot: int, prices: Mapping[int, float | None], wanted: int | None = None
) -> _Code | None:
    """The code with more than *hot* pieces that survives the loss of *f* clouds and costs least to store, and
    the clouds for its shares; None when there are too few.

    *prices*: of a GB and month by cloud. One whose price is unknown counts as the mean of the others. Of
    codes that cost the same the one with the fewest shares counts, which takes the fewest requests.
    *wanted*: that many pieces, or as many as the clouds allow if they are fewer.
    """
    known = [price for price in prices.values() if price is not None]
    mean = sum(known) / len(known) if known else 1.0
    filled = {cloud: mean if price is None else price for cloud, price in prices.items()}
    order = sorted(filled.values())
    most = len(order) - f if wanted is None else min(wanted, len(order) - f)
    least = hot + 1 if wanted is None else max(most, hot + 1)
    costs = {k: sum(order[: k + f]) / k for k in range(least, most + 1)}
    if not costs:
        return None
    k = min(costs, key=lambda one: (round(costs[one], 9), one))
    dearest = order[k + f - 1]
    return _Code(k, frozenset(cloud for cloud, price in filled.items() if price <= dearest))
