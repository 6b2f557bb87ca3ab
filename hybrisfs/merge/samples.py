"""What the beginnings of a file before and after it was overwritten tell: is it still what it was?

A file has a *kind*: the format that its first bytes name, or text. What ransomware writes has none, and looks
random. What programs and people write in the place of a photo is a photo, and text stays text: a checkout, a
build, an editor, a tagger of photos, a nightly archive. Compressed formats look as random as what is
encrypted, so that a file looks random says something only when it had not before, and has no kind now.

Who knows this rule can get past it, by leaving beginnings as they are. It is there for programs that do not
know of it. Versions are there for all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from math import log2
from typing import Final

from hybrisfs.state.decisions import Cause

__all__ = ["BEGINNING", "MOST_SAMPLES", "Finding", "compare", "is_to_wait", "kind_of"]

BEGINNING: Final = 4096
"""Bytes of a file that are looked at, at most."""
MOST_SAMPLES: Final = 16
"""Files that are looked at, at most."""
_LEAST: Final = 16  # bytes; fewer look like anything
_LEAST_RANDOM: Final = 64  # bytes; of fewer nobody knows whether they look random
_RANDOM: Final = 0.87  # of the entropy that so many bytes can have: random ones have more, of any number
_PART: Final = 4  # one in so many files that are looked at is enough to ask a person
_COMMON: Final = 0.25  # of the words, or of the sequences of bytes, of what is kept
_SEQUENCE: Final = 8  # bytes
_PRINTED: Final = 0.7  # of the bytes of a text in an encoding of one byte for each character

_MAGIC: Final = (
    (0, b"\xff\xd8\xff", "jpeg"), (0, b"\x89PNG", "png"), (0, b"GIF8", "gif"), (0, b"RIFF", "riff"),
    (0, b"II*\0", "tiff"), (0, b"MM\0*", "tiff"), (0, b"IIU\0", "tiff"), (0, b"BM", "bmp"),
    (0, b"8BPS", "photoshop"), (0, b"FUJIFILM", "raf"), (0, b"\0\0\1\0", "icon"), (0, b"%PDF", "pdf"),
    (0, b"\xd0\xcf\x11\xe0", "ole"), (0, b"AT&TFORM", "djvu"), (0, b"PK\3\4", "zip"), (0, b"PK\5\6", "zip"),
    (0, b"7z\xbc\xaf", "7z"), (0, b"Rar!", "rar"), (0, b"\x1f\x8b", "gzip"), (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ", "xz"), (0, b"\x28\xb5\x2f\xfd", "zstd"), (0, b"\x04\x22\x4d\x18", "lz4"),
    (0, b"LZIP", "lzip"), (0, b"x\x01", "zlib"), (0, b"x\x5e", "zlib"), (0, b"x\x9c", "zlib"),
    (0, b"x\xda", "zlib"), (257, b"ustar", "tar"), (0, b"!<arch>", "ar"), (4, b"ftyp", "mp4"),
    (4, b"moov", "mp4"), (4, b"mdat", "mp4"), (0, b"\x1a\x45\xdf\xa3", "matroska"), (0, b"OggS", "ogg"),
    (0, b"fLaC", "flac"), (0, b"ID3", "mp3"), (0, b"\xff\xfb", "mp3"), (0, b"\xff\xf3", "mp3"),
    (0, b"\xff\xf1", "aac"), (0, b"FORM", "iff"), (0, b"MThd", "midi"), (0, b"FLV", "flv"),
    (0, b"\0\0\1\xba", "mpeg"), (0, b"\0\0\1\xb3", "mpeg"), (0, b"\x7fELF", "elf"), (0, b"MZ", "exe"),
    (0, b"\xcf\xfa\xed\xfe", "mach-o"), (0, b"\xca\xfe\xba\xbe", "class"), (0, b"\0asm", "wasm"),
    (2, b"\r\n", "pyc"), (0, b"\xac\xed\0\5", "java"), (0, b"SQLite format 3\0", "sqlite"),
    (0, b"PACK", "git pack"), (0, b"DIRC", "git index"), (0, b"\xfftOc", "git idx"), (0, b"wOF", "woff"),
    (0, b"\0\1\0\0", "font"), (0, b"OTTO", "font"), (0, b"PAR1", "parquet"), (0, b"\x89HDF", "hdf5"),
    (0, b"\x93NUMPY", "npy"), (0, b"BLENDER", "blender"), (0, b"AC10", "dwg"),
    (0, b"\x03\xd9\xa2\x9a", "kdbx"), (0, b"\xff\xfe", "utf-16"), (0, b"\xfe\xff", "utf-16"),
)  # fmt: skip
_TEXT: Final = "text"
_CONTROLS: Final = frozenset(range(32)) - frozenset(b"\t\n\r\f\v\b\x1b")
_WORD: Final = re.compile(rb"[\w\x80-\xff]{3,}")
_MOST_CUT: Final = 3  # bytes of a character of UTF-8 that the end of a sample cuts off


class Finding(Enum):
    """What has become of a file."""

    KEPT = auto()
    """It is of the same kind, and has much of what it had."""
    REPLACED = auto()
    """It is something else of a kind that is known; or too little is there to know."""
    SCRAMBLED = auto()
    """It was of some kind, and is of none; or it did not look random, and does."""


def compare(before: bytes, after: bytes) -> Finding:
    """What has become of a file that began with *before* and begins with *after*."""
    old, new = kind_of(before), kind_of(after)
    if min(len(before), len(after)) < _LEAST:
        return Finding.REPLACED
    if new is None and (old is not None or (_is_random(after) and not _is_random(before))):
        return Finding.SCRAMBLED
    if old != new:
        return Finding.REPLACED
    return Finding.KEPT if _have_much_in_common(before, after, is_text=old == _TEXT) else Finding.REPLACED


def is_to_wait(cause: Cause, findings: Sequence[Finding]) -> bool:
    """Whether a person is to be asked, as of what is suspected for this *cause* these samples were looked
    at."""
    bad = sum(
        one is Finding.SCRAMBLED or (cause is Cause.MUCH and one is Finding.REPLACED) for one in findings
    )
    return bad * _PART >= len(findings) and bad > 0


def kind_of(beginning: bytes) -> str | None:
    """The format that the first bytes of a file name, "text", or None."""
    for offset, magic, kind in _MAGIC:
        if beginning.startswith(magic, offset):
            return kind
    return _TEXT if _is_text(beginning) else None


def _is_text(data: bytes) -> bool:
    if not data or not _CONTROLS.isdisjoint(data):
        return False
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if len(data) == BEGINNING and error.start >= len(data) - _MOST_CUT:
            return True
    else:
        return True
    return sum(32 <= byte < 127 or byte in b"\t\n\r" for byte in data) >= _PRINTED * len(data)


def _is_random(data: bytes) -> bool:
    """Whether the bytes are as evenly spread as random ones."""
    if len(data) < _LEAST_RANDOM:
        return False
    entropy = sum(count * log2(len(data) / count) for count in Counter(data).values()) / len(data)
    return entropy >= _RANDOM * min(8.0, log2(len(data)))


def _have_much_in_common(before: bytes, after: bytes, *, is_text: bool) -> bool:
    """Whether texts have many of their words in common, and others many sequences of bytes, wherever these
    stand."""
    old, new = (set(_WORD.findall(one)) if is_text else _sequences(one) for one in (before, after))
    return len(old & new) >= _COMMON * max(len(old), len(new), 1)


def _sequences(data: bytes) -> set[bytes]:
    return {data[at : at + _SEQUENCE] for at in range(len(data) - _SEQUENCE + 1)}
