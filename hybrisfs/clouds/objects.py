"""All that a volume has on its clouds, by kind: what should be there, how it looks, what puts it right."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, TypeAlias

from msgspec import Struct, field

from hybrisfs.checkpoint.compaction import CloudCheckpoint
from hybrisfs.checkpoint.deposit import Depositor, NotToBeHadError
from hybrisfs.clouds.others_log import OthersLog
from hybrisfs.clouds.pack_repair import PackMender, PackRenewer
from hybrisfs.clouds.segment_repair import SEGMENT_LIMIT, SegmentMender
from hybrisfs.dispersal.errors import CloudsUnavailable, Finding
from hybrisfs.dispersal.probe import Marker
from hybrisfs.dispersal.upkeep import Repair, Upkeep, WrongObject
from hybrisfs.errors import HybrisError
from hybrisfs.keyring import KeyRing
from hybrisfs.kv.mend import CloudMender, Held, ValueMender
from hybrisfs.kv.metadata import Found
from hybrisfs.kv.opening import KeyValues
from hybrisfs.kv.seal import is_value_name
from hybrisfs.kv.store import KeyValueStore
from hybrisfs.parts import Writing
from hybrisfs.read.fetch import Fetcher
from hybrisfs.state.packs import PackPlace, owed_count, owed_packs
from hybrisfs.state.segments import OwnSegment
from hybrisfs.stores.own_places import MARKER_NAME, belongs_to_another, marker
from hybrisfs.tree.filesystem import FileSystem
from sync import DecodeError, Head, decode_head, decode_segment, head_name
from sync.checkpoint import checkpoint_name

__all__ = [
    "HERE",
    "CloudObjects",
    "ExpectedCheckpoint",
    "ExpectedObjects",
    "PartState",
    "cloud_name",
    "is_only_said",
]

log = logging.getLogger(__name__)


class CloudObjects:
    """The objects of an open volume. Thread-safe."""

    def __init__(self, writing: Writing, fetcher: Fetcher, checkpoint: ExpectedCheckpoint) -> None:
        clouds = writing.clouds
        ground, sharing = clouds.ground, clouds.ground.sharing
        fs, config, keys = ground.fs, ground.config, ground.ring.segments
        signer = sharing.signer
        self.upkeep = upkeep = clouds.engine.upkeep
        self.expected = ExpectedObjects(fs, upkeep, ground.ring, config.id)
        self.renewer = PackRenewer(fs, signer, ground.signals, clouds.packs, fetcher)
        self.packs = PackMender(fs, signer, ground.signals, upkeep, ground.tables, self.renewer)
        self.segments = SegmentMender(fs, config.id, keys, upkeep)
        self.others = OthersLog(fs, sharing.device, config.id, keys, upkeep, self.segments, clouds)
        self.checkpoint = checkpoint
        self.chance: Final = fs.environment.chance()
        self.values = ExpectedValues(clouds.key_values, self.chance)
        self.clouds: Mapping[int, str] = {one.number: one.name for one in config.clouds}
        """The clouds in use, and their names."""
        self.names: Mapping[int, str] = self.clouds
        """What these and all others are called."""

    def use(self, clouds: Mapping[int, str], names: Mapping[int, str]) -> None:
        """Use these clouds from now on; *names*: of these and all others."""
        self.clouds, self.names = clouds, names

    def trusted(self) -> set[int]:
        """The clouds that are known to be this volume's, as their marker is right now."""
        return {cloud for cloud in self.clouds if self.expected.look_at_marker(cloud)[0] is None}


# -- what the clouds of a volume are known to hold besides packs ----------------------------------------


_HEAD_LIMIT: Final = 1 << 20
_MARKER_LIMIT: Final = 4096
_ROWS: Final = 256


