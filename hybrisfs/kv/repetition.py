"""What clouds delete again: a request to put an object may take effect after the object was deleted.

writes
4       CRC-32 of what follows, as damage could name a value that is needed
...     runs of writes with consecutive numbers, each
varint  the number of its first write, less that after the last one of the run before (less 0 at first)
varint  how many writes
varint  how many names the objects of each of them have
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from hybrisfs.dispersal.erasure import MAX_FRAGMENTS
from sync.codec import DecodeError, Reader, Writer

__all__ = ["MAX_WRITES", "Repetition", "pack_writes", "unpack_writes"]

MAX_WRITES: Final = 4096
_MAX_WRITE: Final = (1 << 63) - 1
_CRC_SIZE: Final = 4


class Repetition(NamedTuple):
    """A row of the table: *writes*, packed, which a cloud has deleted *times* times, are deleted again when
    *due* (seconds since the epoch). `number` is the row's own, 0 before it is there."""

    cloud: int
    due: int
    times: int
    writes: bytes
    number: int = 0


def pack_writes(writes: Sequence[tuple[int, int]]) -> bytes:
    """At most `MAX_WRITES` writes, each with its number of names, in any order."""
    runs: list[list[int]] = []  # first write, how many, names of each
    for write, names in sorted(writes):
        if runs and write == runs[-1][0] + runs[-1][1] and names == runs[-1][2]:
            runs[-1][1] += 1
        else:
            runs.append([write, 1, names])
    out = Writer()
    after = 0
    for first, count, names in runs:
        out.varint(first - after).varint(count).varint(names)
        after = first + count
    packed = out.getvalue()
    return zlib.crc32(packed).to_bytes(_CRC_SIZE, "big") + packed


def unpack_writes(packed: bytes) -> list[tuple[int, int]]:
    """The writes in order. Raises DecodeError."""
    reader = Reader(packed)
    if int.from_bytes(reader.raw(_CRC_SIZE), "big") != zlib.crc32(packed[_CRC_SIZE:]):
        raise DecodeError("writes to be deleted again are damaged")
    writes: list[tuple[int, int]] = []
    after = 0
    while reader.remaining:
        first = after + reader.varint(_MAX_WRITE - after)
        count = reader.varint(min(MAX_WRITES - len(writes), _MAX_WRITE - first))
        names = reader.varint(MAX_FRAGMENTS)
        writes += ((write, names) for write in range(first, first + count))
        after = first + count
    return writes
