"""The tree as it was at a moment: by the same rules as the view (`hybrisfs.merge`), but one folder at a time
and without rows of its own.

The labels that a node had are among its extended attributes, as programs see them.

A folder that stood elsewhere because it would have contained itself, or as its own folder was unknown, is
looked for among those that do so now.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from hybrisfs.kinds import LABEL, NODE
from hybrisfs.merge.names import Author
from hybrisfs.merge.resolver import Resolver
from hybrisfs.merge.rules import Contender, Entry, copy_id, entries
from hybrisfs.registers.labels import ADDED, as_text, word_of
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, Place
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import Snapshot
from hybrisfs.state.shown_nodes import has_any, moved_nodes
from hybrisfs.state.stored_log import changed_spans, first_moment, latest_moment, signer_of, vector_of
from hybrisfs.state.versions import (
    Interval,
    intervals_of,
    intervals_with_prefix,
    known_since,
    places_in_time,
)
from hybrisfs.tree.facets import LABELS_XATTR
from hybrisfs.versions.retention import RetentionRule

__all__ = [
    "VersionNode",
    "VersionRegisters",
    "VersionTree",
    "as_one",
    "format_moment",
    "parse_moment",
    "whole_trees",
]

_FOLDER_MODE = 0o40755


class VersionNode(NamedTuple):
    """A file or folder as it was. *ids*: of the nodes that were merged, the shown one first. *content*:
    the value of its content register. *links*: how many names it had; 1 for folders. *copy_of*: the node of
    which this is a concurrent version."""

    ids: tuple[bytes, ...]
    attr: Attr
    content: bytes | None
    links: int
    copy_of: bytes | None = None

    @property
    def id(self) -> bytes:
        """The node's name on all devices; that of a concurrent version, see `merge.rules.copy_id`."""
        return self.ids[0]


def as_one(folders: Iterable[bytes]) -> VersionNode:
    """Folders, given by their ids, that are looked at as one."""
    return VersionNode(tuple(folders), Attr(_FOLDER_MODE, 0, 0, 0, 0), None, 1)


class VersionTree:
    """Answers about the tree at *moment* (ns since the epoch) from the snapshot *db*."""

    def __init__(self, db: Snapshot, moment: int) -> None:
        self._db = db
        self._registers = VersionRegisters(db, moment)
        self._resolver = Resolver(self._registers, NothingUnsigned(), self._registers)
        self._has_labels = has_any(db, LABEL)

    def root(self) -> VersionNode:
        """The volume's own folder."""
        attr = self.attr(ROOT_ID)
        return as_one((ROOT_ID,)) if attr is None else VersionNode((ROOT_ID,), attr, None, 1)

    def attr(self, node: bytes) -> Attr | None:
        """The attributes that a node had; None when it was unknown."""
        attr = self._resolver.attr(node)
        return attr if attr is None else self._with_labels(attr, (node,))

    def _with_labels(self, attr: Attr, nodes: Iterable[bytes]) -> Attr:
        """The attributes of what is seen as these nodes, and the labels that they had."""
        if not self._has_labels:
            return attr
        words = {
            word_of(key)
            for node in nodes
            for key, values in self._registers.with_prefix(LABEL.key(node)).items()
            if any(one.value == ADDED for one in values)
        }
        if not words:
            return attr
        labels = LABELS_XATTR, as_text(sorted(words, key=str.encode))
        return attr._replace(xattrs=(*attr.xattrs, labels))

    def lives(self, node: bytes) -> bool:
        """Whether a node had a name."""
        return bool(self._resolver.names(node))

    def find(self, path: Iterable[bytes]) -> VersionNode | None:
        """What was at a path, given by its names."""
        at: VersionNode | None = self.root()
        for name in path:
            if at is None or not self._resolver.is_directory(at.id):
                return None
            at = self.children(at).get(name)
        return at

    def children(self, folder: VersionNode) -> dict[bytes, VersionNode]:
        """What was in a folder, by name, in the order of names."""
        found = entries(self._contenders(folder.ids), self._resolver.copies_beside, self._registers.author)
        return {name: self._node(entry) for name, entry in sorted(found.items())}

    def _contenders(self, folders: Sequence[bytes]) -> dict[bytes, list[Contender]]:
        candidates = moved_nodes(self._db)
        for folder in folders:
            candidates.update(key[NODE] for key in self._registers.places_beginning(folder))
        found: dict[bytes, list[Contender]] = {}
        for node in candidates:
            for standing in self._resolver.names(node):
                if self._resolver.parent(node, standing) in folders:
                    found.setdefault(standing.place.name, []).append(self._resolver.contender(standing))
        return found

    def _node(self, entry: Entry) -> VersionNode:
        node = entry.node.id
        ids = node, *(one.id for one in entry.merged)
        attr = self._resolver.attr(node)
        assert attr is not None
        attr = self._with_labels(attr, ids)
        if entry.copy is not None:
            return VersionNode((copy_id(node, entry.copy.value),), attr, entry.copy.value, 1, node)
        if entry.node.is_directory:
            return VersionNode(ids, attr, None, 1)
        contents = self._resolver.contents(node)
        value = contents[0].value if contents else None
        return VersionNode((node,), attr, value, len(self._resolver.names(node)))


