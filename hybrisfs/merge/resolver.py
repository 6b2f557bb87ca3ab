"""What the registers say of single nodes, by the rules.

Changes that this device has not signed yet count as if they were signed last, which they will be: they are
taken from the view (`Unsigned`), with the stamp `UNSIGNED`.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from hybrisfs.kinds import NODE, PLACE
from hybrisfs.merge.rules import (
    Contender,
    Name,
    Origins,
    again,
    distinct,
    names_of_file,
    sameness,
    standing_attr,
    standing_place,
)
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, Place, attr_key, content_key, place_key, slot_of
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.registers import RegisterTable

__all__ = ["UNSIGNED", "RegisterValues", "Resolver", "Unsigned", "ViewResolver"]

UNSIGNED: Final = Stamp((1 << 63) - 1, b"")
_MOST_LEVELS: Final = 64


class _Circle(NamedTuple):
    """Directories that contain each other, and the one that goes elsewhere."""

    members: Sequence[bytes]
    yields: bytes


class RegisterValues(Protocol):
    """The latest values of registers, now or at another moment."""

    def values(self, key: bytes) -> list[Value]:
        """Those of one register."""

    def with_prefix(self, prefix: bytes) -> dict[bytes, list[Value]]:
        """Those of the registers whose keys begin with *prefix*."""

    def places_beginning(self, value: bytes) -> dict[bytes, list[Value]]:
        """Place registers of which a value begins with *value*, or has begun so at some time."""


class Unsigned(Protocol):
    """The view's own word on registers that have changed since the last signed update."""

    def places(self, node: bytes, slots: Iterable[int], *, others: bool = True) -> dict[int, Place | None]:
        """By slot, the unsigned places of a node that has registers for *slots*; None when it was removed.
        Without *others*, only those of *slots*."""

    def attr(self, node: bytes) -> Attr | None:
        """The unsigned attributes of a node."""

    def content(self, node: bytes) -> bool:
        """Whether the node's content is unsigned."""

    def children(self, directory: bytes) -> bool:
        """Whether something stands in the directory by an unsigned place."""