def is_only_said(fs: FileSystem, upkeep: Upkeep, pack: bytes) -> bool:
    """Whether the pack is only a member's claim: this device has neither put nor read it, and no cloud lists
    a share of it. Then no cloud is to blame."""
    with fs.state.transaction() as tx:
        found = tx.packs.find(pack)
    if found is None or found.proven:
        return False
    return not any(upkeep.find_share(pack, index) is not None for index in range(found.n))


class ExpectedObjects:
    """Knows which objects should be on which clouds, and looks whether they are. Thread-safe."""

    def __init__(self, fs: FileSystem, upkeep: Upkeep, ring: KeyRing, volume: bytes) -> None:
        self._fs = fs
        self._upkeep = upkeep
        self._ring = ring
        self._volume = volume
        self.marker = Marker(MARKER_NAME, marker(volume))
        self.head = head_name(ring.keys.device.device_id)

    def packs(self) -> Iterator[PackPlace]:
        """All packs that the clouds should hold, also those that come during the iteration."""
        last = 0
        while True:
            with self._fs.state.transaction() as tx:
                found = list(owed_packs(tx, last, _ROWS))
            if not found:
                return
            yield from found
            last = found[-1].number

    def segments(self) -> Iterator[OwnSegment]:
        """All own log segments on the clouds."""
        last = 0
        while True:
            with self._fs.state.transaction() as tx:
                found = tx.segments.after(last, _ROWS)
            if not found:
                return
            yield from found
            last = found[-1].first

    def counts(self) -> tuple[int, int]:
        """How many packs and segments there are."""
        with self._fs.state.transaction() as tx:
            return owed_count(tx), tx.segments.count()

    def holder(self, pack: bytes, index: int) -> int | None:
        """The cloud that should have a share, None when no such share is known."""
        with self._fs.state.transaction() as tx:
            placement = tx.packs.placement(pack)
        return placement[index] if index < len(placement) else None

    def look_at_marker(self, cloud: int) -> tuple[Finding | None, bool]:
        """What is wrong with the marker, and whether the place belongs to another volume by its marker."""
        foreign: list[bool] = []

        def take(data: bytes) -> None:
            foreign[:] = [belongs_to_another(data, self._volume)]
            self.marker.verify(data)

        found = self._upkeep.look_at(cloud, MARKER_NAME, _MARKER_LIMIT, self.marker.verify, take)
        return found, any(foreign)

    def look_at_segment(self, cloud: int, name: str) -> Finding | None:
        """What is wrong with the copy of a segment on a cloud."""
        found = self._upkeep.look_at(cloud, name, SEGMENT_LIMIT, self.segment_check(name))
        if found is not None and not self.is_recorded(name):
            self._upkeep.excuse(cloud, name)
            return None
        return found

    def is_recorded(self, name: str) -> bool:
        """Whether a segment should still be on the clouds: a checkpoint may have replaced it."""
        with self._fs.state.transaction() as tx:
            return tx.segments.find(name) is not None

    def look_at_head(self, cloud: int, shipped: int) -> Finding | None:
        """What is wrong with the own head on a cloud; it is stale when it does not lead to clock *shipped*.

        A slow cloud may have an old head for a while, so that this is not a lie.
        """
        heads: list[Head] = []

        found = self._upkeep.look_at(
            cloud,
            self.head,
            _HEAD_LIMIT,
            self.head_check,
            lambda data: heads.append(self.head_check(data)),
            acknowledged=cloud in self.head_holders(),
        )
        if found is not None:
            return replace(found, expected=None)  # an earlier one would be no remedy
        on_clouds = heads[-1].on_clouds
        if on_clouds is None or on_clouds.last < shipped:
            return Finding("stale", f"{self.head} is an earlier one than the clouds have acknowledged")
        return None

    def head_holders(self) -> frozenset[int]:
        """The clouds that have to have an own head. One to which none has come yet, because it was away or is
        slow, does not have to."""
        with self._fs.state.transaction() as tx:
            return tx.segments.head_holders() | self._upkeep.holders(self.head)

    def segment_check(self, name: str) -> Callable[[bytes], object]:
        """What raises DecodeError unless it gets the own segment of this name."""
        return lambda data: decode_segment(data, name, self._volume, self._ring.segments)

    def head_check(self, data: bytes) -> Head:
        """Decode an own head, of whatever time. Raises DecodeError."""
        return decode_head(data, self._volume, self._ring.keys.device.public, self._ring.segments)

    def shipped(self) -> int | None:
        """The clock up to which the own head must lead, None before there is one."""
        with self._fs.state.transaction() as tx:
            newest = tx.segments.newest()
        return None if newest is None else newest.last


