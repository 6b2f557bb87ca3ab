"""The rules of the tree under concurrency, each a pure function of register values.

A register holds the set of its logically latest values, each stamped with the clock and the writer (branch)
of its update. The rules depend on these alone, so that devices that hold the same values see the same tree:

* of concurrent values the *winner* is that with the highest stamp; places and attributes that no correct
  device can have written do not count, and such a content is an empty file;
* a place that somebody removed while somebody else named it anew stands;
* a file that has lost all its names lives, unless somebody took one away who had seen all edits of it, and
  that the other names were gone;
* a folder that was removed lives while something in it lives;
* of folders moved into each other, the one moved last goes back to where it was, else to the root;
* of nodes with one name in one folder, folders become one folder; otherwise a folder, else the highest stamp
  of a place that does not yield, else the lowest, keeps the name, equal files are one, and the others get
  conflict names.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple
from unicodedata import ucd_3_2_0

from hybrisfs.filesystem.registers import MAX_NAME, Attr, Place
from sync.codec import DecodeError
from sync.hashing import digest

__all__ = [
    "Author",
    "Contender",
    "Shown",
    "Stamp",
    "Value",
    "conflict_name",
    "decode_place",
    "is_conflict_name",
    "is_removed",
    "judge",
    "number_names",
    "shortened",
    "standing_attr",
    "standing_place",
    "winner",
]

_COPY: Final = re.compile(rb" \(conflict, [^()]*\)$")
_LONGEST_EXTENSION: Final = 16
_LONGEST_DEVICE: Final = 64
_MEANINGFUL: Final = frozenset("/().\xad")  # with the soft hyphen, which once counted as a hyphen
_UNSHOWN: Final = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"))
_STEM_CONTEXT: Final = "hybrisfs.merge 2026-11 long stem"


class Stamp(NamedTuple):
    """When and by whom a value was written; the greatest wins. *writer* is a branch of a device's log."""

    clock: int
    writer: bytes


class Value(NamedTuple):
    """One of the latest values of a register; None is a tombstone."""

    stamp: Stamp
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Author:
    """Who wrote a losing value: for its conflict name. *time_ns* since the epoch, by the writer's clock."""

    device: str
    time_ns: int


def winner(values: Sequence[Value]) -> Value | None:
    """The value that everybody sees; None when there is none."""
    return max(values, key=lambda one: one.stamp, default=None)


def decode_place(value: Value) -> Place | None:
    """The place that a value names, or None when no correct device can have written it."""
    if value.value is None:
        return None
    try:
        return Place.decode(value.value)
    except DecodeError:
        return None


def standing_place(values: Iterable[Value]) -> tuple[Stamp, Place] | None:
    """The place of a node among concurrent ones: the highest that is no removal, else the highest removal."""
    found = [(value.stamp, place) for value in values if (place := decode_place(value)) is not None]
    return max(found, key=lambda one: (not one[1].removed, one[0]), default=None)


def standing_attr(values: Iterable[Value]) -> tuple[Stamp, Attr] | None:
    """The attributes of a node among concurrent ones: the highest that a correct device can have written."""
    for one in sorted(values, key=lambda one: one.stamp, reverse=True):
        try:
            return one.stamp, Attr.decode(one.value or b"")
        except DecodeError:
            continue
    return None


def is_removed(values: Iterable[Value]) -> bool:
    """Whether the place that stands says that the node is gone."""
    standing = standing_place(values)
    return standing is not None and standing[1].removed


@dataclass(frozen=True, slots=True)
class Contender:
    """A node that wants a name in a folder, but not before those that do not yield, if it *yields*.
    *content*: equal for files that are the same to everybody."""

    id: bytes
    slot: int
    stamp: Stamp
    is_directory: bool
    yields: bool
    content: bytes | None


@dataclass(slots=True)
class Shown:
    """A node that is seen, and those that are seen as one with it."""

    node: Contender
    joined: list[Contender]

    def takes(self, other: Contender) -> bool:
        """Whether the two are one to everybody."""
        mine = self.node
        both_folders = mine.is_directory and other.is_directory
        return both_folders or (other.content is not None and other.content == mine.content)


def judge(contenders: Iterable[Contender]) -> list[Shown]:
    """Settle who gets a name that several nodes want: the first; the others need conflict names."""
    shown: list[Shown] = []
    for one in _ranked(contenders):
        same = next((other for other in shown if other.takes(one)), None)
        if same is None:
            shown.append(Shown(one, []))
        else:
            same.joined.append(one)
    return shown


def _ranked(contenders: Iterable[Contender]) -> list[Contender]:
    """Who comes first gets the name. Of those that yield the earlier has had it before the later came."""
    ascending = sorted(contenders, key=lambda one: (one.stamp, one.id, one.slot))
    ranked = [one for one in reversed(ascending) if not one.yields] + [one for one in ascending if one.yields]
    return sorted(ranked, key=lambda one: not one.is_directory)


def conflict_name(name: bytes, author: Author, number: int = 1) -> bytes:
    """`name (conflict, DEVICE, DATE).ext`, at most 255 bytes; the *number*-th of its kind says so.

    Different names never get one conflict name: what a name has been given depends on no other name. So a
    conflict about a conflict copy is marked twice, and the stem of a long name ends in a digest of it.
    """
    stem, extension = _split(name)
    date = datetime.datetime.fromtimestamp(author.time_ns / 1e9, datetime.UTC).strftime("%Y-%m-%d")
    device = _cut(_plain(author.device).encode(), _LONGEST_DEVICE)
    mark = b" (conflict, %b, %b%b)" % (device, date.encode(), b" %d" % number if number > 1 else b"")
    room = MAX_NAME - len(mark) - len(extension)
    if len(stem) > room:
        end = b"~" + digest(_STEM_CONTEXT, stem, 8).hex().encode()
        stem = _cut(stem, room - len(end)) + end
    return stem + mark + extension


@lru_cache(maxsize=64)
def _plain(device: str) -> str:
    """A device's name, which its owner chooses freely, with `-` for what means something in names of files or
    here, and for what cannot be shown. Unicode 3.2, which every Python has, says what that is: by versions of
    their own, two devices might give one file two names."""
    return "".join(
        "-" if one in _MEANINGFUL or (one != " " and ucd_3_2_0.category(one) in _UNSHOWN) else one
        for one in device
    )


def is_conflict_name(name: bytes) -> bool:
    """Whether the name is one that a conflict may ask for."""
    return _COPY.search(_split(name)[0]) is not None


def number_names(name: bytes, authors: Sequence[Author], is_taken: Callable[[bytes], bool]) -> list[bytes]:
    """Conflict names for losers in their order, none of them taken or given twice."""
    names: list[bytes] = []
    for author in authors:
        number = 1
        while (candidate := conflict_name(name, author, number)) in names or is_taken(candidate):
            number += 1
        names.append(candidate)
    return names


def shortened(name: bytes, room: int) -> bytes:
    """At most *room* bytes of a name: of a longer one the beginning and the extension."""
    stem, extension = _split(name)
    return _cut(stem, room - len(extension)) + extension


def _split(name: bytes) -> tuple[bytes, bytes]:
    at = name.rfind(b".")
    if at <= 0 or len(name) - at > _LONGEST_EXTENSION:
        return name, b""
    return name[:at], name[at:]


def _cut(text: bytes, room: int) -> bytes:
    """At most *room* bytes, without half a character of UTF-8."""
    if len(text) <= room:
        return text
    while room and text[room] & 0xC0 == 0x80:
        room -= 1
    return text[:room]
