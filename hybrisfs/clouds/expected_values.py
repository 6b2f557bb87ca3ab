"""What the clouds are known to hold of the key-value store: looked at, mended, checked.

A store that cannot be opened, or a record that cannot be read, is itself what is found wrong, on this device:
the rest of the volume is gone over all the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from functools import partial
from typing import Final, TypeAlias

from hybrisfs.dispersal.finding import Finding
from hybrisfs.dispersal.restoring import Repair
from hybrisfs.dispersal.upkeep import WrongObject
from hybrisfs.errors import HybrisError
from hybrisfs.kv.opening import KeyValues
from hybrisfs.kv.rmds import Found
from hybrisfs.kv.seal import is_value_name
from hybrisfs.kv.store import KeyValueStore

__all__ = ["HERE", "ExpectedValues", "cloud_name"]

HERE: Final = -1
"""Stands for this device where a number names a cloud."""

Look: TypeAlias = Callable[[], tuple[int, Finding | None, bool]]
"""Looks at one object: the cloud, what is wrong, and whether it is the last one of its value."""

_ADVICE: Final = "restore kv.db from a backup, or run hybrisfs kv rebuild"


def cloud_name(cloud: int, names: Mapping[int, str]) -> str:
    """What a cloud is called, for people."""
    return "this device" if cloud == HERE else names.get(cloud, f"cloud {cloud}")


class ExpectedValues:
    """The values of one volume's store on this device. Thread-safe."""

    def __init__(self, key_values: KeyValues) -> None:
        self._key_values = key_values

    def count(self) -> int:
        """About how many values there are; 0 when that cannot be told."""
        try:
            store = self._key_values.existing()
        except HybrisError:
            return 0
        return 0 if store is None else store.metadata.count()

    def looks(self, percent: float = 100.0) -> Iterator[Look]:
        """A look at each share of the values, or of a random sample of so many per cent of them."""
        try:
            opened = self._key_values.mender()
            if opened is None:
                return
            for found in opened[0].metadata.values():
                if found.entry is None:
                    yield partial(_already_seen, _damaged(opened[0], found))
                elif random.random() * 100 < percent:
                    last = len(found.entry.placement) - 1
                    for index, cloud in enumerate(found.entry.placement):
                        look = partial(opened[1].look_at, found.place, found.entry, index)
                        yield partial(_look, cloud, look, index == last)
        except HybrisError as error:
            yield partial(_already_seen, _closed(error))

    def mends(self, writable: Container[int]) -> Iterator[Callable[[], list[Repair]]]:
        """For each value what verifies it and puts right what is wrong. See `ValueMender.mend`."""
        try:
            opened = self._key_values.mender()
            if opened is None:
                return
            for found in opened[0].metadata.values():
                if found.entry is None:
                    yield partial(_not_mended, _damaged(opened[0], found))
                else:
                    yield partial(opened[1].mend, found.place, found.entry, writable=writable, move=True)
        except HybrisError as error:
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
        opened = self._key_values.mender()
        if opened is None:
            return
        store, mender = opened
        left = {(one.cloud, one.name) for one in wrong}
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
        mender.excuse(left)

    def checks(self) -> Iterator[tuple[int, Callable[[], str | None]]]:
        """Each share of the values: its cloud, and what says what is wrong with it."""
        opened = self._key_values.mender()
        for found in opened[0].metadata.values() if opened is not None else ():
            if opened is not None and found.entry is not None:
                for index, cloud in enumerate(found.entry.placement):
                    yield cloud, partial(_what, partial(opened[1].look_at, found.place, found.entry, index))

    def problems(self) -> tuple[int, list[str]]:
        """How many keys with values there are, and what is wrong with the store's database, in sentences."""
        try:
            store = self._key_values.existing()
            if store is None:
                return 0, []
            problems = store.metadata.problems()
            keys = list(store.metadata.values()) if not problems else []
        except HybrisError as error:
            return 0, [_closed(error).what]
        return len(keys), problems + [_damaged(store, one).what for one in keys if one.entry is None]


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


def _closed(error: HybrisError) -> Finding:
    return Finding("unreadable", f"the values of the key-value store cannot be looked after: {error}")