# -- what the clouds should hold of the newest checkpoint, and whether they do --------------------------
# Each part is to be on f+k clouds, any of them. So a part is *missing* when fewer have it right, and nothing
# is amiss where a cloud does not have it.


_UNREADABLE: Final = (CloudsUnavailable, NotToBeHadError, DecodeError)


class PartState(Struct):
    """What clouds have of one part: *right* copies, and *wrong* ones; *lacking* is a cloud that could take
    another copy, when there are too few."""

    right: set[int] = field(default_factory=set)
    wrong: dict[int, Finding] = field(default_factory=dict)
    lacking: int | None = None
    what: str = ""

    def findings(self) -> Iterator[tuple[int, Finding | None]]:
        """Each cloud that was looked at, or should have been, and what is wrong there."""
        yield from ((cloud, None) for cloud in sorted(self.right))
        yield from sorted(self.wrong.items())
        if self.lacking is not None and not self.wrong:
            yield self.lacking, Finding("missing", self.what)


class ExpectedCheckpoint:
    """The checkpoint of one volume. Thread-safe; blocks while clouds are asked."""

    def __init__(self, cloud_checkpoint: CloudCheckpoint, depositor: Depositor) -> None:
        self._cloud_checkpoint = cloud_checkpoint
        self._depositor = depositor

    def looks(self) -> list[Callable[[], PartState]]:
        """What is to be run to look at each part. Reads the root, which tells the parts."""
        try:
            parts = self._cloud_checkpoint.parts()
        except _UNREADABLE as error:
            return [partial(self._nowhere, str(error))]
        listed = self._depositor.listed() if parts else {}
        return [partial(self._look, part, listed) for part in parts]

    def _nowhere(self, reason: str) -> PartState:
        in_use, _ = self._depositor.place
        return PartState(lacking=min(in_use, default=0), what=f"the root of the checkpoint: {reason}")

    def _look(self, part: bytes, listed: Mapping[int, frozenset[bytes]]) -> PartState:
        in_use, copies = self._depositor.place
        state = PartState()
        for cloud in sorted(cloud for cloud in in_use if part in listed.get(cloud, ())):
            finding = self._depositor.look(cloud, part)
            if finding is None:
                state.right.add(cloud)
            else:
                state.wrong[cloud] = finding
        unknown = [cloud for cloud in in_use if cloud not in listed]
        if len(state.right) + len(unknown) < copies:
            state.lacking = min(in_use - state.right, default=0)
            state.what = f"{checkpoint_name(part)} is on {len(state.right)} clouds, not on {copies}"
        # It may have been replaced, and removed, by now.
        return state if part in self._parts() else PartState()

    def _parts(self) -> list[bytes]:
        try:
            return self._cloud_checkpoint.parts()
        except _UNREADABLE:
            return []

    def mends(self) -> list[Callable[[], Sequence[Repair]]]:
        """What is to be run to put each part right; the slices come before the root."""
        try:
            parts = self._cloud_checkpoint.parts()
        except _UNREADABLE as error:
            state = self._nowhere(str(error))
            return [lambda: [Repair(cloud, one, None) for cloud, one in state.findings() if one is not None]]
        listed = self._depositor.listed() if parts else {}
        return [partial(self._mend, part, listed) for part in parts]

    def mend(self, part: bytes) -> list[Repair] | None:
        """Put one part right; None when it no longer belongs to the checkpoint."""
        return self._mend(part, self._depositor.listed()) if part in self._parts() else None

    def _mend(self, part: bytes, listed: Mapping[int, frozenset[bytes]]) -> list[Repair]:
        state = self._look(part, listed)
        wrong = [(cloud, finding) for cloud, finding in state.findings() if finding is not None]
        if not wrong:
            return []
        right = set(state.right)
        try:
            for cloud in state.wrong:
                self._depositor.put_back(cloud, part, right, partial(self._cloud_checkpoint.fetched, part))
            self._depositor.spread(part, right, partial(self._cloud_checkpoint.fetched, part))
        except _UNREADABLE as error:
            return [
                Repair(cloud, finding, cloud if cloud in right else None, str(error))
                for cloud, finding in wrong
            ]
        elsewhere = min(right)
        return [Repair(cloud, finding, cloud if cloud in right else elsewhere) for cloud, finding in wrong]


