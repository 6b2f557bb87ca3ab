"""Extended attributes that are mirrored: those of the namespace `user`, but for what HybrisFS itself
shows."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Final

__all__ = ["digest_of", "is_mirrored"]

_OURS: Final = b"user.hybrisfs."
_LENGTHS: Final = struct.Struct(">II")


def is_mirrored(name: bytes) -> bool:
    """Whether an extended attribute of that name is kept on both sides. What another device signed may have a
    name that no disk takes."""
    return name.startswith(b"user.") and not name.startswith(_OURS) and b"\0" not in name


def digest_of(xattrs: Mapping[bytes, bytes]) -> bytes:
    """Equal for equal attributes; empty when there are none."""
    if not xattrs:
        return b""
    found = hashlib.blake2b(digest_size=16)
    for name, value in sorted(xattrs.items()):
        found.update(_LENGTHS.pack(len(name), len(value)) + name + value)
    return found.digest()
