"""What other devices have changed here: what the kernel has to hear, and what nobody has looked at since.

A program acts on what it has seen: it reads a file, and a moment later gives its name to another one. When an
update of another device is taken in between the two, the program means the file that was there before: the
kernel may not know the new one yet, or the program has not looked again. So each change is noted
here until a program looks, or `SECONDS` are over. Before the filesystem obeys a program, it is asked here
whether the program may mean something else than what is there now (`merge.resolution`).

What a program has seen in a directory it knows also when the kernel forgets the directory, as it does when
another device moves that, or for want of memory: such a directory counts as known for as long.

Programs look by reading a file, or by asking for its attributes. The kernel asks for these, too, before it
opens a file, so that one question does not show that the program knows what it overwrites. A listing shows a
name that is new; it does not show that another file has taken over a name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final, NamedTuple, TypeVar

from msgspec import Struct, field

from hybrisfs.environment import Environment
from hybrisfs.state.state import Transaction

__all__ = ["SECONDS", "Aspect", "Change", "NameChange", "Unseen"]

SECONDS: Final = 10.0
"""Longer than a program takes from reading a file to replacing it, on a machine that is busy, too."""
_ENOUGH: Final = 2  # looks that are enough for everything
_MOST_FORGOTTEN: Final = 10_000  # directories; the kernel can forget millions at once


class NameChange(NamedTuple):
    """A name that means another node now, or none. *gone*: it meant one before."""

    parent: int
    name: bytes
    gone: bool


class _Arrival(Struct):
    """What is new about an inode, and how often programs have looked since the time *at*."""

    at: float
    content: bool = False
    names: dict[tuple[int, bytes], bool] = field(default_factory=dict)  # True: another node had it before
    looks: int = 0

    @property
    def replaces(self) -> bool:
        """Whether there was something before in its place."""
        return self.content or any(self.names.values())


class Unseen:
    """The changes that programs may not know of, under the volume's lock. Without a mount there are none."""

    def __init__(self, environment: Environment) -> None:
        self._monotonic = environment.monotonic
        self._knows: Callable[[int], bool] | None = None
        # The oldest first:
        self._arrivals = OrderedDict[int, _Arrival]()  # by inode
        self._vacated = OrderedDict[tuple[int, bytes], float]()  # names that no node has had since then
        self._listed = OrderedDict[int, float]()  # when programs last began to list a directory
        self._forgotten = OrderedDict[int, float]()  # when the kernel last forgot a directory

    def watch(self, knows: Callable[[int], bool] | None) -> None:
        """There are programs from now on; *knows* tells in which directories they may know names. None: there
        are none any more."""
        self._knows = knows
        self._arrivals.clear()
        self._vacated.clear()
        self._listed.clear()
        self._forgotten.clear()

    def forgotten(self, directory: int) -> None:
        """The kernel knows the directory no more."""
        if self._knows is not None:
            _put_last(self._forgotten, directory, self._monotonic())
            if len(self._forgotten) > _MOST_FORGOTTEN:
                self._forgotten.popitem(last=False)

    def __bool__(self) -> bool:
        """False when there is nothing that programs may not know."""
        return bool(self._arrivals)

    # -- what has changed ------------------------------------------------------------------------

    def names_changed(self, tx: Transaction, changes: Iterable[NameChange]) -> None:
        """The view shows these names otherwise than before, by no program's doing."""
        if self._knows is None:
            return
        now = self._tidy()
        gone: dict[tuple[int, bytes], bool] = {}
        for parent, name, was_there in changes:
            if self._knows(parent) or parent in self._forgotten:
                gone[parent, name] = gone.get((parent, name), False) or was_there
        for where, was_there in gone.items():
            place = tx.places.find(*where)
            if place is None:
                _put_last(self._vacated, where, now)
            else:
                arrival = self._arrived(place[0], now)
                arrival.names[where] = was_there or where in self._vacated

    def content_changed(self, ino: int) -> None:
        """The view shows another content of the inode, by no program's doing."""
        if self._knows is not None:
            self._arrived(ino, self._tidy()).content = True

    def _arrived(self, ino: int, now: float) -> _Arrival:
        arrival = self._arrivals.setdefault(ino, _Arrival(now))
        arrival.at, arrival.looks = now, 0
        self._arrivals.move_to_end(ino)
        return arrival

    def _tidy(self) -> float:
        """Forget what is too long ago; the time."""
        now = self._monotonic()
        _drop_before(self._vacated, now - SECONDS)
        _drop_before(self._listed, now - SECONDS)
        _drop_before(self._forgotten, now - SECONDS)
        while self._arrivals and next(iter(self._arrivals.values())).at <= now - SECONDS:
            self._arrivals.popitem(last=False)
        return now

    # -- what programs have seen -----------------------------------------------------------------

    def waits(self, ino: int) -> bool:
        """Whether it matters that a program looks at the inode: the kernel must not answer it by itself."""
        return self._of(ino) is not None

    def found(self, parent: int, name: bytes, ino: int) -> None:
        """A program comes upon an inode for the first time. In a directory that has come itself
        it may take it for what was there before, by the same path."""
        above = self._of(parent)
        if above is not None and ino not in self._arrivals:
            self._arrivals[ino] = _Arrival(above.at, names={(parent, name): above.replaces})

    def looked(self, ino: int) -> None:
        """The kernel has asked for the attributes: a program looks, or is about to open the file."""
        self._count(ino, 1)

    def read(self, ino: int) -> None:
        """A program has read the file."""
        self._count(ino, _ENOUGH)

    def _count(self, ino: int, looks: int) -> None:
        arrival = self._of(ino)
        if arrival is not None:
            arrival.looks += looks
            if arrival.looks >= _ENOUGH:
                del self._arrivals[ino]

    def listed(self, parent: int) -> None:
        """A program begins to list the directory."""
        if self._arrivals:
            _put_last(self._listed, parent, self._monotonic())

    def renamed(self, ino: int, old: tuple[int, bytes], new: tuple[int, bytes]) -> None:
        """A program gives another name to the inode, which it may take for the one that was there before."""
        arrival = self._of(ino)
        if arrival is not None and old in arrival.names:
            arrival.names[new] = arrival.names.pop(old)

    def spared(self, ino: int) -> None:
        """What a program did to the inode has been done to what it knew; what programs do next is meant."""
        self._arrivals.pop(ino, None)

    # -- what they may not mean ------------------------------------------------------------------

    def may_replace_unseen(self, parent: int, name: bytes, ino: int) -> bool:
        """Whether a program that gives the name to another file may not know of this inode, or of what is in
        it."""
        arrival = self._of(ino)
        if arrival is None or arrival.looks:
            return False
        if arrival.content or arrival.names.get((parent, name)):
            return True
        return (parent, name) in arrival.names and not self._has_listed(parent, arrival)

    def may_remove_unseen(self, parent: int, name: bytes, ino: int) -> bool:
        """Whether a program that removes the name may mean an earlier node. A name that no node had before is
        removed only by a program that has seen it since."""
        arrival = self._of(ino)
        if arrival is None or arrival.looks or self._has_listed(parent, arrival):
            return False
        return arrival.content or bool(arrival.names.get((parent, name)))

    def may_overwrite_unseen(self, ino: int) -> bool:
        """Whether a program that overwrites the file may not know its content."""
        arrival = self._of(ino)
        if arrival is None:
            return False
        return arrival.replaces or not any(self._has_listed(parent, arrival) for parent, _ in arrival.names)

    def _has_listed(self, parent: int, arrival: _Arrival) -> bool:
        return self._listed.get(parent, arrival.at) > arrival.at

    def _of(self, ino: int) -> _Arrival | None:
        arrival = self._arrivals.get(ino)
        if arrival is not None and arrival.at <= self._monotonic() - SECONDS:
            del self._arrivals[ino]
            return None
        return arrival


_Key = TypeVar("_Key")


def _put_last(times: OrderedDict[_Key, float], key: _Key, at: float) -> None:
    times[key] = at
    times.move_to_end(key)


def _drop_before(times: OrderedDict[_Key, float], moment: float) -> None:
    while times and next(iter(times.values())) <= moment:
        times.popitem(last=False)


# -- what changes in the view otherwise than through the mount, as the kernel has to hear it ------------


class Aspect(Enum):
    """What of an inode is another than it was."""

    CONTENT = auto()
    ATTRIBUTES = auto()
    TIMES = auto()
    """As they become with every change of the content."""


class Change(NamedTuple):
    """A name in a directory belongs to another node or to none (`name` given), or an inode has other
    attributes or content. *gone*: number and mode of the node that lost the name."""

    ino: int
    name: bytes | None = None
    gone: tuple[int, int] | None = None
    aspect: Aspect = Aspect.ATTRIBUTES
    """Says something of a change without a name."""