# -- what the clouds are known to hold of the key-value store: looked at, mended, checked ---------------
# A store that cannot be opened, or a record that cannot be read, is itself what is found wrong, on this
# device: the rest of the volume is gone over all the same.


HERE: Final = -1
"""Stands for this device where a number names a cloud."""

Look: TypeAlias = Callable[[], tuple[int, Finding | None, bool]]
"""Looks at one object: the cloud, what is wrong, and whether it is the last one of its value."""

_ADVICE: Final = "restore kv.db from a backup, or run hybrisfs kv rebuild"


def cloud_name(cloud: int, names: Mapping[int, str]) -> str:
    """What a cloud is called, for people."""
    return "this machine" if cloud == HERE else names.get(cloud, f"cloud {cloud}")


class ExpectedValues:
    """The values of all stores that this device uses. Thread-safe."""

    def __init__(self, key_values: KeyValues, chance: Random) -> None:
        self._key_values = key_values
        self._chance = chance

    def count(self) -> int:
        """About how many values there are; values of stores with unknown numbers do not count."""
        found = 0
        try:
            for store, _ in self._key_values.menders():
                found += store.metadata.count()
        except HybrisError as error:
            log.debug("not all values can be counted: %s", error)
        return found

    def looks(self, percent: float = 100.0) -> Iterator[Look]:
        """A look at each share of the values, or of a random sample of so many per cent of them."""
        try:
            for store, mender in self._key_values.menders():
                for found in store.metadata.values():
                    if found.entry is None:
                        yield partial(_already_seen, _damaged(store, found))
                    elif self._chance.random() * 100 < percent:
                        last = len(found.entry.placement) - 1
                        for index, cloud in enumerate(found.entry.placement):
                            look = partial(mender.look_at, found.place, found.entry, index)
                            yield partial(_look, cloud, look, index == last)
            for keeper, held in self._held():
                if self._chance.random() * 100 < percent:
                    for cloud in keeper.clouds:
                        look = partial(keeper.look_at, held, cloud)
                        yield partial(_look, cloud, look, cloud == keeper.clouds[-1])
        except (HybrisError, CloudsUnavailable) as error:
            yield partial(_already_seen, _closed(error))

    def _held(self) -> Iterator[tuple[CloudMender, Held]]:
        """The values of containers on the clouds."""
        for mender in self._key_values.cloud_menders():
            for held in mender.held():
                yield mender, held

    def mends(self, writable: Container[int]) -> Iterator[Callable[[], list[Repair]]]:
        """For each value what verifies it and puts right what is wrong. See `ValueMender.mend`."""
        try:
            for store, mender in self._key_values.menders():
                for found in store.metadata.values():
                    if found.entry is None:
                        yield partial(_not_mended, _damaged(store, found))
                    else:
                        yield partial(mender.mend, found.place, found.entry, writable=writable, move=True)
            for keeper, held in self._held():
                yield partial(keeper.mend, held, writable)
        except (HybrisError, CloudsUnavailable) as error:
            yield partial(_not_mended, _closed(error))

    @staticmethod
    def is_value(name: str) -> bool:
        """Whether an object may hold a share of a value."""
        return is_value_name(name)

    def heal(
        self,
        wrong: Collection[WrongObject],
        trusted: Container[int],
        tried: Container[WrongObject],
        go_on: Callable[[], bool],
    ) -> Iterator[Repair]:
        """Put right, where they were, objects that are known to be wrong, or, when that was *tried* before,
        elsewhere; forget those that no key names."""
        left = {(one.cloud, one.name) for one in wrong}
        mender: ValueMender | None = None
        try:
            for store, mender in self._key_values.menders():
                for found in store.metadata.values():
                    if not left or not go_on():
                        return
                    if found.entry is None:
                        continue
                    name = store.sealer.name(found.entry.objects, found.entry.k == 1)
                    owed = {(cloud, name(index)) for index, cloud in enumerate(found.entry.placement)}
                    if owed & left:
                        again = any(WrongObject(*one) in tried for one in owed & left)
                        left -= owed
                        yield from mender.mend(found.place, found.entry, writable=trusted, move=again)
        except HybrisError as error:
            log.info("not all values can be looked after now: %s", error)
            return
        if mender is not None:
            mender.excuse(left)

    def fill(self, writable: Callable[[], Collection[int]], go_on: Callable[[], bool]) -> set[int]:
        """Put what containers on the clouds should have there on clouds that do not list it, if they are
        *writable*; the clouds that lack something still, as far as that is known."""
        left: set[int] = set()
        for mender in self._key_values.cloud_menders():
            try:
                left |= mender.fill(writable(), go_on)
            except (HybrisError, CloudsUnavailable) as error:
                log.info("not all containers on the clouds can be looked after now: %s", error)
                left |= set(mender.clouds)
        return left

    def checks(self) -> Iterator[tuple[int, Callable[[], str | None]]]:
        """Each share of the values: its cloud, and what says what is wrong with it."""
        for store, mender in self._key_values.menders():
            for found in store.metadata.values():
                if found.entry is not None:
                    for index, cloud in enumerate(found.entry.placement):
                        yield cloud, partial(_what, partial(mender.look_at, found.place, found.entry, index))
        for keeper, held in self._held():
            for cloud in keeper.clouds:
                yield cloud, partial(_what, partial(keeper.look_at, held, cloud))

    def problems(self) -> tuple[int, list[str]]:
        """How many keys with values there are, and what is wrong with the stores, in sentences."""
        count, found = 0, list[str]()
        try:
            for store, _ in self._key_values.menders():
                problems = store.metadata.problems()
                keys = list(store.metadata.values()) if not problems else []
                count += len(keys)
                found += problems + [_damaged(store, one).what for one in keys if one.entry is None]
        except HybrisError as error:
            found.append(_closed(error).what)
        return count, found


def _look(cloud: int, look: Callable[[], Finding | None], last: bool) -> tuple[int, Finding | None, bool]:
    return cloud, look(), last


def _what(look: Callable[[], Finding | None]) -> str | None:
    finding = look()
    return None if finding is None else finding.what


def _already_seen(finding: Finding) -> tuple[int, Finding | None, bool]:
    return HERE, finding, False


def _not_mended(finding: Finding) -> list[Repair]:
    return [Repair(HERE, finding, None, _ADVICE)]


def _damaged(store: KeyValueStore, found: Found) -> Finding:
    key = store.metadata.spelled(found.place)
    return Finding("corrupt", f"the key-value store's record of the key {key!r} is damaged", key)


def _closed(error: HybrisError | CloudsUnavailable) -> Finding:
    return Finding("unreadable", f"the values of the key-value store cannot be looked after: {error}")