# -- the registers of the tree as they were at a moment, read from a snapshot of the database -----------
# A value counts when it had been written and not yet superseded at that moment. Where a register had only
# values that have been dropped since, the last one before these stands for them: what is shown was there at
# the moment or before, and nothing that came later.


class NothingUnsigned:
    """The `resolver.Unsigned` of the past: all was signed."""

    def places(self, node: bytes, slots: Iterable[int], *, others: bool = True) -> dict[int, Place | None]:
        return {}

    def attr(self, node: bytes) -> Attr | None:
        return None

    def content(self, node: bytes) -> bool:
        return False

    def children(self, directory: bytes) -> bool:
        return False


class VersionRegisters:
    """What registers held at *moment*, ns since the epoch. *db* is a snapshot."""

    def __init__(self, db: Snapshot, moment: int) -> None:
        self._db = db
        self._moment = moment

    def values(self, key: bytes) -> list[Value]:
        """The values of one register."""
        return self._then(intervals_of(self._db, key))

    def with_prefix(self, prefix: bytes) -> dict[bytes, list[Value]]:
        """The registers whose keys begin with *prefix*."""
        found = intervals_with_prefix(self._db, prefix)
        return {key: values for key, ends in found.items() if (values := self._then(ends))}

    def places_beginning(self, value: bytes) -> dict[bytes, list[Value]]:
        """Place registers that have had values which begin with *value* by then: these values, some of which
        may have been superseded."""
        found = places_in_time(self._db, value)
        then = {
            key: [Value(one.stamp, one.value) for one in ends if one.since <= self._moment]
            for key, ends in found.items()
        }
        return {key: values for key, values in then.items() if values}

    def _then(self, ends: Iterable[Interval]) -> list[Value]:
        begun = [one for one in ends if one.since <= self._moment]
        true = [one for one in begun if one.end > self._moment]
        if not true and begun:
            last = max(one.end for one in begun)
            true = [one for one in begun if one.end == last]
        return [Value(one.stamp, one.value) for one in true]

    def depends(self, later: Stamp, earlier: Stamp) -> bool:
        """Whether who wrote the one update had seen the other."""
        vector = vector_of(self._db, later.branch, later.clock)
        return vector is not None and vector[earlier.branch] >= earlier.clock

    def author(self, stamp: Stamp) -> Author:
        """Who wrote an update, and when."""
        signer = signer_of(self._db, stamp.branch, stamp.clock)
        return Author("?", 0) if signer is None else Author(signer.shown_name, signer.time_ns)


# -- moments as people write them: `2026-11-20`, `2026-11-20T18:00`, `2026-11-20T18:00:30Z` -------------
# Without a Z it is this machine's time. A day alone means its beginning.


_FORM: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?)?(Z?)")
_SECOND_NS: Final = 1_000_000_000


def parse_moment(text: str) -> int | None:
    """Nanoseconds since the epoch; None when it is not a moment."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(one or 0) for one in found.groups()[:6])
    zone = datetime.UTC if found[7] else None
    try:
        moment = datetime.datetime(year, month, day, hour, minute, second, tzinfo=zone)
        return int(moment.timestamp()) * _SECOND_NS
    except (ValueError, OverflowError, OSError):
        return None


def format_moment(moment: int) -> str:
    """In UTC, to the second, or to the minute when that is exact; `parse_moment` reads it."""
    time = datetime.datetime.fromtimestamp(moment // _SECOND_NS, datetime.UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ" if time.second else "%Y-%m-%dT%H:%MZ")


_MINUTE_NS: Final = 60 * _SECOND_NS
_HOUR_NS: Final = 60 * _MINUTE_NS
_MOST_RECENT: Final = 1000


def whole_trees(db: Snapshot, rule: RetentionRule, now: int, most: int = _MOST_RECENT) -> list[int]:
    """Moments of which the whole tree is kept by the *rule*, the latest first; all ns since the epoch.

    These are its rungs. Of the time of which every version is kept any moment would do: there are the ends
    of the minutes of the last hour in which something changed, before that of the hours, and the second after
    the latest change; of these only the last ones when there are more than *most*.
    """
    recent: list[int] = []
    if rule.every:
        recent += changed_spans(db, now - rule.every, _HOUR_NS)
        recent += changed_spans(db, now - min(rule.every, _HOUR_NS), _MINUTE_NS)
        recent.append((latest_moment(db) // _SECOND_NS + 1) * _SECOND_NS)
    known = max(first_moment(db) or 0, known_since(db))
    found = {*rule.rungs(now), *sorted(one for one in recent if one <= now)[-most:]}
    return sorted((one for one in found if known <= one <= now), reverse=True)
