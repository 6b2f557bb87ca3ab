"""Values on the clouds that no metadata name: after `kv.db` was restored from a backup, or lost.

An intact store leaves none: what it writes is in the metadata before it is on any cloud, until every cloud
has deleted it. So they are looked for only on command, by listing the clouds, and deleted only on another
command: a copy of this device's state that runs elsewhere has the same keys, and values that
are not named here.

=========  ===========================================================================================
unnamed    of this store, but of a write that its metadata do not know (any more)
former     of another store that this device's key has made: its metadata are lost, or can be restored
of others  of stores of other devices, or of one that was made here before ids of stores told their device
=========  ===========================================================================================

Why nothing is deleted that the metadata name. Let X be an object of this store that is deleted here, of
write W. It was listed after the numbers of writes had been raised far above all that any backup can have
led to, so if W had its number from this database, then before that, and W was under way from that moment
(`Collector.draw`) until it was recorded. Hence X is spared if W is under way when that is looked at, after
the listing; otherwise W has ended, and its name can only go from `entry` to `garbage`, from there to
`owed_deletion`, and away. They are read in this order, so that it is seen if it is in any of them
throughout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from hybrisfs.dispersal.upkeep import Upkeep
from hybrisfs.errors import DamagedError
from hybrisfs.kv.errors import DAMAGE_ADVICE
from hybrisfs.kv.seal import VALUE_PREFIX, is_own_store, parse_value_name
from hybrisfs.kv.store import KeyValueStore

__all__ = ["Orphans", "UnnamedValues", "find_orphans"]

log = logging.getLogger(__name__)

_MOST_NAMES: Final = 1_000_000  # of one cloud
_BATCH: Final = 500  # names


@dataclass(slots=True)
class UnnamedValues:
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
    *trusted* tells which clouds are this volume's."""

    def __init__(
        self,
        store: KeyValueStore | None,
        key: bytes,
        upkeep: Upkeep,
        trusted: Callable[[], Collection[int]],
    ) -> None:
        self._store = store
        self._key = key
        self._upkeep = upkeep
        self._trusted = trusted

    def look(self) -> UnnamedValues:
        """List the clouds; nothing is changed. Raises DamagedError when the metadata cannot all be read."""
        listed = {
            cloud: self._upkeep.names(cloud, VALUE_PREFIX, _MOST_NAMES) for cloud in sorted(self._trusted())
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
    listed: Mapping[int, list[str] | None], key: bytes, store: KeyValueStore | None
) -> UnnamedValues:
    """Sort what the clouds claim to have; None for one that does not tell. Other names count as nothing.

    Raises DamagedError.
    """
    found = UnnamedValues()
    own = None if store is None else store.metadata.store_id
    known = set() if store is None else _known(store)
    for cloud, names in listed.items():
        if names is None:
            found.unlisted[cloud] = "it does not tell what it has"
            continue
        for name in names:
            parsed = parse_value_name(name)
            if parsed is None:
                continue
            made_by, label = parsed
            if made_by == own:
                if label not in known:
                    found.unnamed.setdefault(cloud, []).append(name)
            elif is_own_store(key, made_by):
                found.former.setdefault(cloud, []).append(name)
            else:
                found.of_others += 1
    return found


def _known(store: KeyValueStore) -> set[bytes]:
    """The labels of all writes that may have objects; in the order that the module explains."""
    metadata, label = store.metadata, store.sealer.label
    known = {label(write) for write in store.collector.under_way()}
    for found in metadata.values():
        if found.entry is None:
            raise DamagedError(
                "it cannot be told which values are named", "a record of kv.db is damaged", DAMAGE_ADVICE
            )
        known.add(label(found.entry.objects))
    after = 0
    while garbage := metadata.garbage(after, _BATCH):
        known.update(label(one.write) for one in garbage)
        after = garbage[-1].write
    known.update(label(write) for write in metadata.owed_writes())
    return known
