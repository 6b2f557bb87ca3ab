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
  conflict names;
* of the concurrent contents of all files that want one name, `MOST_COPIES` are shown beside it, the latest;
* more than `MOST_CONTENDERS` nodes that want one name are a *crowd*: none of them are one, no versions are
  shown, and each has a name that follows from its id; that for which it is the lowest has the name itself;
* a name that nodes want is theirs rather than that of who needs a conflict name, but for those conflict names
  that are *kept*: those of a crowd, and those with a number above `MOST_NUMBER`.

The limits bound what one node more, or one less, can mean for the others: whoever signs an update for each
of ten thousand nodes that want one name has it looked at ten thousand times.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple
from unicodedata import ucd_3_2_0

from hybrisfs.filesystem.registers import MAX_NAME, Attr, Place
from sync.codec import DecodeError
from sync.hashing import digest

__all__ = [
    "MOST_CONTENDERS",
    "MOST_COPIES",
    "MOST_NUMBER",
    "Author",
    "Contender",
    "Shown",
    "Stamp",
    "Value",
    "conflict_name",
    "decode_place",
    "is_conflict_name",
    "is_crowd",
    "is_kept",
    "is_removed",
    "judge",
    "later_names",
    "name_by_id",
    "number_names",
    "shortened",
    "standing_attr",
    "standing_place",
    "winner",
]

MOST_CONTENDERS: Final = 64
MOST_COPIES: Final = 64
MOST_NUMBER: Final = 64
_COPY: Final = re.compile(rb" \(conflict, [^()]*\)$")
_NUMBERED: Final = re.compile(
    rb"^(.*?)( \(conflict, [^()]*, \d{4}-\d\d-\d\d)(?: ([1-9]\d{0,18}))?\)$", re.DOTALL
)
_LONGEST_BY_ID: Final = len(b" (conflict, )") + 32 + len(b" %d" % ((1 << 63) - 1))
_BY_ID: Final = re.compile(rb" \(conflict, [0-9a-f]{32}(?: [1-9]\d*)?\)$")
_CUT: Final = re.compile(rb"~[0-9a-f]{16}$")
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


def is_crowd(contenders: Sized) -> bool:
    """Whether so many nodes want a name that each is settled for itself."""
    return len(contenders) > MOST_CONTENDERS


def judge(contenders: Collection[Contender]) -> list[Shown]:
    """Settle who gets a name that several nodes want: the first; the others need conflict names."""
    if is_crowd(contenders):
        return [Shown(one, []) for one in sorted(contenders, key=lambda one: _mark_by_id(one.id, one.slot))]
    shown: list[Shown] = []
    alike: dict[tuple[bool, bytes | None], Shown] = {}
    for one in _ranked(contenders):
        same = one.is_directory, one.content
        if same in alike:
            alike[same].joined.append(one)
            continue
        shown.append(Shown(one, []))
        if one.is_directory or one.content is not None:
            alike[same] = shown[-1]
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
    date = datetime.datetime.fromtimestamp(author.time_ns / 1e9, datetime.UTC).strftime("%Y-%m-%d")
    device = _cut(_plain(author.device).encode(), _LONGEST_DEVICE)
    mark = b" (conflict, %b, %b%b)" % (device, date.encode(), b" %d" % number if number > 1 else b"")
    stem, extension = _split(name)
    return _shorter(stem, len(mark) + len(extension)) + mark + extension


def name_by_id(name: bytes, node: bytes, slot: int) -> bytes:
    """The conflict name of a node in a crowd: nobody else's, whoever else is in it."""
    stem, extension = _split(name)
    return _shorter(stem, _LONGEST_BY_ID + len(extension)) + _mark_by_id(node, slot) + extension


def _mark_by_id(node: bytes, slot: int) -> bytes:
    return b" (conflict, %b%b)" % (node.hex().encode(), b" %d" % slot if slot else b"")


def _shorter(stem: bytes, rest: int) -> bytes:
    """The stem of a name, so that *rest* bytes find room after it; of a longer one with a digest of it."""
    room = MAX_NAME - rest
    if len(stem) <= room:
        return stem
    end = b"~" + digest(_STEM_CONTEXT, stem, 8).hex().encode()
    return _cut(stem, room - len(end)) + end


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


def is_kept(name: bytes) -> bool:
    """Whether somebody who has this conflict name does not give it up for those who want it as their own."""
    stem = _split(name)[0]
    if _BY_ID.search(stem) is not None:
        return True
    numbered = _NUMBERED.match(stem)
    return numbered is not None and int(numbered[3] or 1) > MOST_NUMBER


def later_names(name: bytes) -> Iterator[bytes]:
    """The conflict names that are given to losers of one kind as long as this one is taken."""
    stem, extension = _split(name)
    numbered = _NUMBERED.match(stem)
    if numbered is None:
        return
    begin = numbered[1]
    cut = _CUT.search(begin)
    for number in range(int(numbered[3] or 1) + 1, MOST_NUMBER + 2):
        mark = b"%b %d)" % (numbered[2], number)
        room = MAX_NAME - len(mark) - len(extension)
        yield _shorter(begin, len(mark) + len(extension)) + mark + extension
        if cut is not None and len(begin) > room:
            yield _cut(begin[: cut.start()], room - len(cut[0])) + cut[0] + mark + extension


def number_names(
    name: bytes, authors: Sequence[Author], is_taken: Callable[[bytes], bool], most: int | None = None
) -> list[bytes]:
    """Conflict names for losers in their order, none of them taken or given twice. Above the number *most* a
    name is never taken: it is kept from others."""
    names: dict[bytes, None] = {}
    numbers: dict[bytes, int] = {}
    for author in authors:
        kind = conflict_name(name, author)
        number = numbers.get(kind, 1)
        while (candidate := conflict_name(name, author, number)) in names or (
            (most is None or number <= most) and is_taken(candidate)
        ):
            number += 1
        numbers[kind] = number + 1
        names[candidate] = None
    return list(names)


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
