"""The rules of the tree under concurrency: which tree follows from the registers, as one pure function.

`visible_tree` is the definition: a device must show what it says of the registers that the device holds. Fsck
and the tests compare with it. The rest of `hybrisfs.merge` comes to the same by looking at changes only.

A register holds the set of its logically latest values, each stamped with the clock and the writer (branch)
of its update. The rules depend on these alone, so that devices that hold the same values see the same tree.

What lives:

* of concurrent values the *winner* is that with the highest stamp; places and attributes that no correct
  device can have written do not count, and such a content is an empty file;
* a place that one device removed while another wrote a new name into it stands;
* a directory has one name, a file one by each of its places that stands;
* a file that has lost all its names lives, unless the update that took the last one away depends on all
  edits of the file, and on the ends of its other names;
* a folder that was removed lives while something in it lives.

Where it stands:

* in the directory that its place names, or in the root when there is no such directory;
* of folders moved into each other, the one moved last goes back to where it was, else to the root.

What is seen:

* of nodes with one name in one folder, folders become one folder; otherwise a folder, else the highest stamp
  of a place that does not yield, else the lowest, keeps the name, equal files are one, and the others get
  conflict names;
* of the concurrent contents of all files that want one name, `MOST_COPIES` are shown beside it, the latest;
* more than `MOST_CONTENDERS` nodes that want one name are a *crowd*: none of them are one, no versions are
  shown, and each has a name that follows from its id; that for which it is the lowest has the name itself;
* a name that nodes want is theirs rather than that of a node that needs a conflict name, but for those
  conflict names that are *kept*: those of a crowd, and those with a number above `MOST_NUMBER`.

The limits bound what one node more, or one less, can mean for the others: a member that signs an update for
each of ten thousand nodes that want one name has it looked at ten thousand times.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from hybrisfs.kinds import ATTRIBUTES, CONTENT, NODE, PLACE
from hybrisfs.merge.names import MOST_NUMBER, Author, is_kept, mark_by_id, name_by_id, number_names
from hybrisfs.registers.node_id import ROOT_ID
from hybrisfs.registers.tree import Attr, Place, slot_of
from hybrisfs.registers.values import Stamp, Value
from sync.codec import DecodeError, Writer, digest

__all__ = [
    "MOST_CONTENDERS",
    "MOST_COPIES",
    "MOST_SHOWN",
    "Contender",
    "Entry",
    "Located",
    "Name",
    "Origins",
    "Seen",
    "Shown",
    "Tree",
    "again",
    "copy_id",
    "decode_place",
    "distinct",
    "entries",
    "is_crowd",
    "is_removed",
    "judge",
    "names_of_file",
    "sameness",
    "standing_attr",
    "standing_place",
    "visible_tree",
    "winner",
]

MOST_CONTENDERS: Final = 64
MOST_COPIES: Final = 64
MOST_SHOWN: Final = MOST_CONTENDERS + MOST_COPIES  # for the sake of one name, unless it is a crowd's
_MOST_LEVELS: Final = 64
_COPY_CONTEXT: Final = "hybrisfs.merge 2026-11 concurrent version"


Depends = Callable[[Stamp, Stamp], bool]


class Origins(Protocol):
    """Of which devices updates are, and what their writers had seen."""

    def depends(self, later: Stamp, earlier: Stamp) -> bool:
        """Whether the writer of the one update had seen the other."""

    def author(self, stamp: Stamp) -> Author:
        """Which device wrote an update, and when."""


"""Whether the update with the first stamp depends on that with the second."""

# -- single registers ------------------------------------------------------------------------------------


def winner(values: Sequence[Value]) -> Value | None:
    """The value that all devices show; None when there is none."""
    return max(values, key=_stamp_of, default=None)


def decode_place(value: Value) -> Place | None:
    """The place that a value names, or None when no correct device can have written it."""
    if value.value is None:
        return None
    try:
        return Place.decode(value.value)
    except DecodeError:
        return None


def standing_place(values: Iterable[Value]) -> tuple[Stamp, Place] | None:
    """The place of a node among concurrent ones: the highest but for removals, else the highest removal."""
    found = [(value.stamp, place) for value in values if (place := decode_place(value)) is not None]
    return max(found, key=lambda one: (not one[1].removed, one[0]), default=None)


def standing_attr(values: Iterable[Value]) -> tuple[Stamp, Attr] | None:
    """The attributes of a node among concurrent ones: the highest that a correct device can have written."""
    for one in sorted(values, key=_stamp_of, reverse=True):
        try:
            return one.stamp, Attr.decode(one.value or b"")
        except DecodeError:
            continue
    return None


def is_removed(values: Iterable[Value]) -> bool:
    """Whether the winning place says that the node is gone."""
    standing = standing_place(values)
    return standing is not None and standing[1].removed


def distinct(contents: Iterable[Value]) -> list[Value]:
    """The concurrent contents of a file, the one that all devices show first, each value once."""
    first: dict[bytes | None, Value] = {}
    for one in sorted(contents, key=_stamp_of, reverse=True):
        first.setdefault(one.value, one)
    return list(first.values())


def _stamp_of(value: Value) -> Stamp:
    return value.stamp


# -- single nodes ----------------------------------------------------------------------------------------


class Name(NamedTuple):
    """What the place register of a node in *slot* says, by the value with that stamp."""

    node: bytes
    slot: int
    stamp: Stamp
    place: Place


def names_of_file(places: Collection[Name], contents: Iterable[Value], depends: Depends) -> list[Name]:
    """The names of a file, by its place registers and the values of its content: those that were not removed,
    or else the last one, unless the removal depends on all other values."""
    standing = [one for one in places if not one.place.removed]
    if standing or not places:
        return standing
    last = max(places, key=lambda one: one.stamp)
    known = [*(one.stamp for one in places), *(one.stamp for one in contents)]
    if all(one == last.stamp or depends(last.stamp, one) for one in known):
        return []
    return [again(last)]


def again(name: Name) -> Name:
    """The name of a node that was removed but lives on."""
    return name._replace(place=name.place.restored())


def sameness(attr: Attr, content: bytes | None) -> bytes:
    """Equal for files with one name that look the same to all programs."""
    return Writer().varint(attr.mode).varint(attr.rdev).blob(attr.target).raw(content or b"").getvalue()


def copy_id(node: bytes, content: bytes | None) -> bytes:
    """The id in the view of a concurrent content of a file, the same on all devices."""
    return digest(_COPY_CONTEXT, node + (content or b""), 16)


# -- one folder ------------------------------------------------------------------------------------------


class Contender(Struct, frozen=True):
    """A node that wants a name in a folder. If it *yields*, nodes that do not yield come first.
    *content*: equal for files that look the same to all programs."""

    id: bytes
    slot: int
    stamp: Stamp
    is_directory: bool
    yields: bool
    content: bytes | None


class Shown(Struct):
    """A visible node, and the nodes merged with it."""

    node: Contender
    merged: list[Contender]


def is_crowd(contenders: Sized) -> bool:
    """Whether so many nodes want a name that each is treated by itself."""
    return len(contenders) > MOST_CONTENDERS


def judge(contenders: Collection[Contender]) -> list[Shown]:
    """Decide which node gets a name that several want: the first. The others need conflict names."""
    if is_crowd(contenders):
        return [Shown(one, []) for one in sorted(contenders, key=lambda one: mark_by_id(one.id, one.slot))]
    shown: list[Shown] = []
    alike: dict[tuple[bool, bytes | None], Shown] = {}
    for one in _ranked(contenders):
        same = one.is_directory, one.content
        if same in alike:
            alike[same].merged.append(one)
            continue
        shown.append(Shown(one, []))
        if one.is_directory or one.content is not None:
            alike[same] = shown[-1]
    return shown


def _ranked(contenders: Iterable[Contender]) -> list[Contender]:
    """Sorted: the first gets the name. Among nodes that yield the earlier one precedes, because it had the
    name first."""
    ascending = sorted(contenders, key=lambda one: (one.stamp, one.id, one.slot))
    ranked = [one for one in reversed(ascending) if not one.yields] + [one for one in ascending if one.yields]
    return sorted(ranked, key=lambda one: not one.is_directory)


class Entry(NamedTuple):
    """What a folder shows under a name: *node* with the nodes *merged* with it, or a *copy*, which is a
    concurrent content of it. *beside*: the name that it wants and did not get."""

    node: Contender
    merged: Sequence[Contender]
    copy: Value | None
    beside: bytes | None


def entries(
    wanted: Mapping[bytes, Collection[Contender]],
    copies: Callable[[Contender], Iterable[Value]],
    author: Callable[[Stamp], Author],
) -> dict[bytes, Entry]:
    """By name, what a folder shows, given the nodes that want names in it. *copies*: the contents to be shown
    beside this name of a node."""
    kept: set[bytes] = set()
    while True:  # until no node has a name that another one is to keep
        given_up = wanted.keys() - kept if kept else wanted.keys()
        found = [
            named
            for name, contenders in wanted.items()
            for named in _under(name, contenders, name in kept, copies, given_up.__contains__, author)
        ]
        more = {name for name, entry in found if entry.beside is not None and is_kept(name)}
        if more == kept:
            return dict(found)
        kept = more


def _under(
    name: bytes,
    contenders: Collection[Contender],
    is_kept_from: bool,
    copies: Callable[[Contender], Iterable[Value]],
    is_taken: Callable[[bytes], bool],
    author: Callable[[Stamp], Author],
) -> Iterator[tuple[bytes, Entry]]:
    """What is shown under a name, unless the name is kept from all of these, and beside it."""
    shown = judge(contenders)
    if not is_kept_from:
        yield name, Entry(shown[0].node, shown[0].merged, None, None)
    losers = [Entry(one.node, one.merged, None, name) for one in (shown if is_kept_from else shown[1:])]
    if is_crowd(contenders):
        yield from ((name_by_id(name, one.node.id, one.node.slot), one) for one in losers)
        return
    versions = [Entry(one.node, (), copy, name) for one in shown for copy in copies(one.node)]
    losers += sorted(versions, key=_order)[-MOST_COPIES:]
    losers.sort(key=_order)
    authors = [author(_lost_by(one)) for one in losers]
    yield from zip(number_names(name, authors, is_taken, MOST_NUMBER), losers, strict=True)


def _lost_by(entry: Entry) -> Stamp:
    return entry.node.stamp if entry.copy is None else entry.copy.stamp


def _order(entry: Entry) -> tuple[Stamp, bytes, int]:
    return _lost_by(entry), entry.node.id, entry.node.slot


# -- all of it -------------------------------------------------------------------------------------------


class Seen(Struct, frozen=True):
    """What a program finds under a name: a node, by its place in *slot*, its attributes, the value of the
    content register, and how many names it has (1 of a directory). *beside*: the name that it wants and
    another node has. *merged*: the nodes merged with it. *is_copy*: it is a concurrent content
    of the node, shown as a file of its own."""

    node: bytes
    slot: int
    attr: Attr
    content: bytes | None
    links: int
    beside: bytes | None
    merged: Sequence[bytes]
    is_copy: bool


class Located(NamedTuple):
    """A name of a node: what its place in *slot* says, and the directory in which it stands."""

    slot: int
    place: Place
    directory: bytes


class Tree(NamedTuple):
    """All that is visible. *folders*: by the id of each folder, what it shows by name. *names*: those of each
    node, shown or not: nodes merged with another one have names, too."""

    folders: Mapping[bytes, Mapping[bytes, Seen]]
    names: Mapping[bytes, Sequence[Located]]


def visible_tree(registers: Mapping[bytes, Collection[Value]], origins: Origins) -> Tree:
    """Everything that a program on any device with these registers must see."""
    return _Model(registers, origins).tree()


class _Model:
    def __init__(self, registers: Mapping[bytes, Collection[Value]], origins: Origins) -> None:
        self._origins = origins
        self._attrs: dict[bytes, Attr] = {}
        self._places: dict[bytes, list[Name]] = {}
        self._contents: dict[bytes, Collection[Value]] = {}
        for key, values in registers.items():
            node = key[NODE]
            if key[0] == ATTRIBUTES:
                attr = standing_attr(values)
                if attr is not None:
                    self._attrs[node] = attr[1]
            elif key[0] == CONTENT:
                self._contents[node] = values
            elif key[0] == PLACE:
                place = standing_place(values)
                if place is not None:
                    self._places.setdefault(node, []).append(Name(node, slot_of(key), *place))
        self._names = self._living()
        self._yielding = self._find_yielding()

    def _is_directory(self, node: bytes) -> bool:
        return node == ROOT_ID or (node in self._attrs and stat.S_ISDIR(self._attrs[node].mode))

    # -- what lives ------------------------------------------------------------------------------

    def _living(self) -> dict[bytes, list[Name]]:
        """The names of all nodes that have any, in the order of slots."""
        names: dict[bytes, list[Name]] = {}
        removed: dict[bytes, Name] = {}  # directories, with where they stood
        for node in self._places.keys() & self._attrs.keys() - {ROOT_ID}:
            places = self._places[node]
            if self._is_directory(node):
                last = max(places, key=lambda one: (not one.place.removed, one.stamp))
                if last.place.removed:
                    removed[node] = again(last)
                else:
                    names[node] = [last]
            elif found := names_of_file(places, self._contents.get(node, ()), self._origins.depends):
                names[node] = sorted(found, key=lambda one: one.slot)
        inhabited = [one.place.parent for found in names.values() for one in found]
        while inhabited:
            back = removed.pop(inhabited.pop(), None)
            if back is not None:
                names[back.node] = [back]
                inhabited.append(back.place.parent)
        return names

    # -- where it stands -------------------------------------------------------------------------

    def _named(self, name: Name) -> bytes:
        """The directory that a place names, or the root when there is no such directory."""
        parent = name.place.parent
        exists = parent == ROOT_ID or (self._is_directory(parent) and parent in self._places)
        return parent if exists else ROOT_ID

    def _above(self, directory: bytes) -> bytes:
        return self._named(self._names[directory][0]) if directory in self._names else ROOT_ID

    def _find_yielding(self) -> set[bytes]:
        """Of each circle of directories, the one that was moved last."""
        found: set[bytes] = set()
        known = {ROOT_ID}
        for directory in filter(self._is_directory, self._names):
            way: dict[bytes, None] = {}
            while directory not in known and directory not in way:
                way[directory] = None
                directory = self._above(directory)
            if directory in way:
                path = list(way)
                circle = path[path.index(directory) :]
                found.add(max(circle, key=lambda one: (self._names[one][0].stamp, one)))
            known.update(way)
        return found

    def _parent(self, name: Name) -> bytes:
        """The directory in which a node stands by that name."""
        if name.node not in self._yielding:
            return self._named(name)
        former = name.place.former
        is_seen = former == ROOT_ID or (self._is_directory(former) and former in self._names)
        return former if former and is_seen and self._reaches_root(former) else ROOT_ID

    def _reaches_root(self, directory: bytes) -> bool:
        for _ in range(_MOST_LEVELS):
            if directory == ROOT_ID:
                return True
            directory = self._above(directory)
        return directory == ROOT_ID

    # -- what is seen ----------------------------------------------------------------------------

    def tree(self) -> Tree:
        inside: dict[bytes, list[Name]] = {}
        names: dict[bytes, list[Located]] = {}
        for node, found in self._names.items():
            names[node] = [Located(one.slot, one.place, self._parent(one)) for one in found]
            for name, located in zip(found, names[node], strict=True):
                inside.setdefault(located.directory, []).append(name)
        folders: dict[bytes, dict[bytes, Seen]] = {}
        waiting: list[tuple[bytes, ...]] = [(ROOT_ID,)]
        while waiting:
            alike = waiting.pop()  # directories that are merged
            wanted: dict[bytes, list[Contender]] = {}
            for directory in alike:
                for name in inside.get(directory, ()):
                    wanted.setdefault(name.place.name, []).append(self._contender(name))
            shown = {
                at: self._seen(one) for at, one in entries(wanted, self._copies, self._origins.author).items()
            }
            folders[alike[0]] = shown
            waiting += [(one.node, *one.merged) for one in shown.values() if self._is_directory(one.node)]
        return Tree(folders, names)

    def _contender(self, name: Name) -> Contender:
        contents = distinct(self._contents.get(name.node, ()))
        is_directory = self._is_directory(name.node)
        same = None
        if not is_directory and len(self._names[name.node]) == 1 and len(contents) < 2:
            same = sameness(self._attrs[name.node], contents[0].value if contents else None)
        return Contender(name.node, name.slot, name.stamp, is_directory, name.place.yields, same)

    def _copies(self, one: Contender) -> list[Value]:
        """Concurrent contents stand beside the first name of a file."""
        if one.is_directory or one.slot != self._names[one.id][0].slot:
            return []
        return distinct(self._contents.get(one.id, ()))[1:]

    def _seen(self, entry: Entry) -> Seen:
        node, copy = entry.node.id, entry.copy
        merged = [one.id for one in entry.merged]
        if copy is not None:
            content, links = copy.value, 1
        else:
            winning = winner(list(self._contents.get(node, ())))
            content, links = winning.value if winning else None, len(self._names[node])
        attr = self._attrs[node]
        return Seen(
            node, entry.node.slot, attr, content, links, entry.beside, merged, is_copy=copy is not None
        )
