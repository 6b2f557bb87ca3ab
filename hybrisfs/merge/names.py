"""Conflict names: what stands beside another node that has its name is shown under one.

`name (conflict, DEVICE, DATE).ext` tells whose it is. In a crowd (`hybrisfs.merge.rules`) it tells the id of
the node instead, so that it follows from nothing else.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final
from unicodedata import ucd_3_2_0

from msgspec import Struct

from hybrisfs.registers.tree import MAX_NAME
from sync.codec import digest

__all__ = [
    "MOST_NUMBER",
    "Author",
    "conflict_name",
    "is_conflict_name",
    "is_kept",
    "later_names",
    "mark_by_id",
    "name_by_id",
    "number_names",
    "shortened",
]

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


class Author(Struct, frozen=True):
    """The writer of a losing value, for its conflict name. *time_ns* since the epoch, by its own clock."""

    device: str
    time_ns: int


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
    """The conflict name of a node in a crowd, which no other node can get."""
    stem, extension = _split(name)
    return _shorter(stem, _LONGEST_BY_ID + len(extension)) + mark_by_id(node, slot) + extension


def mark_by_id(node: bytes, slot: int) -> bytes:
    """The part of such a name that identifies the node."""
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
    """Whether a node with this conflict name keeps it even if other nodes want that name as their own."""
    stem = _split(name)[0]
    if _BY_ID.search(stem) is not None:
        return True
    numbered = _NUMBERED.match(stem)
    return numbered is not None and int(numbered[3] or 1) > MOST_NUMBER


def later_names(name: bytes) -> Iterator[bytes]:
    """The next conflict names for losers of one kind, while this one is taken."""
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
    """Conflict names for losers in their order; none is taken or given twice. No name with a number above
    *most* counts as taken, because others are kept from it."""
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
