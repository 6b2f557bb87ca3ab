"""The rules of the tree under concurrency, each a pure function of register values.

A register holds the set of its logically latest values, each stamped with the clock and the writer (branch)
of its update. The rules depend on these alone, so that devices that hold the same values see the same tree:

* of concurrent values the *winner* is that with the highest stamp;
* a place that somebody removed while somebody else named it anew stands;
* a file that was removed by somebody who had not seen all edits of it lives;
* a folder that was removed lives while something in it lives;
* of folders moved into each other, the one moved last goes back to where it was, else to the root;
* of nodes with one name in one folder, folders become one folder; otherwise a folder, else the highest stamp,
  keeps the name, equal files are one, and the others get conflict names.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hybrisfs.filesystem.registers import MAX_NAME, Place
from sync.codec import DecodeError

__all__ = [
    "Author",
    "Contender",
    "Stamp",
    "Shown",
    "Value",
    "conflict_name",
    "decode_place",
    "judge",
    "number_names",
    "standing_place",
    "winner",
]

_COPY: Final = re.compile(rb" \(conflict, [^()]*\)$")
_LONGEST_EXTENSION: Final = 16


class Stamp(NamedTuple):
    """When and by whom a value was written; the greatest wins. *writer* is a branch of a device's log."""

    clock: int
    writer: bytes


@dataclass(frozen=True, slots=True)
class Value:
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


@dataclass(frozen=True, slots=True)
class Contender:
    """A node that wants a name in a folder. *content*: equal for files that are the same to everybody."""

    id: bytes
    slot: int
    stamp: Stamp
    is_directory: bool
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
    for one in sorted(
        contenders, key=lambda one: (one.is_directory, one.stamp, one.id, one.slot), reverse=True
    ):
        same = next((other for other in shown if other.takes(one)), None)
        if same is None:
            shown.append(Shown(one, []))
        else:
            same.joined.append(one)
    return shown


def conflict_name(name: bytes, author: Author, number: int = 1) -> bytes:
    """`name (conflict, DEVICE, DATE).ext`, at most 255 bytes; the *number*-th of its kind says so."""
    stem, extension = _split(name)
    stem = _COPY.sub(b"", stem)
    date = datetime.datetime.fromtimestamp(author.time_ns / 1e9, datetime.UTC).strftime("%Y-%m-%d")
    device = re.sub(r"[/\0()\n]", "-", author.device)[:64]
    mark = f" (conflict, {device}, {date}{f' {number}' if number > 1 else ''})".encode()
    room = MAX_NAME - len(mark) - len(extension)
    return _cut(stem, room) + mark + extension


def number_names(name: bytes, authors: Sequence[Author], taken: Iterable[bytes]) -> list[bytes]:
    """Conflict names for losers in their order, none of them *taken* or given twice."""
    used = set(taken)
    names: list[bytes] = []
    for author in authors:
        number = 1
        while (candidate := conflict_name(name, author, number)) in used:
            number += 1
        used.add(candidate)
        names.append(candidate)
    return names


def _split(name: bytes) -> tuple[bytes, bytes]:
    at = name.rfind(b".")
    if at <= 0 or len(name) - at > _LONGEST_EXTENSION:
        return name, b""
    return name[:at], name[at:]


def _cut(stem: bytes, room: int) -> bytes:
    """At most *room* bytes, without half a character of UTF-8."""
    if len(stem) <= room:
        return stem
    while room and stem[room] & 0xC0 == 0x80:
        room -= 1
    return stem[:room]
