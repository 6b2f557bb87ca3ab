"""What is left when `kv.db` is damaged, lost or old: rows, and values on the clouds that no row names.

Keys are taken over whose records can be decoded, into containers of their former names as far as these can
be read. What waited for its deletion is not: a number that damage has made of another one would delete a
value. It is left on the clouds, unnamed. Writes are numbered far above all that were
ever made.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct, field

from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.environment import Environment
from hybrisfs.errors import DamagedError, HybrisError
from hybrisfs.kv.database import MetadataDatabase
from hybrisfs.kv.errors import DAMAGE_ADVICE
from hybrisfs.kv.record import KeyMetadata, check_container, encode_key
from hybrisfs.kv.repetition import unpack_writes
from hybrisfs.kv.rmds import DeviceMetadata, DeviceStore
from hybrisfs.kv.seal import STORE_ID_SIZE, VALUE_PREFIX, is_own_store, parse_value_name
from hybrisfs.state.damaged import DamagedFile
from sync.codec import DecodeError

__all__ = ["Orphans", "RebuiltMetadata", "UnnamedValues", "find_orphans", "rebuild"]

log = logging.getLogger(__name__)

_MOST_ROWS: Final = 1 << 32
_SCANS: Final = ("ASC", "DESC")  # a page that cannot be read ends a scan: both ends are gone over


class RebuiltMetadata(NamedTuple):
    """What was taken over; `same_store` when it is the same store, else nothing could be."""

    same_store: bool
    keys: int
    damaged: int
    """Records that could be found, but not read."""


def rebuild(damaged: Path, target: Path, fresh_store: bytes, environment: Environment) -> RebuiltMetadata:
    """Make a new database at *target* of what can be read of *damaged*.

    When not even the id of its store can be, it is an empty one with the id *fresh_store*.
    """
    with contextlib.closing(_Damaged(damaged)) as old:
        store = old.store()
        MetadataDatabase.create(target, store or fresh_store)
        entries, lost = old.entries() if store else ({}, 0)
        names = old.containers() if store else {}
    _fill(target, names, entries, environment)
    metadata = DeviceMetadata(target, environment)
    try:
        metadata.skip_writes()
    finally:
        metadata.close()
    return RebuiltMetadata(bool(store), sum(entry.live for entry in entries.values()), lost)


def _fill(
    target: Path,
    names: dict[int, str],
    entries: dict[tuple[int, bytes], KeyMetadata],
    environment: Environment,
) -> None:
    highest = max((entry.objects for entry in entries.values()), default=0)
    held = Counter[int]()
    for entry in entries.values():
        held.update(entry.placement)
    taken = set(names.values())
    for number in sorted({number for number, _ in entries} - names.keys()):
        name = f"recovered-{number}"
        while name in taken:
            name += "-"
        names[number] = name
        taken.add(name)
    with contextlib.closing(MetadataDatabase(target, environment)) as database:
        connection = database.writer
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO container VALUES (?, ?)", names.items())
        connection.executemany(
            "INSERT INTO entry VALUES (?, ?, ?)",
            [(*place, entry.encode()) for place, entry in sorted(entries.items())],
        )
        connection.executemany("INSERT INTO held VALUES (?, ?)", held.items())
        connection.execute("UPDATE meta SET value = ? WHERE key = 'write'", (highest,))
        connection.execute("COMMIT")


class _Damaged(DamagedFile):
    """The rows of `kv.db`. What cannot be read is left out."""

    def store(self) -> bytes | None:
        """The id of the store."""
        for (value,) in self.readable("SELECT value FROM meta WHERE key = 'store'"):
            if isinstance(value, bytes) and len(value) == STORE_ID_SIZE:
                return value
        return None

    def containers(self) -> dict[int, str]:
        """Names by number; each name once."""
        found: dict[str, int] = {}
        for number, name in self.readable("SELECT number, name FROM container"):
            with contextlib.suppress(HybrisError, UnicodeDecodeError, AttributeError):
                if _is_number(number):
                    found.setdefault(check_container(name.decode()), number)
        return {number: name for name, number in found.items()}

    def entries(self) -> tuple[dict[tuple[int, bytes], KeyMetadata], int]:
        """The newest record of each key, and how many could not be decoded."""
        found: dict[tuple[int, bytes], KeyMetadata] = {}
        lost = set[tuple[object, object]]()
        for order in _SCANS:
            query = f"SELECT container, key, record FROM entry ORDER BY container {order}, key {order}"
            for container, key, record in self.readable(query):
                try:
                    if not _is_number(container):
                        raise DecodeError("no container")
                    place, entry = (container, encode_key(key.decode())), KeyMetadata.decode(record)
                except (HybrisError, DecodeError, UnicodeDecodeError, AttributeError, TypeError):
                    lost.add((container, key))
                    continue
                if entry.newer_than(found.get(place)):
                    found[place] = entry
        return found, len(lost)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and 0 < value < _MOST_ROWS


# -- values on the clouds that no metadata name: after `kv.db` was restored from a backup, or lost ------
# An intact store hardly leaves any: what it writes is in the metadata before it is on any cloud, until every
# cloud has deleted it, and for a day more, in which every cloud deletes it twice again. But nobody can tell
# that a request to put an object will never take effect: one that does so after that day leaves an object
# that nothing names. So they are looked for only on command, by listing the clouds, and deleted only on
# another command: a copy of this device's state that runs elsewhere has the same keys, and values that are
# not named here.
#
# =========  ===========================================================================================
# unnamed    of this store, but of a write that its metadata do not know (any more)
# former     of another store that this device's key has made: its metadata are lost, or can be restored
# of others  of stores of other devices, or of one that was made here before ids of stores told their device
# =========  ===========================================================================================
#
# Why nothing is deleted that the metadata name. Let X be an object of this store that is deleted here, of
# write W. It was listed after the numbers of writes had been raised far above all that any backup can have
# led to, so if W had its number from this database, then before that, and W was under way from that moment
# (`Collector.draw`) until it was recorded. Hence X is spared if W is under way when that is looked at, after
# the listing; otherwise W has ended, and its name can only go from `entry` to `garbage`, from there to
# `owed_deletion`, to `repetition`, and away. They are read in this order, so that it is seen if it is in any
# of them throughout.


_MOST_NAMES: Final = 1_000_000  # of one cloud
_BATCH: Final = 500  # names


class UnnamedValues(Struct):
    """The names of objects by cloud, or how many there are on all clouds together."""

    unnamed: dict[int, list[str]] = field(default_factory=dict)
    former: dict[int, list[str]] = field(default_factory=dict)
    of_others: int = 0
    unlisted: dict[int, str] = field(default_factory=dict)
    """Why it is not known, by cloud."""

    @property
    def counts(self) -> tuple[int, int]:
        """How many objects are unnamed, and how many are of former stores."""
        return sum(map(len, self.unnamed.values())), sum(map(len, self.former.values()))


class Orphans:
    """Looks, and deletes. *store*: what this device has now, if any; *key*: what its stores are made with;
    *trusted*: the clouds that are this volume's."""

    def __init__(
        self,
        store: DeviceStore | None,
        key: bytes,
        upkeep: Upkeep,
        trusted: Collection[int],
    ) -> None:
        self._store = store
        self._key = key
        self._upkeep = upkeep
        self._trusted = trusted

    def look(self) -> UnnamedValues:
        """List the clouds; nothing is changed. Raises DamagedError when the metadata cannot all be read."""
        listed = {
            cloud: self._upkeep.names(cloud, VALUE_PREFIX, _MOST_NAMES) for cloud in sorted(self._trusted)
        }
        return find_orphans(listed, self._key, self._store)

    def delete(self, *, former: bool) -> tuple[UnnamedValues, int, dict[str, str]]:
        """Delete what is unnamed, and with *former* the values of former stores.

        Returns what was found, how many objects were deleted, and why not, by name of the cloud. Raises
        DamagedError.
        """
        found = self.look()
        if self._store is not None and found.unnamed:
            self._store.metadata.skip_writes()
            found = self.look()
        wanted: dict[int, list[str]] = {}
        for kind in (found.unnamed, found.former if former else {}):
            for cloud, names in kind.items():
                wanted.setdefault(cloud, []).extend(names)
        deleted, failed = 0, dict(found.unlisted)
        for cloud, names in wanted.items():
            for start in range(0, len(names), _BATCH):
                some = names[start : start + _BATCH]
                refusal = self._upkeep.delete(cloud, some)
                if refusal is not None:
                    failed[cloud] = refusal
                    break
                deleted += len(some)
                for name in some:
                    self._upkeep.excuse(cloud, name)
        log.info("%d objects of values that nothing names were deleted", deleted)
        return found, deleted, self.by_name(failed)

    def by_name(self, reasons: Mapping[int, str]) -> dict[str, str]:
        """Reasons by the names of clouds."""
        return self._upkeep.by_name(reasons)


