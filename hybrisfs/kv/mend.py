"""Looking after the values on the clouds: verifying, rebuilding, and writing them elsewhere.

The store itself is in docs/internals/key-value.md.

A wrong object is put back, under its own name, where it was. When that cannot be, and when a value is to
leave a cloud or to be stored with other f and k, the whole value is *rewritten*: like a put it gets a
number of its own, which is in `garbage` before the first byte goes up, and goes to f+k clouds; each object
is read back. Then one conditional update makes its objects the key's, if the entry of the key is still the
one that was read, and makes garbage of the former ones. The timestamp stays, so that a put or delete that is
under way wins, whichever is first; the move leaves only garbage then. Nothing is resurrected: a tombstone is
another entry.

===================================  =================================================================
killed                               what the next start finds
===================================  =================================================================
before the new objects are intended  nothing has happened
before the conditional update        new objects, or some, in `garbage`: the collector deletes them
after it                             the former objects in `garbage`: the collector deletes them
===================================  =================================================================
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from hybrisfs.dispersal.erasure import join, split
from hybrisfs.dispersal.errors import CloudsUnavailable, DispersalError, Finding, IntegrityError
from hybrisfs.dispersal.upkeep import Repair, Upkeep, WrongObject, candidates, restore
from hybrisfs.dispersal.values import StoredValue
from hybrisfs.errors import HybrisError
from hybrisfs.kv.cloud_store import CloudStore
from hybrisfs.kv.metadata import Garbage
from hybrisfs.kv.record import KeyMetadata, Place
from hybrisfs.kv.store import KeyValueStore
from hybrisfs.kv.values import describe
from hybrisfs.quorums.names import Version
from hybrisfs.quorums.reading import is_latest
from hybrisfs.quorums.register import Register
from hybrisfs.quorums.rounds import RoundFailedError

__all__ = ["CloudMender", "Held", "ValueMender"]

log = logging.getLogger(__name__)

_LARGE: Final = 1 << 20  # bytes; of larger values one at a time is in memory
_TRIES: Final = 3  # clouds that acknowledge what they do not keep are left out at the next try


class ValueMender:
    """Mends the values of one store. Thread-safe; blocks for a bounded time."""

    def __init__(self, store: KeyValueStore, upkeep: Upkeep) -> None:
        self._store = store
        self._metadata = store.metadata
        self._sealer = store.sealer
        self._upkeep = upkeep
        self._one_large = threading.Lock()

    def look_at(self, place: Place, entry: KeyMetadata, index: int) -> Finding | None:
        """Read and verify share *index* of a value; what is wrong with it, None when it is not needed now."""
        stored = self._describe(place, entry)
        with self._spared(place, entry) as current:
            found = self._look(stored, index, None) if current else None
            if found is None or self._metadata.read(place) != entry:
                return None
        self._store.suspects.add(place)
        return replace(found, key=self._metadata.spelled(place))

    def mend(self, place: Place, entry: KeyMetadata, *, writable: Container[int], move: bool) -> list[Repair]:
        """Verify every share of a value and put right what is wrong; what was wrong.

        Nothing is put back on clouds but *writable* ones. With *move* the value is rewritten, on the best
        clouds, when a share cannot be put back where it was.
        """
        with self._room_for(entry), self._spared(place, entry) as current:
            return self._mend(place, entry, writable, move) if current else []

    def rewrite(self, place: Place, misplaced: Callable[[KeyMetadata], bool]) -> str | None:
        """Rewrite the value of a key if its entry is *misplaced*; why that failed, None when it is not."""
        entry = self._metadata.read(place)
        if entry is None or not misplaced(entry):
            return None
        with self._room_for(entry):
            try:
                fetched = self._store.fetcher.fetch(place, entry, self._store.limits.mend_seconds)
            except (CloudsUnavailable, IntegrityError) as error:
                return str(error)
            if fetched is None or not misplaced(fetched[1]):
                return None
            outcome = self._store_rewritten(place, fetched[1], fetched[0])
        return outcome if isinstance(outcome, str) else None

    def unreadable(self) -> int:
        """Of how many values too little can be read now, as far as anybody has tried. Asks no cloud."""
        suspects = self._store.suspects
        places = suspects.all()
        wrong = set(self._upkeep.wrong_objects()) if places else set()
        found = 0
        for place in places:
            try:
                entry = self._metadata.read(place)
            except (HybrisError, sqlite3.Error):
                found += 1  # a scrub says why
                continue
            left = entry is not None and self._left(place, entry, wrong)
            if entry is None or left == len(entry.placement):
                suspects.clear(place)
            elif left < entry.k:
                found += 1
        return found

    def _left(self, place: Place, entry: KeyMetadata, wrong: Container[WrongObject]) -> int:
        """How many shares of a value can be read, as far as is known."""
        stored = self._describe(place, entry)
        return sum(
            WrongObject(cloud, stored.name(index)) not in wrong and not self._upkeep.is_down(cloud)
            for index, cloud in enumerate(stored.placement)
        )

    def excuse(self, objects: Iterable[tuple[int, str]]) -> None:
        """No key names these objects on these clouds any more: that they are wrong is forgotten."""
        for cloud, name in objects:
            self._upkeep.excuse(cloud, name)

    # -- how -------------------------------------------------------------------------------------

    def _describe(self, place: Place, entry: KeyMetadata) -> StoredValue:
        return describe(entry, self._sealer, self._metadata.spelled(place))

    @contextmanager
    def _spared(self, place: Place, entry: KeyMetadata) -> Iterator[bool]:
        """In the block nothing is deleted that the entry names. Whether the key has it still: if not, that
        may have been deleted."""
        with self._store.collector.sparing(entry.objects):
            yield self._metadata.read(place) == entry

    @contextmanager
    def _room_for(self, entry: KeyMetadata) -> Iterator[None]:
        with self._one_large if entry.size > _LARGE else nullcontext():
            yield

    def _look(
        self, stored: StoredValue, index: int, take: Callable[[bytes], object] | None
    ) -> Finding | None:
        def taking(data: bytes) -> None:
            stored.verify(index, data)
            if take is not None:
                take(data)

        found = self._upkeep.look_at(
            stored.placement[index],
            stored.name(index),
            stored.share_size,
            partial(stored.verify, index),
            taking,
        )
        return None if found is None else replace(found, what=f"{stored.what}: {found.what}")

    def _mend(self, place: Place, entry: KeyMetadata, writable: Container[int], move: bool) -> list[Repair]:
        stored = self._describe(place, entry)
        good: dict[int, bytes] = {}
        wrong: dict[int, Finding] = {}
        for index in range(len(stored.placement)):
            found = self._look(stored, index, partial(good.__setitem__, index))
            if found is not None:
                wrong[index] = replace(found, key=self._metadata.spelled(place))
        if not wrong or self._metadata.read(place) != entry:
            return []
        self._store.suspects.add(place)
        self._recall(stored, good, wrong)
        if len(good) < entry.k:
            failure = f"too little of {stored.what} is left to rebuild it"
            return [Repair(stored.placement[index], found, None, failure) for index, found in wrong.items()]
        sealed = join(entry.k, len(stored.placement), good, entry.sealed)
        shares = split(entry.k, len(stored.placement), sealed)
        left: dict[int, str] = {}
        repairs = []
        for index, found in wrong.items():
            outcome = self._put_back(stored, index, bytes(shares[index]), writable)
            if isinstance(outcome, str):
                left[index] = outcome
            else:
                repairs.append(Repair(outcome, found, outcome))
        rewritten: KeyMetadata | str | None = None
        if left and move:
            try:
                value = self._sealer.open(entry.objects, sealed, entry.size)
                rewritten = self._store_rewritten(place, entry, value)
            except IntegrityError as error:
                rewritten = str(error)
        for index, failure in left.items():
            repairs.append(self._outcome(stored, index, wrong[index], failure, rewritten))
        return repairs

    def _recall(self, stored: StoredValue, good: dict[int, bytes], wrong: Mapping[int, Finding]) -> None:
        """Take for *good*, as far as it is needed, what clouds keep of shares that somebody deleted or
        overwrote there."""

        def take(index: int, data: bytes) -> None:
            stored.verify(index, data)
            good[index] = data

        for index, finding in wrong.items():
            if len(good) < stored.k and finding.kind != "unreadable":
                cloud, name = stored.placement[index], stored.name(index)
                self._upkeep.recall(cloud, name, stored.share_size, partial(take, index))

    def _outcome(
        self,
        stored: StoredValue,
        index: int,
        found: Finding,
        failure: str,
        rewritten: KeyMetadata | str | None,
    ) -> Repair:
        """What became of a share that could not be put back."""
        cloud = stored.placement[index]
        if isinstance(rewritten, KeyMetadata):
            self._upkeep.excuse(cloud, stored.name(index))
            elsewhere = [one for one in rewritten.placement if one not in stored.placement]
            return Repair(cloud, found, (elsewhere or rewritten.placement)[0])
        return Repair(cloud, found, None, failure if rewritten is None else rewritten)

    def _put_back(self, stored: StoredValue, index: int, data: bytes, writable: Container[int]) -> int | str:
        cloud = stored.placement[index]
        targets = candidates(self._upkeep, cloud, stored.placement, len(data), writable=writable, move=False)
        name = stored.name(index)
        return restore(self._upkeep, name, data, targets, lambda _: self._look(stored, index, None))

    def _store_rewritten(self, place: Place, entry: KeyMetadata, value: bytes) -> KeyMetadata | str:
        """The entry that the value has now, or would have if the key had not got another one; or why not."""
        collector, uploader = self._store.collector, self._store.uploader
        # What a cloud has lost stays on its record until all is done, so that it is not chosen again.
        writes = collector.draw(_TRIES, above=entry.write)
        trouble = ""
        try:
            uploads = [uploader.plan(self._metadata.spelled(place), write, value) for write in writes]
            for upload in uploads:
                self._metadata.intend([Garbage(upload.write, upload.names)])
                (stored,) = uploader.upload([upload])
                rewritten = entry._replace(
                    sealed=stored.sealed,
                    k=stored.k,
                    placement=stored.placement,
                    checksums=stored.checksums,
                    moved=upload.write,
                )
                found = self._read_back(place, rewritten)
                if found is None:
                    self._metadata.move(place, entry, rewritten)
                    return rewritten
                trouble = found.what
        except CloudsUnavailable as error:
            trouble = str(error)
        finally:
            # Of a commit that failed nobody knows whether a crash would show it done: keep what it names.
            if not self._metadata.failed:
                collector.end(writes)
        return trouble

    def _read_back(self, place: Place, entry: KeyMetadata) -> Finding | None:
        stored = self._describe(place, entry)
        for index in range(len(stored.placement)):
            found = self._look(stored, index, None)
            if found is not None:
                return found
        return None


# -- likewise for the values of containers whose keys are on the clouds, too ----------------------------
# A cloud that was away when a value was written has nothing of it, and lies not. So what is missing is put
# there, and held against nobody. Nothing moves elsewhere: a container stays on its clouds.
#
# What clouds do not list is put there in the background (`CloudMender.fill`). Lists say nothing of what is in
# the objects: `scrub` and `repair` read these.


class Held(NamedTuple):
    """The latest version of a key, which all clouds of the container should have."""

    label: str
    """CONTAINER/KEY."""
    register: Register
    version: Version


class CloudMender:
    """Mends the values of one store. Thread-safe; blocks for a bounded time."""

    def __init__(self, store: CloudStore) -> None:
        self._store = store

    @property
    def clouds(self) -> tuple[int, ...]:
        """Those that keep the containers."""
        return self._store.place.clouds

    def held(self) -> Iterator[Held]:
        """All keys that have values, container by container. Raises HybrisError and CloudsUnavailable."""
        for container in self._store.containers():
            for one in self._store.latest(container):
                yield Held(f"{container}/{one.metadata.key}", one.register, one.version)

    def look_at(self, held: Held, cloud: int) -> Finding | None:
        """What is wrong with a cloud's object; None also when the key has another value by now."""
        found = self._get(held, cloud)
        return None if isinstance(found, bytes) or not self._is_latest(held) else found

    def mend(self, held: Held, writable: Container[int]) -> list[Repair]:
        """Verify the objects of a value on all clouds and put back, on *writable* ones, what is wrong; what
        was."""
        looked = {cloud: self._get(held, cloud) for cloud in self.clouds}
        good = {cloud: found for cloud, found in looked.items() if isinstance(found, bytes)}
        wrong = {cloud: found for cloud, found in looked.items() if isinstance(found, Finding)}
        if not wrong or not self._is_latest(held):
            return []
        if len(good) < held.version.needed:
            failure = f"too little of the value of {held.label} is left to rebuild it"
            return [Repair(cloud, found, None, failure) for cloud, found in wrong.items()]
        try:
            objects = self._store.keys.codec.rebuild(held.version, good)
        except IntegrityError as error:
            return [Repair(cloud, found, None, str(error)) for cloud, found in wrong.items()]
        repairs = []
        for cloud, found in wrong.items():
            failure = "no cloud can take it now"
            if cloud in writable:
                failure = self._put(held, cloud, bytes(objects(cloud)))
            repairs.append(Repair(cloud, found, None if failure else cloud, failure))
        return repairs

    def fill(self, writable: Collection[int], go_on: Callable[[], bool]) -> set[int]:
        """Put the latest versions on those of the *writable* clouds that do not list them; the clouds that
        did not answer, or lack something still. Stops when *go_on* is false. Raises CloudsUnavailable."""
        left: set[int] = set()
        for found in self._store.surveys():
            left |= found.silent
            for register, version, lacking in found.short:
                if not go_on():
                    return left | lacking
                left |= lacking - self._fill(register, version, lacking.intersection(writable))
        return left

    def _fill(self, register: Register, version: Version, clouds: Collection[int]) -> set[int]:
        """The clouds that have the version now."""
        if not clouds:
            return set()
        try:
            return self._store.keys.run("it was not put there", register.fill(version, clouds))
        except DispersalError as error:
            log.info("clouds lack a value of a container still: %s", error)
            return set()

    def _get(self, held: Held, cloud: int) -> bytes | Finding:
        what = f"the value of {held.label}"
        try:
            return self._store.keys.run(what, held.register.get(held.version, cloud))
        except RoundFailedError as error:
            return Finding(next(iter(error.kinds)), str(error), key=held.label)
        except DispersalError as error:
            return Finding("unreadable", f"{what} cannot be read: {error}", key=held.label)

    def _put(self, held: Held, cloud: int, data: bytes) -> str:
        """Why that failed; empty when the cloud has given it back."""
        try:
            self._store.keys.run("it was not put back", held.register.put_back(held.version, cloud, data))
        except CloudsUnavailable as error:
            return "; ".join(error.reasons.values())
        found = self._get(held, cloud)
        return found.what if isinstance(found, Finding) else ""

    def _is_latest(self, held: Held) -> bool:
        what = f"{held.label} cannot be read"
        return self._store.keys.run(what, is_latest(held.register, held.version))
