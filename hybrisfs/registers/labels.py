"""Labels: words on nodes. Each word on each node is a register of its own, so that devices add and remove
labels without knowing of each other.

=========  ==============================================  ==================================================
register   key                                             value
=========  ==============================================  ==================================================
label      ``l`` node id (16), word (1 .. 64 bytes)        u8: 1 the node has it, 0 it was taken away
=========  ==============================================  ==================================================

A word is UTF-8 without control characters (below U+0020, U+007F to U+009F) and commas, and begins and ends
with no space. Words with other bytes are other labels: what people type is brought into the form NFC.

Of concurrent values one that adds the label counts: the device that took it away had not seen it. The node
has the label while any of the latest values is 1.

The label ``copies=N`` (N from 1 to 32) asks for something: that the node, with all that is below, is on at
least so many devices (`hybrisfs.read.copies`). Of several of these the greatest counts.

On the root, ``announce=SECONDS`` (10 to 900) asks all devices to announce themselves at least so often
(`sync.follow`). Of several of these the least counts; without one it is 900.

On the root, ``archive=AFTER/K`` asks all devices to archive what has rested for AFTER days (1 to 3660), so
that K clouds (2 to 31) are needed to read it, or with ``auto`` as many as is cheapest
(`hybrisfs.gc.archive`). With ``off`` for AFTER nothing more is archived. Of several of these the one that
archives last counts, and of these the one with the smallest K, before ``auto``.

The label ``merge=off`` asks that no device merges versions of the node, or of what is below it, unasked
(`hybrisfs.volume.unasked`).

As text, and in the extended attribute `user.hybrisfs.labels`, the labels of a node are joined by commas, in
the order of their bytes, and no more than the first 64.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final, NamedTuple

from hybrisfs.kinds import LABEL
from sync.codec import DecodeError
from sync.follow import ANNOUNCE_SECONDS

__all__ = [
    "ADDED",
    "ArchiveAsked",
    "LABEL_BYTES",
    "LEAST_ANNOUNCE",
    "MERGE_OFF",
    "MOST_ARCHIVE_DAYS",
    "MOST_COPIES",
    "MOST_LABELS",
    "TAKEN_AWAY",
    "announce_asked",
    "announce_label",
    "archive_asked",
    "archive_label",
    "as_text",
    "check_label",
    "copies_asked",
    "copies_label",
    "from_text",
    "label_key",
    "parse_label",
    "word_of",
]

LABEL_BYTES: Final = 64
"""That a label has at most."""
MOST_LABELS: Final = 64
"""That programs here can give a node. With those of other devices it can have more."""
ADDED: Final = b"\1"
TAKEN_AWAY: Final = b"\0"
MOST_COPIES: Final = 32
MERGE_OFF: Final = "merge=off"
MOST_ARCHIVE_DAYS: Final = 3660
LEAST_ANNOUNCE: Final = 10
"""The fewest seconds between two announcements for which a label can ask."""
_SEPARATOR: Final = ","
_COPIES: Final = re.compile(r"copies=([1-9][0-9]?)")
_ANNOUNCE: Final = re.compile(r"announce=([1-9][0-9]{1,2})")
_ARCHIVE: Final = re.compile(r"archive=(off|[1-9][0-9]{0,3})/(auto|[2-9]|[12][0-9]|3[01])")
# By code points, not by what some version of Unicode calls printable: all devices have to decide alike.
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f-\x9f,]|^ | $")


def label_key(node: bytes, word: str) -> bytes:
    """The register of a label on a node."""
    return LABEL.key(node, word.encode())


def word_of(key: bytes) -> str:
    """The label that a register is of. What `check_label` does not allow may be there, too: an earlier
    version, which knew no labels, kept it unread."""
    return key[LABEL.size :].decode(errors="backslashreplace")


def check_label(key: bytes, value: bytes) -> None:
    """Raises DecodeError unless this is the key of a label and a value that it may have."""
    word = key[LABEL.size :]
    try:
        unfit = not 0 < len(word) <= LABEL_BYTES or _UNFIT.search(word.decode())
    except UnicodeDecodeError:
        unfit = True
    if unfit:
        raise DecodeError("a word that is not a label")
    if value not in (ADDED, TAKEN_AWAY):
        raise DecodeError("neither a label nor none")


def parse_label(text: str) -> str:
    """The label that a person means. Raises ValueError, which says what is wrong with it."""
    word = unicodedata.normalize("NFC", text.strip())
    if not word:
        raise ValueError("a label is a word")
    if _SEPARATOR in word:
        raise ValueError("a label has no comma")
    if not word.isprintable():
        raise ValueError("a label consists of characters that can be seen")
    if len(word.encode()) > LABEL_BYTES:
        raise ValueError(f"a label has {LABEL_BYTES} bytes at most")
    return word


def copies_label(copies: int) -> str:
    """The label that asks for so many copies."""
    return f"copies={copies}"


def copies_asked(words: Iterable[str]) -> int:
    """For how many copies labels ask: 0 when for none."""
    found = (_COPIES.fullmatch(word) for word in words)
    numbers = (int(one[1]) for one in found if one is not None)
    return max((number for number in numbers if number <= MOST_COPIES), default=0)


def announce_label(seconds: int) -> str:
    """The label of the root that asks devices to announce themselves so often."""
    return f"announce={seconds}"


def announce_asked(words: Iterable[str]) -> int | None:
    """For how many seconds between announcements labels of the root ask; None when for none."""
    found = (_ANNOUNCE.fullmatch(word) for word in words)
    numbers = (int(one[1]) for one in found if one is not None)
    return min((one for one in numbers if LEAST_ANNOUNCE <= one <= ANNOUNCE_SECONDS), default=None)


class ArchiveAsked(NamedTuple):
    """What labels of the root ask for: after how many *days* of rest something is to be archived, None for
    never; and for how many clouds, *k*, that are needed to read it, None for as many as is cheapest."""

    days: int | None
    k: int | None


def archive_label(asked: ArchiveAsked) -> str:
    """The label of the root that asks devices to archive what has rested."""
    return f"archive={asked.days or 'off'}/{asked.k or 'auto'}"


def archive_asked(words: Iterable[str]) -> ArchiveAsked | None:
    """What labels of the root ask to be archived; None when none ever did."""
    found = [
        ArchiveAsked(*(int(part) if part.isdigit() else None for part in one.groups()))
        for one in map(_ARCHIVE.fullmatch, words)
        if one is not None
    ]
    never, widest = MOST_ARCHIVE_DAYS + 1, MOST_COPIES
    known = [one for one in found if (one.days or 0) <= MOST_ARCHIVE_DAYS]
    return max(known, key=lambda one: (one.days or never, -(one.k or widest)), default=None)


def as_text(words: Iterable[str]) -> bytes:
    """Labels as an extended attribute has them."""
    return _SEPARATOR.join(words).encode()


def from_text(text: bytes) -> list[str]:
    """The labels that an extended attribute names, each once. Raises ValueError."""
    parts = text.decode().split(_SEPARATOR)
    return list(dict.fromkeys(parse_label(one) for one in parts if one.strip()))