def find_orphans(
    listed: Mapping[int, list[str] | None], key: bytes, store: DeviceStore | None
) -> UnnamedValues:
    """Sort what the clouds claim to have; None for one that does not tell. Other names count as nothing.

    Raises DamagedError.
    """
    found = UnnamedValues()
    own = None if store is None else store.metadata.store_id
    unknown = {
        parsed[1]
        for names in listed.values()
        for parsed in map(parse_value_name, names or ())
        if parsed is not None and parsed[0] == own
    }
    if store is not None:
        for label in _known(store):
            unknown.discard(label)
    for cloud, names in listed.items():
        if names is None:
            found.unlisted[cloud] = "it does not list its objects"
            continue
        for name in names:
            parsed = parse_value_name(name)
            if parsed is None:
                continue
            made_by, label = parsed
            if made_by == own:
                if label in unknown:
                    found.unnamed.setdefault(cloud, []).append(name)
            elif is_own_store(key, made_by):
                found.former.setdefault(cloud, []).append(name)
            else:
                found.of_others += 1
    return found


def _known(store: DeviceStore) -> Iterator[bytes]:
    """The labels of all writes that may have objects; in the order that the module explains."""
    metadata, label = store.metadata, store.sealer.label
    yield from map(label, store.collector.under_way())
    for found in metadata.values():
        if found.entry is None:
            raise DamagedError(
                "it is unknown which values are named", "a record of kv.db is damaged", DAMAGE_ADVICE
            )
        yield label(found.entry.objects)
    after = 0
    while garbage := metadata.garbage(after, _BATCH):
        yield from (label(one.write) for one in garbage)
        after = garbage[-1].write
    yield from map(label, metadata.owed_writes())
    after = 0
    while repeated := metadata.repeated(after, _BATCH):
        for one in repeated:
            with contextlib.suppress(DecodeError):  # then its objects, if any are left, are unnamed
                yield from (label(write) for write, _ in unpack_writes(one.writes))
        after = repeated[-1].number
