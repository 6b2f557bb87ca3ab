"""The object `signpost` on every cloud of a volume whose clouds were changed: which clouds it has now.

A device that was away while all clouds that it knows were replaced could not read the updates that say so.
What it finds here counts only for clouds that no register of its own tells of, and no longer.

    magic "HFSP", version u16 = 1, sealed (`sync.seal`, key of log segments):
    count (varint <= 257), then key (blob <= 2) and value (blob <= 8192) of each cloud or redundancy register

It is overwritten by whoever changes the clouds, and stays behind on a cloud that left.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from hybrisfs.merge.cloud_set import CloudRecord, cloud_key
from sync import DecodeError, SealKeys, Write
from sync.codec import Reader, Writer
from sync.seal import NONCE_SIZE, open_sealed, seal

__all__ = ["SIGNPOST_LIMIT", "SIGNPOST_NAME", "decode_signpost", "encode_signpost"]

SIGNPOST_NAME: Final = "signpost"
SIGNPOST_LIMIT: Final = 1 << 21
_HEADER: Final = Writer().raw(b"HFSP").u16(1).getvalue()
_MOST: Final = 257
_MOST_VALUE: Final = 8192


def encode_signpost(entries: Iterable[Write], volume: bytes, keys: SealKeys) -> bytes:
    """The object that tells of these registers."""
    told = [(name, value) for name, value in entries if value is not None]
    out = Writer().varint(len(told))
    for name, value in told:
        out.blob(name).blob(value)
    return seal(_HEADER, volume, out.getvalue(), keys, os.urandom(NONCE_SIZE))


def decode_signpost(data: bytes, volume: bytes, keys: SealKeys) -> dict[int, CloudRecord]:
    """The clouds that it tells of, by number. Raises DecodeError."""
    reader = Reader(data)
    if reader.raw(len(_HEADER)) != _HEADER:
        raise DecodeError("no signpost, or one of another version")
    inner = Reader(open_sealed(reader, _HEADER, volume, keys))
    clouds: dict[int, CloudRecord] = {}
    for _ in range(inner.varint(_MOST)):
        name, value = inner.blob(2), inner.blob(_MOST_VALUE)
        if len(name) == 2 and name == cloud_key(name[1]):
            clouds[name[1]] = CloudRecord.decode(value)
    inner.end()
    return clouds
