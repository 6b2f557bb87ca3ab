"""The one check of object names.

A name is 1 to `MAX_SEGMENTS` segments joined by "/". A segment is 1 to 128 characters of
``[a-z0-9._-]`` and does not begin with a dot, so that a driver may keep files of its own under
names that begin with one. The alphabet is what every kind of cloud stores unchanged, lower case
only because some folders ignore case. Filesystem-backed clouds cannot hold `p` beside `p/q`:
code that names objects must see to it that no name is a parent path of another.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["MAX_NAME", "MAX_SEGMENTS", "check_name", "check_prefix", "is_name"]

MAX_NAME: Final = 512  # characters
MAX_SEGMENTS: Final = 8

_SEGMENT = r"[a-z0-9_-][a-z0-9._-]{0,127}"
_NAME = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT}){{0,{MAX_SEGMENTS - 1}}}")
_PREFIX = re.compile(rf"(?:{_SEGMENT}/){{0,{MAX_SEGMENTS - 1}}}(?:{_SEGMENT})?")


def is_name(text: str) -> bool:
    """Whether `text` is a legal object name."""
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def check_name(name: str) -> str:
    """Return `name`; raise `ValueError` when it is not a legal object name."""
    if not is_name(name):
        raise ValueError(f"not a legal object name: {name[:80]!r}")
    return name


def check_prefix(prefix: str) -> str:
    """Return `prefix`; raise `ValueError` when no legal object name can begin with it."""
    if len(prefix) > MAX_NAME or _PREFIX.fullmatch(prefix) is None:
        raise ValueError(f"not a legal prefix of object names: {prefix[:80]!r}")
    return prefix