class Resolver:
    """Answers for one moment; registers and view must not change while it is used.

    For files with many names the resolver may look at some slots only (`look_only_at`). Their other names, at
    least two, are as the view shows them.
    """

    def __init__(self, registers: RegisterValues, unsigned: Unsigned, origins: Origins) -> None:
        self._registers = registers
        self._unsigned = unsigned
        self._origins = origins
        self._few: dict[bytes, set[int]] = {}
        self._inhabitants: dict[bytes, bool] = {}
        self._circles: dict[bytes, _Circle | None] = {ROOT_ID: None}
        self._slots: dict[bytes, list[Name]] = {}
        self._attrs: dict[bytes, Attr | None] = {}
        self._names: dict[bytes, list[Name]] = {}
        self._contents: dict[bytes, list[Value]] = {}
        self._called: dict[bytes, dict[bytes, list[Name]]] = {}
        self._first_slots: dict[bytes, int] = {}

    # -- single registers ------------------------------------------------------------------------

    def attr(self, node: bytes) -> Attr | None:
        """The attributes that all devices show; None for an unknown node."""
        if node not in self._attrs:
            self._attrs[node] = self._unsigned.attr(node) or self._signed_attr(node)
        return self._attrs[node]

    def forget_attr(self, node: bytes) -> None:
        """The unsigned attributes of the node are void."""
        self._attrs.pop(node, None)

    def contender(self, name: Name) -> Contender:
        """The node as one of those that want this name."""
        attr = self.attr(name.node)
        assert attr is not None
        is_directory = self.is_directory(name.node)
        same = None if is_directory else self._sameness(name.node, attr)
        return Contender(name.node, name.slot, name.stamp, is_directory, name.place.yields, same)

    def _sameness(self, node: bytes, attr: Attr) -> bytes | None:
        """Equal for files that look the same to all programs; None: like no other."""
        if self._unsigned.content(node) or not self.is_alone(node):
            return None
        contents = self.contents(node)
        return None if len(contents) > 1 else sameness(attr, contents[0].value if contents else None)

    def copies_beside(self, one: Contender) -> list[Value]:
        """The `copies` to be shown beside this name: those of a file stand beside its first name."""
        is_first = not one.is_directory and one.slot == self.first_slot(one.id)
        return self.copies(one.id) if is_first else []

    def copies(self, node: bytes) -> list[Value]:
        """The contents that are shown beside the winning one. While the winner is unsigned there are none: it
        will supersede the others, which have become files of their own already."""
        return [] if self._unsigned.content(node) else self.contents(node)[1:]

    def _signed_attr(self, node: bytes) -> Attr | None:
        standing = standing_attr(self._registers.values(attr_key(node)))
        return standing[1] if standing is not None else None

    def contents(self, node: bytes) -> list[Value]:
        """The signed contents of a node, the one that all devices show first, each value once."""
        return distinct(self._all_contents(node))

    def _all_contents(self, node: bytes) -> list[Value]:
        found = self._contents.get(node)
        if found is None:
            found = self._contents[node] = self._registers.values(content_key(node))
        return found

    def is_directory(self, node: bytes) -> bool:
        if node == ROOT_ID:
            return True
        attr = self.attr(node)
        return attr is not None and stat.S_ISDIR(attr.mode)

    def few(self, node: bytes) -> set[int] | None:
        """The slots of the node that are looked at; None: all."""
        return self._few.get(node)

    def look_only_at(self, node: bytes, slots: Iterable[int]) -> None:
        """Look at these slots of a file with many more names."""
        self._few[node] = set(slots)

    def look_at(self, node: bytes, slot: int | None = None) -> None:
        """Look at this slot of the node, too, or at all."""
        few = self._few.get(node)
        if few is None or slot in few:
            return
        if slot is None:
            del self._few[node]
        else:
            few.add(slot)
        for known in (self._slots, self._names, self._called, self._first_slots):
            known.pop(node, None)

    def is_alone(self, node: bytes) -> bool:
        """Whether the node has one name, or none."""
        return node not in self._few and len(self.names(node)) < 2

    def removed(self, node: bytes) -> bool:
        """Whether the node was removed, so that at most the nodes in it keep it alive."""
        if node in self._few:
            return False
        registered = self.registered(node)
        return bool(registered) and all(one.place.removed for one in registered)

    def registered(self, node: bytes) -> list[Name]:
        """What each place register of the node says, removals too."""
        found = self._slots.get(node)
        if found is None:
            few = self._few.get(node)
            places: dict[int, Name] = {}
            for key, values in self._places(node, few).items():
                standing = standing_place(values)
                if standing is not None:
                    slot = slot_of(key)
                    places[slot] = Name(node, slot, *standing)
            slots = list(places if few is None else few)
            for slot, place in self._unsigned.places(node, slots, others=few is None).items():
                if place is not None:
                    places[slot] = Name(node, slot, UNSIGNED, place)
                elif slot in places:
                    places[slot] = Name(node, slot, UNSIGNED, places[slot].place.left())
            found = self._slots[node] = list(places.values())
        return found

    def _places(self, node: bytes, slots: Iterable[int] | None) -> dict[bytes, list[Value]]:
        """The place registers of the node, or those of these slots."""
        if slots is None:
            return self._registers.with_prefix(PLACE.key(node))
        return {key: self._registers.values(key) for key in (place_key(node, slot) for slot in slots)}

    # -- names -----------------------------------------------------------------------------------

    def names(self, node: bytes) -> list[Name]:
        """The names of a node, including those restored because the node must not go. A directory has at most
        one."""
        found = self._names.get(node)
        if found is None:
            found = self._names[node] = self._resolve(node)
        return found

    def called(self, node: bytes, name: bytes) -> list[Name]:
        """Where the node has that name: it may have it in several directories, and thousands of others."""
        found = self._called.get(node)
        if found is None:
            found = self._called[node] = {}
            for one in self.names(node):
                found.setdefault(one.place.name, []).append(one)
        return found.get(name, [])

    def first_slot(self, node: bytes) -> int:
        """The lowest slot of a node that has a name."""
        found = self._first_slots.get(node)
        if found is None:
            found = self._first_slots[node] = min(one.slot for one in self.names(node))
        return found

    def _resolve(self, node: bytes) -> list[Name]:
        if node == ROOT_ID or self.attr(node) is None:
            return []
        registered = self.registered(node)
        live = [one for one in registered if not one.place.removed]
        if live:
            return [max(live, key=_stamp)] if self.is_directory(node) else live
        if node in self._few:
            return []  # it has other names
        if self.is_directory(node):
            return [again(max(registered, key=_stamp))] if registered and self._inhabited(node) else []
        if self._unsigned.content(node):
            return [again(max(registered, key=_stamp))] if registered else []
        return names_of_file(registered, self._all_contents(node), self._follows)

    def _follows(self, removal: Stamp, other: Stamp) -> bool:
        """Whether the removal of a name depends on the other update."""
        return removal == UNSIGNED or self._origins.depends(removal, other)

    def _within(self, directory: bytes) -> Iterable[bytes]:
        """The nodes that may live in a removed directory: all that ever named it."""
        return {key[NODE] for key in self._registers.places_beginning(directory)}

    def _inhabited(self, directory: bytes) -> bool:
        """Whether a removed directory has to stay because something in it lives."""
        above: dict[bytes, bytes | None] = {directory: None}
        waiting = [directory]
        while waiting:
            at: bytes | None = waiting.pop()
            assert at is not None
            found = self._inhabitants.get(at)
            if found is None:
                found = self._unsigned.children(at) or self._look_into(at, above, waiting)
            if found:
                while at is not None:
                    self._inhabitants[at] = True
                    at = above[at]
                return True
        self._inhabitants.update(dict.fromkeys(above, False))
        return False

    def _look_into(self, at: bytes, above: dict[bytes, bytes | None], waiting: list[bytes]) -> bool:
        """Whether a node in the removed directory lives, removed directories aside: these are noted as
        standing below it, and are examined later."""
        for child in self._within(at):
            self.look_at(child)
            standing = [one for one in self.registered(child) if one.place.parent == at]
            if not standing or child in above or self.attr(child) is None:
                continue
            if not self.is_directory(child):
                if any(one.place.parent == at for one in self.names(child)):
                    return True
                continue
            last = max(self.registered(child), key=lambda one: (not one.place.removed, one.stamp))
            if last.place.parent != at:
                continue
            if not last.place.removed:
                return True
            above[child] = at
            waiting.append(child)
        return False

    # -- where directories stand -----------------------------------------------------------------

    def exists(self, directory: bytes) -> bool:
        """Whether nodes can stand in it."""
        return directory == ROOT_ID or (self.is_directory(directory) and bool(self.registered(directory)))

    def _is_seen(self, directory: bytes) -> bool:
        return directory == ROOT_ID or (self.is_directory(directory) and bool(self.names(directory)))

    def parent(self, node: bytes, standing: Name) -> bytes:
        """The directory in which a node stands by that name: the one named, unless it does not exist or
        the node would contain itself."""
        named = self._raw_parent(standing)
        if not self.is_directory(node):
            return named
        circle = self._circle(node)
        if circle is not None and node == circle.yields:
            former = standing.place.former
            return former if former and self._is_seen(former) and self._reaches_root(former) else ROOT_ID
        return named

    def reasons(self, node: bytes, standing: Name) -> set[bytes]:
        """The directories that decide where a node stands, if it does not stand where its register says."""
        found = {standing.place.parent}
        circle = self._circle(node) if self.is_directory(node) else None
        if circle is not None:
            found.update(circle.members)
            found.update(self._way_up(standing.place.former) if standing.place.former else ())
        return found

    def yields(self, directory: bytes) -> bytes | None:
        """The directory that gives way in the circle of this one; usually there is no circle."""
        circle = self._circle(directory)
        return None if circle is None else circle.yields

    def _circle(self, directory: bytes) -> _Circle | None:
        way: dict[bytes, None] = {}
        at = directory
        while at not in self._circles and at not in way:
            way[at] = None
            at = self._above(at)
        path = list(way)
        if at in way:
            members = path[path.index(at) :]
            circle = _Circle(members, max(members, key=self._yields_by))
            self._circles.update(dict.fromkeys(members, circle))
        for one in path:
            self._circles.setdefault(one, None)  # it leads to the root, or into a circle
        return self._circles[directory]

    def _way_up(self, directory: bytes) -> list[bytes]:
        """The directory and those above it, up to the root, or to as many as are looked at."""
        way = [directory]
        while way[-1] != ROOT_ID and len(way) <= _MOST_LEVELS:
            way.append(self._above(way[-1]))
        return way

    def _reaches_root(self, directory: bytes) -> bool:
        return self._way_up(directory)[-1] == ROOT_ID

    def _above(self, directory: bytes) -> bytes:
        names = self.names(directory)
        return self._raw_parent(names[0]) if names else ROOT_ID

    def _raw_parent(self, standing: Name) -> bytes:
        return standing.place.parent if self.exists(standing.place.parent) else ROOT_ID

    def _yields_by(self, directory: bytes) -> tuple[Stamp, bytes]:
        stamp = self.names(directory)[0].stamp
        # What is not signed yet stays where the view has it; once signed, it is judged like the others.
        return (Stamp(-1, b"") if stamp == UNSIGNED else stamp), directory


class ViewResolver(Resolver):
    """A resolver for a view that shows something already and is brought up to date."""

    def __init__(self, registers: RegisterTable, unsigned: Unsigned, origins: Origins) -> None:
        super().__init__(registers, unsigned, origins)
        self._table = registers
        self._touched: dict[bytes, set[bytes]] = {}  # by the directories that they name

    def touch(self, node: bytes) -> None:
        """The node may be alive, whether the view shows it or not."""
        for one in self.registered(node):
            self._touched.setdefault(one.place.parent, set()).add(node)

    def _within(self, directory: bytes) -> set[bytes]:
        """The nodes that were touched, or are in the view: all else that named the directory is gone, and
        stays so."""
        return self._table.shown_beginning(directory) | self._touched.get(directory, set())


def _stamp(standing: Name) -> Stamp:
    return standing.stamp
