"""The history hash (Depot 4.2): a fingerprint of everything an update depends on.

It covers the newest update of each writer in the update's full dependency vector. Each of those
carries a history hash of its own, so by recursion the whole past is covered: two devices that
compute the same hash for a vector have accepted byte-equal updates up to it.

Hashed bytes, ascending by writer:  writer (16) + clock (u64) + update hash (32), repeated
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from sync.hashing import digest
from sync.vector import VersionVector

__all__ = ["history_hash"]

_CONTEXT = "hybrisfs.sync 2026-11 history"
_ENTRY = struct.Struct(">16sQ32s")


def history_hash(vector: VersionVector, hash_of: Callable[[bytes, int], bytes]) -> bytes:
    """Hash the history that `vector` names.

    `hash_of(writer, clock)` returns the hash of the accepted update with that stamp.
    """
    pack = _ENTRY.pack
    return digest(
        _CONTEXT, b"".join([pack(writer, clock, hash_of(writer, clock)) for writer, clock in vector.items()])
    )
