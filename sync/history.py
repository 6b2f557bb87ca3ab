"""The history hash (Depot 4.2): a fingerprint of everything an update depends on.

It covers the newest update of each branch in the update's full dependency vector. Each of those
carries a history hash of its own, so by recursion the whole past is covered: two devices that
compute the same hash for a vector have accepted byte-equal updates up to it.

Hashed bytes, ascending:  device (16) + clock (u64) + update hash (32), repeated

Branch ids are not in it, and the update in a fork point stands in it only if nothing that the vector covers
follows it on a branch. So a device that does not know of a fork computes the same hash as one that does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from sync.hashing import digest

__all__ = ["history_hash"]

_CONTEXT = "hybrisfs.sync 2026-11 history"
_ENTRY = struct.Struct(">16sQ32s")


def history_hash(newest: Iterable[tuple[bytes, int, bytes]]) -> bytes:
    """Hash the history that ends in these updates, each given by device, clock and hash, in any order."""
    pack = _ENTRY.pack
    return digest(_CONTEXT, b"".join(sorted([pack(*entry) for entry in newest])))
