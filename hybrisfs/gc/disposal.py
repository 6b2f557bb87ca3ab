"""Deleting from the clouds: shares of packs that have ended, and shares that no register names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Protocol

from msgspec import Struct, field

from hybrisfs.dispersal.erasure import MAX_FRAGMENTS
from hybrisfs.dispersal.share import parse_share_name, share_name
from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.gc.limits import GcLimits
from hybrisfs.registers.proposals import Stray
from hybrisfs.state.disposals import Disposal, OrphanTable, ShareOnCloud
from hybrisfs.state.members import member_rows
from hybrisfs.state.packs import PackTable
from hybrisfs.state.state import Transaction
from hybrisfs.tree.filesystem import FileSystem
from sync import head_name

__all__ = ["Disposer", "Orphans", "Trust", "Unnamed"]

log = logging.getLogger(__name__)

_BATCH: Final = 100  # packs whose shares one request names
_MOST_NAMES: Final = 1_000_000


class Disposer:
    """Deletes the shares of ended packs, once the clouds have the update that ends them: so a device that is
    restored from a backup learns that the packs are gone. One caller at a time. A cloud may refuse, when the
    credentials of this device lack the right. Then another device finds and deletes these shares, and this
    one looks once in a while whether they are gone.
    """

    def __init__(self, fs: FileSystem, upkeep: Upkeep, trust: Trust) -> None:
        self._fs = fs
        self._pause = fs.environment.limits.of(GcLimits).refused_seconds
        self._monotonic = fs.environment.monotonic
        self._upkeep = upkeep
        self._trust = trust
        self._looked: dict[int, float] = {}  # when, at a cloud that refuses deletions

    def run(self, go_on: Callable[[], bool]) -> int:
        """Delete what can be deleted now. Returns roughly the bytes freed on all clouds together."""
        clouds = self.clouds().difference(self._upkeep.refusing())
        trusted = self._trust.trusted() if clouds else ()
        freed = 0
        for cloud in sorted(clouds):
            if not self._upkeep.is_configured(cloud):
                with self._fs.state.transaction() as tx:
                    tx.disposals.forget(cloud)
            while cloud in trusted and go_on() and (due := self._due(cloud)):
                if not self._delete(cloud, due):
                    break
                freed += sum(one.size for one in due)
        for cloud in self.clouds().intersection(self._upkeep.refusing()):
            if self._monotonic() - self._looked.get(cloud, float("-inf")) >= self._pause:
                self._looked[cloud] = self._monotonic()
                self._forget_gone(cloud)
        return freed

    def look_again(self) -> None:
        """Look the next time for shares that other devices have deleted."""
        self._looked.clear()

    def waiting(self) -> dict[int, int]:
        """How many packs have shares on each cloud that this device may not delete, as far as it knows."""
        with self._fs.state.transaction() as tx:
            counts = tx.disposals.counts()
        refusing = self._upkeep.refusing()
        return {cloud: count for cloud, count in counts.items() if cloud in refusing}

    def clouds(self) -> set[int]:
        """The clouds on which there is something that may be deleted now."""
        with self._fs.state.transaction() as tx:
            return tx.disposals.due_clouds()

    def _due(self, cloud: int) -> list[Disposal]:
        with self._fs.state.transaction() as tx:
            return tx.disposals.due(cloud, _BATCH)

    def _delete(self, cloud: int, due: Sequence[Disposal]) -> bool:
        names = [share_name(one.pack, index) for one in due for index in range(one.shares)]
        failure = self._upkeep.delete(cloud, names)
        if failure is not None:
            log.info("shares of %d packs stay on cloud %d for now: %s", len(due), cloud, failure)
            return False
        for name in names:
            self._upkeep.excuse(cloud, name)
        with self._fs.state.transaction() as tx:
            tx.disposals.done(cloud, [one.pack for one in due])
        return True

    def _forget_gone(self, cloud: int) -> None:
        """Forget shares that are not on the cloud any more, because other devices have deleted them, or never
        were."""
        names = self._upkeep.names(cloud, "packs/", _MOST_NAMES)
        if names is None:
            return
        listed = {parsed[0] for parsed in map(parse_share_name, names) if parsed is not None}
        with self._fs.state.transaction() as tx:
            tx.disposals.done_but(cloud, listed)


# -- shares on the clouds that no register names --------------------------------------------------------
# ========== ==============================================================================================
# orphan      of a pack that no register names: its upload was cut short by a crash, or it is under way
# stray       of a pack with a register, on a cloud where that does not place the share: a secondary cloud got
#             it in vain, or it was moved, or it is just being moved
# leftover    of a pack that has ended, as all had agreed: an upload raced its deletion. When a member
#             only says so, it is an orphan
# ========== ==============================================================================================
#
# Only what the volume's keys prove to be a share counts: a cloud that makes up names gains nothing. And only
# what was there for the whole grace period: uploads and moves take less. Leftovers need no further consent.


_PREFIX: Final = "packs/"
_HEADS: Final = "heads/"
_PAUSE_EVERY: Final = 256  # names


class Unnamed(Struct):
    """The result of a look. Shares of `young` ones have not been seen for long enough."""

    orphans: dict[bytes, ShareOnCloud] = field(default_factory=dict)
    """Packs, and a share of each."""
    strays: list[Stray] = field(default_factory=list)
    leftovers: list[ShareOnCloud] = field(default_factory=list)
    young: int = 0

    @property
    def count(self) -> int:
        """How many packs and single shares there are."""
        return len(self.orphans) + len(self.strays) + len(self.leftovers) + self.young


class Trust(Protocol):
    """What is asked of `hybrisfs.clouds.maintenance.Maintenance`."""

    def trusted(self) -> Collection[int]:
        """The clouds that are this volume's, by a look at their markers: on a disk that is not mounted,
        nothing would be deleted."""


class Orphans:
    """One caller at a time, without the volume's lock."""

    def __init__(self, fs: FileSystem, upkeep: Upkeep, trust: Trust) -> None:
        self._fs = fs
        self._upkeep = upkeep
        self._trust = trust

    def look(
        self, commit: Callable[[], None], now_ns: int, grace_ns: int, pause: Callable[[], bool]
    ) -> tuple[Unnamed, Mapping[ShareOnCloud, int]]:
        """List the clouds, and change nothing. Returns what was found, and since when each share is known.
        *pause* is called now and then, and says whether to go on.
        """
        clouds = sorted(self._trust.trusted())
        listed = {cloud: self._upkeep.names(cloud, _PREFIX, _MOST_NAMES) for cloud in clouds}
        heads = set(chain(*(self._upkeep.names(cloud, _HEADS, _MOST_NAMES) or () for cloud in clouds)))
        commit()  # whatever was recorded before it could be listed is in the snapshot
        unnamed, sightings = Unnamed(), dict[ShareOnCloud, int]()
        with self._fs.state.snapshot() as db:
            before, packs = OrphanTable(db).all(), PackTable(db)
            for cloud, names in listed.items():
                if names is None:
                    sightings |= {seen: since for seen, since in before.items() if seen.cloud == cloud}
                    continue
                for seen, state in self._unnamed(packs, cloud, names, pause):
                    since = sightings[seen] = min(before.get(seen, now_ns), now_ns)
                    self._sort(unnamed, seen, state, since <= now_ns - grace_ns)
            strangers = heads - {head_name(row.device) for row in member_rows(db)}
        if strangers:
            log.warning("packs that are not known here stay, as %s is of an unknown machine", min(strangers))
            unnamed.young += len(unnamed.orphans)
            unnamed.orphans.clear()
        return unnamed, sightings

    @staticmethod
    def _unnamed(
        packs: PackTable, cloud: int, names: list[str], pause: Callable[[], bool]
    ) -> Iterator[tuple[ShareOnCloud, int | None]]:
        """The shares that no register places on the cloud, and how many shares their packs have: None when
        the pack is not known, 0 when it has ended."""
        for number, name in enumerate(names):
            if number % _PAUSE_EVERY == 0 and not pause():
                return
            parsed = parse_share_name(name)
            if parsed is None:
                continue
            pack, index = parsed
            found = packs.find(pack)
            if found is not None and not found.n and found.doubted:
                found = None  # nothing is known of it but that a member says that it has ended
            if found is None or not found.is_at(index, cloud):
                yield ShareOnCloud(cloud, pack, index), None if found is None else found.n

    @staticmethod
    def _sort(unnamed: Unnamed, seen: ShareOnCloud, n: int | None, due: bool) -> None:
        if not due:
            unnamed.young += 1
        elif n is None:
            unnamed.orphans.setdefault(seen.pack, seen)
        elif n == 0:
            unnamed.leftovers.append(seen)
        elif seen.share < n:
            unnamed.strays.append(Stray(seen.pack, seen.share, seen.cloud))

    def remember(self, tx: Transaction, sightings: Mapping[ShareOnCloud, int]) -> None:
        """Note what was found, for the next look."""
        tx.orphans.replace(sightings)

    def proven(self, unnamed: Unnamed, most: int) -> tuple[list[bytes], list[Stray]]:
        """The orphaned packs and the strays, at most so many together, that are what their names say."""
        packs = [one.pack for one in list(unnamed.orphans.values())[:most] if self._is_share(one)]
        # What this device may not delete is for those to propose that may.
        refusing = self._upkeep.refusing()
        due = [one for one in unnamed.strays if one.cloud not in refusing]
        strays = [
            one
            for one in due[: most - len(packs)]
            if self._is_share(ShareOnCloud(one.cloud, one.pack, one.share)) and self._is_held_elsewhere(one)
        ]
        return packs, strays

    def dispose_leftovers(self, tx: Transaction, leftovers: Collection[ShareOnCloud]) -> None:
        """Have shares of packs that ended long ago deleted."""
        tx.disposals.add_leftovers(leftovers, MAX_FRAGMENTS)

    def delete(self, strays: Collection[Stray]) -> list[Stray]:
        """Delete shares that all have agreed on; return those of which a cloud has yet to say that it has.

        A cloud may carry a delete out late. That must not hurt, so no device may name the share there before
        the cloud has said that it is gone. A cloud that the volume no longer has does not count, nor does one
        that refuses: it does not do it later. Nothing is deleted unless the share can be read where its
        register places it.
        """
        left = []
        for stray in strays:
            if not self._upkeep.is_configured(stray.cloud) or not self._is_held_elsewhere(stray):
                continue
            name = share_name(stray.pack, stray.share)
            refusal = self._upkeep.delete(stray.cloud, [name])
            if refusal is None:
                self._upkeep.excuse(stray.cloud, name)
            elif stray.cloud not in self._upkeep.refusing():
                log.info("%s stays on cloud %d for now: %s", name, stray.cloud, refusal)
                left.append(stray)
        return left

    def _is_share(self, seen: ShareOnCloud) -> bool:
        found = self._upkeep.sample_share(seen.cloud, seen.pack, seen.share)
        if found is not None:
            # No record here says that it is there.
            self._upkeep.excuse(seen.cloud, share_name(seen.pack, seen.share))
        return found is None

    def _is_held_elsewhere(self, stray: Stray) -> bool:
        with self._fs.state.transaction() as tx:
            placement = tx.packs.placement(stray.pack)
        if stray.share >= len(placement) or placement[stray.share] == stray.cloud:
            return False
        holder = placement[stray.share]
        return self._upkeep.sample_share(holder, stray.pack, stray.share) is None
