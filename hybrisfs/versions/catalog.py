"""The versions of a file by its path, and what was removed from a folder.

Programs save a file by writing another and giving it the name, so the versions of a path are those of all
files that ever had the name there; and those of the file that has it now, from when it was called otherwise.

A path counts as a whole: what is at `a/b` is what was called `b` in a folder while that was called `a`. So
there are no more paths than there were, however many names the folders on the way have had.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hybrisfs.kinds import NODE, PLACE
from hybrisfs.merge.names import is_conflict_name
from hybrisfs.merge.rules import decode_place, standing_attr
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, Place, attr_key, beginning, content_key, removed_place
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import Snapshot
from hybrisfs.state.shown_nodes import has_copies, path_along, way_up
from hybrisfs.state.versions import (
    FOREVER,
    Interval,
    intervals_of,
    intervals_of_all,
    intervals_with_prefix,
    places_in_time,
    removed_at,
)
from hybrisfs.versions.contents import size_of
from hybrisfs.versions.retention import RetentionRule
from hybrisfs.versions.thinning import removed_since
from hybrisfs.versions.tree import VersionNode, VersionRegisters, VersionTree, as_one

__all__ = ["Catalog", "Removed", "Stay", "Version"]

_DEEPEST: Final = 4096
_AT_ONCE: Final = 500  # registers that are looked up

Window: TypeAlias = tuple[int, int]
"""The moments from the first on and before the second."""


class Version(Struct, frozen=True):
    """A content that a file had. *since* and *until*: moments, *until* None: it has it still. *signed*: by
    the clock of *device*. *path*: where the file was then. *kept_until*: None while it is what is shown."""

    node: bytes
    content: bytes | None
    size: int
    since: int
    until: int | None
    signed: int
    device: str
    path: str
    kept_until: int | None


class Removed(Struct, frozen=True):
    """Something that was removed: its path, the last moment at which it was removed, and by whom. *kind*:
    "file", "folder", or "emptied" of a file that is there, with the size that it had."""

    node: bytes
    path: str
    kind: str
    size: int
    moment: int
    device: str
    kept_until: int


class Stay(Struct, frozen=True):
    """While a node stood under a name."""

    node: bytes
    place: Place
    stamp: Stamp
    since: int
    until: int | None

    @property
    def end(self) -> int:
        return FOREVER if self.until is None else self.until

    def during(self, windows: Iterable[Window]) -> Iterator[Stay]:
        """The parts of it that are within one of the windows."""
        for since, end in windows:
            if max(since, self.since) < min(end, self.end):
                until = min(end, self.end)
                yield replace(self, since=max(since, self.since), until=None if until == FOREVER else until)


class Catalog:
    """Looks things up in the snapshot *db*."""

    def __init__(self, db: Snapshot, rule: RetentionRule) -> None:
        self._db = db
        self._rule = rule

    def versions(self, path: Sequence[bytes]) -> list[Version]:
        """The versions of a file, given by the names of its path, the latest first; what it has now
        included. None when there is no such file and was none."""
        found: dict[tuple[bytes, Stamp], Version] = {}
        for stay in self.stays(path):
            if self._is_directory(stay.node):
                continue
            whole = stay.until is None  # it has the name now: its former names' versions as well
            for one in self._contents_at(path, stay):
                if whole or (one.since < stay.end and stay.since < one.end):
                    version = self._version(stay, one)
                    known = found.get((stay.node, one.stamp))
                    if known is None or (known.until or FOREVER) < (version.until or FOREVER):
                        found[stay.node, one.stamp] = version
        return sorted(found.values(), key=lambda one: (one.since, one.signed), reverse=True)

    def kept(self, path: Sequence[bytes], now: int) -> list[Version]:
        """Those of `versions` that are kept beyond *now* (ns since the epoch): the others go within the
        hour."""
        return [one for one in self.versions(path) if one.kept_until is None or one.kept_until > now]

    def _version(self, stay: Stay, content: Interval) -> Version:
        since = content.since
        until = min(content.end, stay.end)
        ended = None if until == FOREVER else until
        author = VersionRegisters(self._db, since).author(content.stamp)
        return Version(
            stay.node,
            content.value,
            size_of(content.value),
            since,
            ended,
            author.time_ns,
            author.device,
            self.path_then(stay.node, since if stay.until is None else max(since, stay.since)),
            None if ended is None else self._kept_until(stay, content),
        )

    def _kept_until(self, stay: Stay, content: Interval) -> int:
        """A version goes when either of its name and its content goes."""
        until = min(content.end, stay.end)
        of_content = self._rule.kept_until(content.since, until)
        if stay.until is None:
            return of_content
        return min(of_content, self._rule.kept_until(stay.since, stay.end))

    def _contents_at(self, path: Sequence[bytes], stay: Stay) -> list[Interval]:
        """Those that a node had, but for concurrent ones that are shown under other names now."""
        found = self._contents(stay.node)
        if stay.until is not None or sum(one.until is None for one in found) < 2:
            return found
        shown = self._now(_present(self._folders(path[:-1]))).get(path[-1])
        if shown is None:
            return found
        return [one for one in found if one.until is not None or one.value == shown.content]

    def _contents(self, node: bytes) -> list[Interval]:
        return intervals_of(self._db, content_key(node))

    # -- names -----------------------------------------------------------------------------------

    def stays(self, path: Sequence[bytes]) -> list[Stay]:
        """While which nodes stood at a path. Folders that have had one name count as one. Of a conflict copy:
        while it wanted the name that another has."""
        folders = self._folders(path[:-1])
        found = [
            stay
            for folder, windows in folders.items()
            for one in self._named(folder, path[-1])
            for stay in one.during(windows)
        ]
        standing = {one.node for one in found if one.until is None}
        if len(standing) > 1:
            copies = self._elsewhere(_present(folders), path[-1])
            return [one for one in found if one.until is not None or one.node not in copies]
        if found or not is_conflict_name(path[-1]):
            return found
        return [one for node in self._copies(folders, path) for one in self._stays_of(node)]

    def _elsewhere(self, folders: Collection[bytes], name: bytes) -> set[bytes]:
        """The nodes that are shown in a folder now, but not under this name."""
        now = self._now(folders)
        here = now.pop(name).ids if name in now else ()
        return {node for shown in now.values() for node in shown.ids}.difference(here)

    def _now(self, folders: Collection[bytes]) -> dict[bytes, VersionNode]:
        return VersionTree(self._db, FOREVER - 1).children(as_one(folders))

    def _copies(self, folders: dict[bytes, list[Window]], path: Sequence[bytes]) -> set[bytes]:
        """What is shown under a conflict name, or was when it was removed."""
        shown = self._now(_present(folders)).get(path[-1])
        if shown is not None:
            return set(shown.ids) if shown.copy_of is None else {shown.copy_of}
        wanted = os.fsdecode(b"/".join(path))
        return {one.node for one in self.removed(path[:-1]) if one.path == wanted}

    def _stays_of(self, node: bytes) -> list[Stay]:
        return self._stays(intervals_with_prefix(self._db, PLACE.key(node)))

    def names(self, path: Sequence[bytes]) -> dict[bytes, set[bytes]]:
        """The names that anything has had in a folder, those of conflict copies included that are there now,
        and what has had each."""
        found: dict[bytes, set[bytes]] = {}
        standing: set[tuple[bytes, bytes]] = set()  # name and node
        folders = self._folders(path)
        for folder, windows in folders.items():
            for one in self._stays(places_in_time(self._db, folder)):
                if one.place.parent == folder:
                    for stay in one.during(windows):
                        found.setdefault(stay.place.name, set()).add(stay.node)
                        if stay.until is None:
                            standing.add((stay.place.name, stay.node))
        if has_copies(self._db) or len(standing) > len({name for name, _ in standing}):
            for name, shown in self._now(_present(folders)).items():
                found.setdefault(name, set(shown.ids))
        return found

    def _folders(self, path: Sequence[bytes]) -> dict[bytes, list[Window]]:
        """The folders that have stood at a path, and when. A removed folder counts as standing there all the
        same: a device may have put something into it at the same time, and then it does."""
        folders: dict[bytes, list[Window]] = {ROOT_ID: [(0, FOREVER)]}
        for name in path:
            found: dict[bytes, list[Window]] = {}
            for folder, windows in folders.items():
                for one in self._named(folder, name, removed=True):
                    found.setdefault(one.node, []).extend(
                        (stay.since, stay.end) for stay in one.during(windows)
                    )
            folders = {
                node: _joined(windows)
                for node, windows in found.items()
                if windows and self._is_directory(node)
            }
        return folders

    def _named(self, folder: bytes, name: bytes, *, removed: bool = False) -> list[Stay]:
        stays = self._stays(places_in_time(self._db, beginning(folder, name)), removed=removed)
        return [one for one in stays if (one.place.parent, one.place.name) == (folder, name)]

    def _stays(self, known: Mapping[bytes, list[Interval]], *, removed: bool = False) -> list[Stay]:
        """Stays by what place registers said. A removal is none unless it is asked for, too, or a device that
        did not know of it edited the file."""
        found: list[Stay] = []
        removals: list[Stay] = []
        for key, values in known.items():
            for one in values:
                place = decode_place(Value(one.stamp, one.value))
                if place is not None:
                    stay = Stay(key[NODE], place, one.stamp, one.since, one.until)
                    (found if removed or not place.removed else removals).append(stay)
        return found + self._revived(removals)

    def _revived(self, removals: Sequence[Stay]) -> list[Stay]:
        """While nodes stood where they had been removed: from the first edit on that came after that."""
        found: list[Stay] = []
        keys = list({content_key(one.node) for one in removals})
        edits = dict(self._by_key(keys))
        for one in removals:
            after = [edit.since for edit in edits.get(content_key(one.node), ()) if edit.since > one.since]
            since = min(after, default=FOREVER)
            until = one.until or self._gone_since(one.node) if after else since
            if until is None or since < until:
                found.append(replace(one, place=one.place.restored(), since=since, until=until))
        return found

    def _gone_since(self, node: bytes) -> int | None:
        """When a node was removed for good; None while it lives."""
        if VersionTree(self._db, FOREVER - 1).lives(node):
            return None
        return removed_at(self._db, node) or 0

    def _is_directory(self, node: bytes) -> bool:
        return stat.S_ISDIR(self._mode(node))

    def _mode(self, node: bytes) -> int:
        attr = self.attr(node)
        return 0 if attr is None else attr.mode

    def attr(self, node: bytes) -> Attr | None:
        """The latest attributes of a node; None when none are known."""
        values = intervals_of(self._db, attr_key(node))
        standing = standing_attr([Value(one.stamp, one.value) for one in values])
        return None if standing is None else standing[1]

    def path_then(self, node: bytes, moment: int) -> str:
        """Where a node was at a moment, below the volume's root."""
        registers = VersionRegisters(self._db, moment)

        def place_of(node: bytes) -> tuple[bytes, bytes] | None:
            values = chain.from_iterable(registers.with_prefix(PLACE.key(node)).values())
            places = [place for one in values if (place := decode_place(one)) is not None]
            first = min(places, key=lambda one: (one.removed, one.parent, one.name), default=None)
            return None if first is None else (first.parent, first.name)

        return os.fsdecode(path_along(islice(way_up(node, (ROOT_ID,), place_of), _DEEPEST)))

    # -- what was removed ------------------------------------------------------------------------

    def removed(self, path: Sequence[bytes]) -> list[Removed]:
        """What was removed from a folder and is kept, the last removal first. What programs save by putting
        another file in its place is not meant."""
        found: dict[str, Removed] = {}
        folders = self._folders(path)
        for folder in folders:
            gone = places_in_time(self._db, folder)
            for key, values in gone.items():
                for one in values:
                    place = removed_place(one.value)
                    if one.until is None and place is not None:
                        self._add_removed(found, folders, Stay(key[NODE], place, one.stamp, one.since, None))
            left = [key for key, values in gone.items() if all(one.until is not None for one in values)]
            for removal in self._removed_elsewhere(folder, left):
                self._add_removed(found, folders, removal)
        return sorted(found.values(), key=lambda one: one.moment, reverse=True)

    def _removed_elsewhere(self, folder: bytes, places: Sequence[bytes]) -> Iterator[Stay]:
        """Removals of what stood in the folder last, by devices that say that it was somewhere else."""
        for key, values in self._by_key(places):
            present = [one for one in values if one.until is None]
            named = [
                (one.end, place)
                for one in values
                if (place := decode_place(Value(one.stamp, one.value))) is not None and not place.removed
            ]
            if not present or any(removed_place(one.value) is None for one in present) or not named:
                continue
            last = max(named, key=lambda one: one[0])[1]
            if last.parent == folder:
                removal = max(present, key=lambda one: one.since)
                yield Stay(key[NODE], last.left(), removal.stamp, removal.since, None)

    def _by_key(self, keys: Sequence[bytes]) -> Iterator[tuple[bytes, list[Interval]]]:
        """All values ever known of registers."""
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            yield from intervals_of_all(self._db, some).items()

    def emptied(self, path: Sequence[bytes]) -> list[Removed]:
        """The files in a folder that are empty and were not, the last emptied first: as they were before."""
        found: list[Removed] = []
        for folder in _present(self._folders(path)):
            stays = self._stays(places_in_time(self._db, folder))
            here = {
                content_key(one.node): one
                for one in stays
                if one.until is None and one.place.parent == folder
            }
            for key, values in self._by_key(list(here)):
                present = [one for one in values if one.until is None]
                before = [one for one in values if one.until is not None and size_of(one.value)]
                if not present or not before or any(size_of(one.value) for one in present):
                    continue
                last, now = max(before, key=lambda one: one.end), max(present, key=lambda one: one.since)
                found.append(
                    Removed(
                        here[key].node,
                        os.fsdecode(b"/".join([*path, here[key].place.name])),
                        "emptied",
                        size_of(last.value),
                        now.since,
                        VersionRegisters(self._db, now.since).author(now.stamp).device,
                        self._rule.kept_until(last.since, last.end),
                    )
                )
        return sorted(found, key=lambda one: one.moment, reverse=True)

    def _add_removed(self, found: dict[str, Removed], folders: Collection[bytes], removal: Stay) -> None:
        node = removal.node
        moment = removed_at(self._db, node)
        path = None if moment is None else self._path_before(folders, removal)
        if moment is None or path is None or (path.name in found and found[path.name].moment >= moment):
            return
        contents = [one for one in self._contents(node) if one.until is None]
        found[path.name] = Removed(
            node,
            str(path),
            "folder" if self._is_directory(node) else "file",
            size_of(contents[0].value if contents else None),
            moment,
            VersionRegisters(self._db, removal.since).author(removal.stamp).device,
            self._rule.kept_until(removed_since(self._db, node, moment), moment),
        )

    def _path_before(self, folders: Collection[bytes], removal: Stay) -> PurePosixPath | None:
        """Where a node was before a removal; None when it was nowhere, or another has taken its place."""
        place, before = removal.place, removal.since - 1
        then = self.path_then(removal.node, before)
        if not then:
            return None
        path = PurePosixPath(then)
        others = [one for one in self._named(place.parent, place.name) if one.until is None]
        if not others:
            return path
        if all(one.since >= removal.since for one in others):
            return None
        for name, shown in VersionTree(self._db, before).children(as_one(folders)).items():
            if removal.node in shown.ids and name != place.name:  # a conflict copy
                return path.with_name(os.fsdecode(name))
        return None


def _present(folders: dict[bytes, list[Window]]) -> set[bytes]:
    """Those of the folders that are there now."""
    return {folder for folder, windows in folders.items() if windows[-1][1] == FOREVER}


def _joined(windows: Iterable[Window]) -> list[Window]:
    """The same moments in order, in as few windows as possible."""
    found: list[Window] = []
    for since, end in sorted(windows):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((since, end))
    return found
