"""The version of a file that all of its conflicting versions come from, for a three-way merge.

A merge finds by it what each has changed. A version that is older than need be makes more of the changes
meet, but loses none of them. With a newer one, what a program never had looks as if the program had taken it
away. So it is not enough that a device had seen a version: what a program writes is signed a moment later,
after updates that the program did not know. A file comes from a version

* that is an earlier content of the same node, and that the update which wrote the content had seen: what a
  program writes to a node that has another content by then is split off (`merge.resolution`);
* that is a content of a node which lost the name by the very update that gave it to the file, or to one from
  which the file comes: so programs save, by another file in its place. This update had seen it. That the
  program had, too, is *certain* when the update before on the same branch had seen it.

The version before is the last from which all come for certain; there is none when several are, as devices
have merged already, in two ways. When none is certain, it is the first that is known from which all come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from hybrisfs.kinds import NODE
from hybrisfs.merge.rules import decode_place
from hybrisfs.registers.tree import Place, beginning, content_key
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import Snapshot
from hybrisfs.state.stored_log import clock_before, vector_of
from hybrisfs.state.versions import Interval, intervals_of, places_in_time
from sync import VersionVector

__all__ = ["Side", "version_before"]

_MOST: Final = 500  # versions of a side


class Side(NamedTuple):
    """One of the versions that are in conflict: a content that a node has."""

    node: bytes
    content: Value


class _Version(NamedTuple):
    stamp: Stamp
    node: bytes
    value: bytes


def version_before(
    db: Snapshot,
    folders: Iterable[bytes],
    name: bytes,
    sides: Sequence[Side],
    is_usable: Callable[[bytes], bool],
) -> bytes | None:
    """The value of the content register that all *sides* come from; None when none is known. *folders*: the
    ids of the folder in which they want this *name*, several when folders are merged. *is_usable*: whether
    such a value can be read here."""
    past = _Past(db, folders, name)
    origins = [past.origins(side) for side in sides]
    common = sorted(set(origins[0]).intersection(*origins[1:]))
    common = [one for one in common if is_usable(one.value)]
    certain = [one for one in common if all(found[one] for found in origins)]
    if certain:
        last = certain[-1]
        is_one = all(past.depends(last.stamp, one.stamp) for one in certain)
        return last.value if is_one else None
    return common[0].value if common else None


class _Past:
    """What has had a name in a folder, and which updates gave it to what."""

    def __init__(self, db: Snapshot, folders: Iterable[bytes], name: bytes) -> None:
        self._db = db
        self._where = {(folder, name) for folder in folders}
        self._vectors: dict[Stamp, VersionVector | None] = {}
        self._named: dict[bytes, set[Stamp]] = {}  # by node: the updates that gave it the name
        self._left: dict[Stamp, set[bytes]] = {}  # by update: the nodes from which it took the name
        for folder, _ in self._where:
            for key in places_in_time(db, beginning(folder, name)):
                self._note(key[NODE], intervals_of(db, key))

    def _note(self, node: bytes, places: Iterable[Interval]) -> None:
        for one in places:
            place = _place(one)
            if place is None:
                continue
            if (place.parent, place.name) in self._where and not place.removed:
                self._named.setdefault(node, set()).add(one.stamp)
            else:
                self._left.setdefault(one.stamp, set()).add(node)

    def origins(self, side: Side) -> dict[_Version, bool]:
        """The versions from which a side comes, and whether that is certain."""
        found: dict[_Version, bool] = {}
        written = side.content.stamp
        for one in self._contents(side.node, written):
            found[one] = True
        named = {
            one
            for one in self._named.get(side.node, ())
            if self.depends(written, one) or self.depends(one, written)
        }
        waiting = [(side.node, one) for one in named]
        seen = set(waiting)
        while waiting and len(found) < _MOST:
            node, named_by = waiting.pop()
            before = clock_before(self._db, *named_by)
            for former in self._left.get(named_by, ()):
                if former == node:
                    continue
                for one in self._contents(former, named_by):
                    is_certain = before is not None and self.depends(
                        Stamp(before, named_by.branch), one.stamp
                    )
                    found[one] = found.get(one, False) or is_certain
                for earlier in self._named.get(former, ()):
                    if self.depends(named_by, earlier) and (former, earlier) not in seen:
                        seen.add((former, earlier))
                        waiting.append((former, earlier))
        return found

    def _contents(self, node: bytes, seen_by: Stamp) -> Iterator[_Version]:
        """The contents of a node that an update had seen."""
        for one in intervals_of(self._db, content_key(node)):
            if one.value is not None and self.depends(seen_by, one.stamp):
                yield _Version(one.stamp, node, one.value)

    def depends(self, later: Stamp, earlier: Stamp) -> bool:
        """Whether it is the same update, or who wrote the one had seen the other."""
        if later not in self._vectors:
            self._vectors[later] = vector_of(self._db, later.branch, later.clock)
        vector = self._vectors[later]
        return later == earlier or (vector is not None and vector[earlier.branch] >= earlier.clock)


def _place(one: Interval) -> Place | None:
    return decode_place(Value(one.stamp, one.value))
