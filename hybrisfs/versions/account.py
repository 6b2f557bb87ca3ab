"""Who changed what when, of one path: what the signed updates say that are still known here.

As with versions, a path is what it meant: of things that had the name only for a while, the account lists
what happened then; of the thing that has it now, all. It leaves out what the retention rule has dropped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from hybrisfs.kinds import LABEL, PLACE
from hybrisfs.merge.rules import decode_place, standing_attr
from hybrisfs.registers.labels import ADDED, word_of
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.served import VIA_XATTR, Via, parse_via
from hybrisfs.registers.tree import Attr, attr_key, content_key
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import Snapshot
from hybrisfs.state.versions import Interval, intervals_of, intervals_with_prefix
from hybrisfs.versions.catalog import Catalog, Stay
from hybrisfs.versions.contents import size_of
from hybrisfs.versions.tree import VersionRegisters

__all__ = ["Account", "Change"]

_MOST_FOLDERS: Final = 64
"""How many folders above what was removed are looked at."""


class Change(Struct, frozen=True):
    """What one update did to one node. *moment*: when it counts as signed, *signed*: by its device's clock,
    both ns since the epoch; *what*: in words."""

    moment: int
    signed: int
    device: str
    what: tuple[str, ...]


class Account:
    """Looks things up in the snapshot *db* that *catalog* looks things up in."""

    def __init__(self, db: Snapshot, catalog: Catalog) -> None:
        self._db = db
        self._catalog = catalog

    def changes(self, path: Sequence[bytes]) -> list[Change]:
        """What happened to what is or was at a path, given by its names, the latest first."""
        found: dict[tuple[bytes, Stamp], tuple[int, list[str]]] = {}
        for stay in self._catalog.stays(path):
            for stamp, moment, what in self._of_node(stay):
                if stay.until is None or stay.since <= moment <= stay.end:
                    words = found.setdefault((stay.node, stamp), (moment, []))[1]
                    if what not in words:
                        words.append(what)
        changes = []
        for (_, stamp), (moment, words) in found.items():
            author = VersionRegisters(self._db, moment).author(stamp)
            changes.append(Change(moment, author.time_ns, author.device, tuple(words)))
        return sorted(changes, key=lambda one: (one.moment, one.signed), reverse=True)

    def _of_node(self, stay: Stay) -> Iterator[tuple[Stamp, int, str]]:
        places = list(self._places(stay.node))
        yield from places
        yield from self._attributes(stay.node, {stamp for stamp, _, _ in places})
        yield from self._labels(stay.node)
        key = content_key(stay.node)
        for one in _in_order(intervals_of(self._db, key)):
            yield one.stamp, one.since, f"content: {size_of(one.value):,} bytes"

    def _places(self, node: bytes) -> Iterator[tuple[Stamp, int, str]]:
        slots = intervals_with_prefix(self._db, PLACE.key(node))
        known = _in_order([one for values in slots.values() for one in values])
        for number, one in enumerate(known):
            place = decode_place(Value(one.stamp, one.value))
            if place is None:
                continue
            verb = "removed" if place.removed else "named" if number else "made"
            yield one.stamp, one.since, f"{verb}: {self._shown(place.parent, place.name, one.since)}"
            via = self._remover(place.parent, one.stamp) if place.removed else None
            if via is not None:
                yield one.stamp, one.since, via.words

    def _remover(self, folder: bytes, stamp: Stamp) -> Via | None:
        """Over which protocol something in a folder was removed by one update, as far as that is noted: in
        the folder, or where that was removed by it, too, in the one above."""
        for _ in range(_MOST_FOLDERS):
            before: Via | None = None
            for one in _in_order(intervals_of(self._db, attr_key(folder))):
                standing = standing_attr([Value(one.stamp, one.value)])
                via = None if standing is None else _via(standing[1])
                if one.stamp == stamp and via is not None and via != before:
                    return via
                before = via
            above = self._removed_by(folder, stamp)
            if above is None:
                return None
            folder = above
        return None

    def _removed_by(self, node: bytes, stamp: Stamp) -> bytes | None:
        """The folder from which an update removed a node; None where it did not."""
        for values in intervals_with_prefix(self._db, PLACE.key(node)).values():
            for one in values:
                place = decode_place(Value(one.stamp, one.value)) if one.stamp == stamp else None
                if place is not None and place.removed:
                    return place.parent
        return None

    def _shown(self, parent: bytes, name: bytes, moment: int) -> str:
        folder = "" if parent == ROOT_ID else self._catalog.path_then(parent, moment)
        return os.path.join(folder, os.fsdecode(name))  # noqa: PTH118 - names need not make a path here

    def _attributes(self, node: bytes, named: set[Stamp]) -> Iterator[tuple[Stamp, int, str]]:
        """*named*: the updates that have given the node a place, or taken it."""
        key = attr_key(node)
        before: Attr | None = None
        for one in _in_order(intervals_of(self._db, key)):
            standing = standing_attr([Value(one.stamp, one.value)])
            if standing is None:
                continue
            changes = [] if before is None else list(_differences(before, standing[1]))
            for what in changes:
                yield one.stamp, one.since, what
            via = _via(standing[1])
            if via is not None and (before is None or via != _via(before)):
                within = stat.S_ISDIR(standing[1].mode) and not changes and one.stamp not in named
                yield one.stamp, one.since, f"something in it removed {via.words}" if within else via.words
            before = standing[1]

    def _labels(self, node: bytes) -> Iterator[tuple[Stamp, int, str]]:
        for key, values in intervals_with_prefix(self._db, LABEL.key(node)).items():
            for one in values:
                verb = "added" if one.value == ADDED else "removed"
                yield one.stamp, one.since, f"label {verb}: {word_of(key)}"


def _in_order(values: list[Interval]) -> list[Interval]:
    return sorted(values, key=lambda one: (one.since, one.stamp))


def _listed(attr: Attr) -> list[tuple[bytes, bytes]]:
    return [one for one in attr.xattrs if one[0] != VIA_XATTR]


def _via(attr: Attr) -> Via | None:
    """Over which protocol it was written, as far as that is noted."""
    value = dict(attr.xattrs).get(VIA_XATTR)
    return None if value is None else parse_via(value)


def _differences(before: Attr, after: Attr) -> Iterator[str]:
    old, new = stat.S_IMODE(before.mode), stat.S_IMODE(after.mode)
    if old != new:
        yield f"mode: {old:04o} -> {new:04o}"
    if (before.uid, before.gid) != (after.uid, after.gid):
        yield f"owner: {before.uid}:{before.gid} -> {after.uid}:{after.gid}"
    if _listed(before) != _listed(after):
        yield "extended attributes"
