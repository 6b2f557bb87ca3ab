"""The object `signpost` on every cloud of a volume whose clouds were changed: which clouds it has now.

A device that was away while all clouds that it knows were replaced could not read the updates that say so.
What it finds here counts only for clouds that no register of its own tells of, and no longer; and only when a
member signed it, and f+1 of the clouds that the device knows by registers tell the same
(`hybrisfs.clouds.signposts`). For the keys of old epochs are also known to devices that were removed.

    magic "HFSP", version u16 = 2, sealed (`sync.seal`, key of log segments):
    writer 16,
    count (varint <= 257), then key (blob <= 2) and value (blob <= 8192) of each cloud or redundancy register,
    signature 64 of the magic, the version, the volume (16) and all before, by the writer

A device that changes the clouds overwrites it. It stays behind on a cloud that left.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from hybrisfs.merge.cloud_set import CloudRecord, cloud_key
from sync import DEVICE_ID_SIZE, DecodeError, DeviceKey, Members, SealKeys, Write
from sync.codec import Reader, Writer
from sync.identity import SIGNATURE_SIZE, verify
from sync.seal import NONCE_SIZE, open_sealed, seal

__all__ = ["SIGNPOST_LIMIT", "SIGNPOST_NAME", "decode_signpost", "encode_signpost"]

SIGNPOST_NAME: Final = "signpost"
SIGNPOST_LIMIT: Final = 1 << 21
_HEADER: Final = Writer().raw(b"HFSP").u16(2).getvalue()
_MOST: Final = 257
_MOST_VALUE: Final = 8192


def encode_signpost(entries: Iterable[Write], volume: bytes, keys: SealKeys, device: DeviceKey) -> bytes:
    """The object by which *device* tells of these registers."""
    told = [(name, value) for name, value in entries if value is not None]
    out = Writer().raw(device.device_id).varint(len(told))
    for name, value in told:
        out.blob(name).blob(value)
    signed = out.getvalue()
    payload = signed + device.sign(_HEADER + volume + signed)
    return seal(_HEADER, volume, payload, keys, os.urandom(NONCE_SIZE))


def decode_signpost(data: bytes, volume: bytes, keys: SealKeys, members: Members) -> dict[int, CloudRecord]:
    """The clouds that it tells of, by number. Raises DecodeError, also when none of *members* signed it."""
    reader = Reader(data)
    if reader.raw(len(_HEADER)) != _HEADER:
        raise DecodeError("no signpost, or one of another version")
    payload = open_sealed(reader, _HEADER, volume, keys)
    inner = Reader(payload)
    public = members.public_key(inner.raw(DEVICE_ID_SIZE))
    signed, signature = payload[:-SIGNATURE_SIZE], payload[-SIGNATURE_SIZE:]
    if public is None or not verify(public, _HEADER + volume + signed, signature):
        raise DecodeError("no member signed this signpost")
    clouds: dict[int, CloudRecord] = {}
    for _ in range(inner.varint(_MOST)):
        name, value = inner.blob(2), inner.blob(_MOST_VALUE)
        if len(name) == 2 and name == cloud_key(name[1]):
            clouds[name[1]] = CloudRecord.decode(value)
    inner.raw(SIGNATURE_SIZE)
    inner.end()
    return clouds
