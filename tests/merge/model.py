"""The visible tree as one function of all registers, written from the rules alone (`hybrisfs.merge.rules`).

It looks at everything at once, the real thing at what has changed: both must come to the same tree.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hybrisfs.filesystem.registers import Attr, Place, slot_of
from hybrisfs.merge.rules import (
    MOST_CONTENDERS,
    MOST_COPIES,
    MOST_NUMBER,
    Author,
    Contender,
    Stamp,
    Value,
    is_kept,
    judge,
    name_by_id,
    number_names,
    standing_place,
)
from hybrisfs.store.schema import ROOT_ID
from sync.codec import DecodeError, Writer

__all__ = ["Seen", "visible_tree"]

Registers = Mapping[bytes, list[Value]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What stands at a path: attributes, the content register's value, how many names it has, and the name
    that others have kept from it, if any."""

    attr: Attr
    content: bytes | None
    nlink: int
    beside: bytes | None


def _means_something(value: Value) -> bool:
    """Whether a correct device can have written it as attributes."""
    try:
        Attr.decode(value.value or b"")
    except DecodeError:
        return False
    return True


class _Name(NamedTuple):
    node: bytes
    slot: int
    stamp: Stamp
    place: Place


def visible_tree(
    registers: Registers, depends: Callable[[Stamp, Stamp], bool], author: Callable[[Stamp], Author]
) -> dict[bytes, Seen]:
    """By path, everything that a program on any device with these registers must see."""
    return _Model(registers, depends, author).tree()


class _Model:
    def __init__(
        self,
        registers: Registers,
        depends: Callable[[Stamp, Stamp], bool],
        author: Callable[[Stamp], Author],
    ) -> None:
        self._depends = depends
        self._author = author
        self._attrs: dict[bytes, Attr] = {}
        self._places: dict[bytes, list[_Name]] = {}
        self._contents: dict[bytes, list[Value]] = {}
        self._values: dict[bytes, list[Value]] = {}  # contents, equal ones too
        for key, values in registers.items():
            node = key[1:17]
            if key[:1] == b"a":
                meant = [one for one in values if _means_something(one)]
                if meant:
                    self._attrs[node] = Attr.decode(max(meant, key=lambda one: one.stamp).value or b"")
            elif key[:1] == b"c":
                self._values[node] = values
                ranked = sorted(values, key=lambda one: one.stamp, reverse=True)
                distinct = [
                    one for at, one in enumerate(ranked) if all(one.value != o.value for o in ranked[:at])
                ]
                self._contents[node] = distinct
            elif key[:1] == b"p":
                standing = standing_place(values)
                if standing is not None:
                    self._places.setdefault(node, []).append(_Name(node, slot_of(key), *standing))
        self._in: dict[bytes, list[_Name]] = {}
        self._names = self._living()
        self._parents = {
            (node, name.slot): self._parent(name) for node, names in self._names.items() for name in names
        }

    def _is_directory(self, node: bytes) -> bool:
        return node == ROOT_ID or (node in self._attrs and stat.S_ISDIR(self._attrs[node].mode))

    # -- who lives -------------------------------------------------------------------------------

    def _living(self) -> dict[bytes, list[_Name]]:
        """The names of all nodes that have any: removed directories join in while something lives in them."""
        names: dict[bytes, list[_Name]] = {}
        last: dict[bytes, _Name] = {}
        for node in self._places.keys() & self._attrs.keys() - {ROOT_ID}:
            places = self._places[node]
            if self._is_directory(node):
                last[node] = max(places, key=lambda one: (not one.place.removed, one.stamp))
                if not last[node].place.removed:
                    names[node] = [last[node]]
            else:
                found = [one for one in places if not one.place.removed] or self._edited_since(node, places)
                if found:
                    names[node] = found
        grown = True
        while grown:
            inhabited = {one.place.parent for some in names.values() for one in some}
            back = {node for node in last if node in inhabited and node not in names}
            names.update({node: [last[node]] for node in back})
            grown = bool(back)
        return names

    def _edited_since(self, node: bytes, places: list[_Name]) -> list[_Name]:
        """Where a file without a name stands again, unless somebody took the last knowing all there was."""
        known = [*(one.stamp for one in places), *(one.stamp for one in self._values.get(node, []))]
        for place in places:
            if all(one == place.stamp or self._depends(place.stamp, one) for one in known):
                return []
        return [max(places, key=lambda one: one.stamp)]

    # -- where they stand ------------------------------------------------------------------------

    def _named(self, name: _Name) -> bytes:
        parent = name.place.parent
        exists = parent == ROOT_ID or (self._is_directory(parent) and parent in self._places)
        return parent if exists else ROOT_ID

    def _way_up(self, directory: bytes) -> list[bytes]:
        """The directory and those above it, up to the root or to the first that comes again."""
        way = [directory]
        while way[-1] != ROOT_ID:
            above = self._named(self._names[way[-1]][0]) if way[-1] in self._names else ROOT_ID
            way.append(above)
            if above in way[:-1]:
                break
        return way

    def _parent(self, name: _Name) -> bytes:
        if not self._is_directory(name.node):
            return self._named(name)
        way = self._way_up(name.node)
        if way[-1] != name.node:
            return self._named(name)
        if name.node != max(way, key=lambda one: (self._names[one][0].stamp, one)):
            return self._named(name)
        former = name.place.former
        seen = former == ROOT_ID or (self._is_directory(former) and former in self._names)
        if not (former and seen):
            return ROOT_ID
        way = self._way_up(former)
        return former if way[-1] == ROOT_ID and len(way) <= 65 else ROOT_ID

    # -- what is seen ----------------------------------------------------------------------------

    def tree(self) -> dict[bytes, Seen]:
        """By path, what is seen."""
        found: dict[bytes, Seen] = {}
        for (node, slot), parent in self._parents.items():
            self._in.setdefault(parent, []).append(next(one for one in self._names[node] if one.slot == slot))
        self._walk(b"", [ROOT_ID], found)
        return found

    def _walk(self, path: bytes, folders: list[bytes], found: dict[bytes, Seen]) -> int:
        """Add what is below these folders, which are seen as one; how many directories are in it."""
        wanted: dict[bytes, list[Contender]] = {}
        for folder in folders:
            for name in self._in.get(folder, ()):
                wanted.setdefault(name.place.name, []).append(self._contender(name))
        directories = 0
        kept: set[bytes] = set()
        while True:  # until nobody has a name that somebody else is to keep
            called = {plain: self._called(plain, some, wanted.keys(), kept) for plain, some in wanted.items()}
            more = {at for plain, some in called.items() for at, _ in some if at != plain and is_kept(at)}
            if more == kept:
                break
            kept = more
        for plain, found_there in called.items():
            joined = [one.id for one in judge(wanted[plain])[0].joined]
            for at, one in found_there:
                where = path + b"/" + at if path else at
                assert where not in found, f"two nodes are called {where!r}"
                node, content, nlink = one
                if self._is_directory(node):
                    directories += 1
                    nlink = 2 + self._walk(where, [node, *joined], found)
                found[where] = Seen(self._attrs[node], content, nlink, None if at == plain else plain)
        return directories

    def _called(
        self, name: bytes, contenders: list[Contender], taken: Collection[bytes], kept: Collection[bytes]
    ) -> list[tuple[bytes, tuple[bytes, bytes | None, int]]]:
        """(name, (node, content, names)) of all that is shown under a name or beside it."""
        shown = [one.node for one in judge(contenders)]
        first = None if name in kept else shown[0]
        plain = [] if first is None else [(name, self._node(first.id))]
        if len(contenders) > MOST_CONTENDERS:
            others = (one for one in shown if one is not first)
            return plain + [(name_by_id(name, one.id, one.slot), self._node(one.id)) for one in others]
        losers: list[tuple[Stamp, bytes, int, tuple[bytes, bytes | None, int]]] = []
        copies: list[tuple[Stamp, bytes, int, tuple[bytes, bytes | None, int]]] = []
        for one in shown:
            if one is not first:
                losers.append((one.stamp, one.id, one.slot, self._node(one.id)))
            if not one.is_directory and one.slot == min(other.slot for other in self._names[one.id]):
                copies += [
                    (copy.stamp, one.id, one.slot, (one.id, copy.value, 1))
                    for copy in self._contents.get(one.id, [])[1:]
                ]
        losers += sorted(copies, key=lambda loser: loser[:3])[-MOST_COPIES:]
        losers.sort(key=lambda loser: loser[:3])
        authors = [self._author(stamp) for stamp, *_ in losers]
        names = number_names(name, authors, lambda one: one in taken and one not in kept, MOST_NUMBER)
        return [*plain, *zip(names, (loser[3] for loser in losers), strict=True)]

    def _node(self, node: bytes) -> tuple[bytes, bytes | None, int]:
        contents = self._contents.get(node)
        return node, contents[0].value if contents else None, len(self._names[node])

    def _contender(self, name: _Name) -> Contender:
        attr, contents = self._attrs[name.node], self._contents.get(name.node, [])
        alone = len(self._names[name.node]) == 1 and len(contents) < 2
        same = None
        if alone and not self._is_directory(name.node):
            value = contents[0].value if contents else None
            same = Writer().varint(attr.mode).varint(attr.rdev).blob(attr.target).raw(value or b"").getvalue()
        return Contender(
            name.node, name.slot, name.stamp, self._is_directory(name.node), name.place.yields, same
        )
