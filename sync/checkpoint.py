"""Checkpoints: what the log has come to at a vector, as all devices say (Depot 5.5).

A device *states* a snapshot when its registers were exactly that: it signs the snapshot's hash, which covers
the vector (`hybrisfs.checkpoint.snapshot`). A checkpoint is *agreed* when all members of the volume have
stated the same snapshot. A device that has stated it takes it in on its own word; a new one takes the word
of the device that let it in.

The *root* of a checkpoint names the slices that the snapshot is cut into, and holds the statements. Root and
slices are named by a hash of their plaintext, keyed with the volume's secret (as chunks are), so that a
cloud or a peer that returns something else is found out at once.

    statement   signed: context string, volume 16, device 16, snapshot 32

    root        magic "HFCR", version u16 = 1
                volume     16
                snapshot   32, hash of the snapshot
                vector     version vector form: what the snapshot covers
                slices     varint, how many, at most MAX_SLICES; then for each
                           name    32
                           length  varint, 1 .. MAX_SLICE
                hints      slices in the same form: where chunks are in packs. They are not part of what is
                           agreed: each chunk proves itself, wherever it is read
                evidence   varint, how many, 1 .. MAX_WRITERS; then for each, ascending:
                           device     16
                           signature  64 of its statement

What stands on a cloud under the name `checkpoints/<name, hex>`:

    header   magic "HFCS", version u16 = 1
             name    32
    sealed   (`sync.seal`) size varint: bytes when decompressed; one zstd frame of a root or a slice
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

from sync.codec import HASH_SIZE, Buffer, Reader, Writer
from sync.errors import DecodeError, LimitError
from sync.identity import DEVICE_ID_SIZE, SIGNATURE_SIZE, DeviceKey, Members, verify
from sync.seal import SealKeys, compress, decompress, open_sealed, seal
from sync.update import MAX_VALUE, VOLUME_ID_SIZE
from sync.vector import MAX_WRITERS, VersionVector

__all__ = [
    "CHECKPOINTS",
    "MAX_ROOT",
    "MAX_SLICE",
    "MAX_SLICES",
    "Root",
    "Slice",
    "Statement",
    "checkpoint_name",
    "open_object",
    "parse_checkpoint_name",
    "seal_object",
    "states",
]

CHECKPOINTS = "checkpoints/"
MAX_SLICE = MAX_VALUE + (2 << 20)
"""Most bytes of a slice: one that holds the largest value."""
MAX_SLICES = 1 << 14
"""Most slices of a snapshot, and of its hints."""
MAX_ROOT = 2 << 20
"""Most bytes of a root."""

_CONTEXT = b"hybrisfs.sync 2026-11 checkpoint statement"
_ROOT_MAGIC = b"HFCR"
_OBJECT_MAGIC = b"HFCS"
_VERSION = 1
_NAME = re.compile(r"checkpoints/([0-9a-f]{64})")


class Slice(NamedTuple):
    """A piece of a snapshot or of its hints."""

    name: bytes
    length: int


class Statement(Struct, frozen=True):
    """A device says that its registers at `vector` were the snapshot with this hash."""

    vector: VersionVector
    snapshot: bytes
    signature: bytes

    @staticmethod
    def of(volume: bytes, vector: VersionVector, snapshot: bytes, key: DeviceKey) -> Statement:
        return Statement(vector, snapshot, key.sign(_signed(volume, key.device_id, snapshot)))


def _signed(volume: bytes, device: bytes, snapshot: bytes) -> bytes:
    return _CONTEXT + volume + device + snapshot


def states(volume: bytes, device: bytes, public: bytes, snapshot: bytes, signature: bytes) -> bool:
    """Whether the device with this key has signed a statement of the snapshot."""
    return verify(public, _signed(volume, device, snapshot), signature)


@dataclass(frozen=True, slots=True)
class Root:
    """The record above."""

    volume: bytes
    snapshot: bytes
    vector: VersionVector
    slices: tuple[Slice, ...]
    hints: tuple[Slice, ...]
    evidence: Mapping[bytes, bytes] = field(hash=False)
    """Device -> signature of its statement."""

    def encode(self) -> bytes:
        """Raises `LimitError`."""
        out = Writer().format(_ROOT_MAGIC, _VERSION).raw(self.volume).raw(self.snapshot)
        self.vector.write_to(out)
        for slices in (self.slices, self.hints):
            if len(slices) > MAX_SLICES:
                raise LimitError(f"a checkpoint of {len(slices)} slices, at most {MAX_SLICES} are allowed")
            out.varint(len(slices))
            for one in slices:
                out.raw(one.name).varint(one.length)
        out.varint(len(self.evidence))
        for device in sorted(self.evidence):
            out.raw(device).raw(self.evidence[device])
        return out.getvalue()

    @staticmethod
    def decode(data: Buffer) -> Root:
        """Raises `DecodeError`. What is signed is not checked: see `check`."""
        if len(data) > MAX_ROOT:
            raise DecodeError(f"a root of {len(data)} bytes, at most {MAX_ROOT} are allowed")
        reader = Reader(data)
        reader.format(_ROOT_MAGIC, _VERSION)
        volume, snapshot = reader.raw(VOLUME_ID_SIZE), reader.raw(HASH_SIZE)
        vector = VersionVector.read_from(reader)
        slices, hints = _read_slices(reader), _read_slices(reader)
        pairs = [
            (reader.raw(DEVICE_ID_SIZE), reader.raw(SIGNATURE_SIZE))
            for _ in range(reader.varint(MAX_WRITERS))
        ]
        reader.end()
        if not slices or not pairs:
            raise DecodeError("a checkpoint of nothing, or by nobody")
        if any(one[0] >= other[0] for one, other in pairwise(pairs)):
            raise DecodeError("statements out of order")
        return Root(volume, snapshot, vector, slices, hints, dict(pairs))

    def check(self, volume: bytes, members: Members) -> None:
        """Check the statements of devices that belong, or belonged, to the volume. Those of others, which may
        have come later than is known here, count nothing.

        Raises `DecodeError`, also when there is no other.
        """
        if self.volume != volume:
            raise DecodeError("a checkpoint of another volume")
        keys = {one: members.public_key(one) or members.former_key(one) for one in self.evidence}
        if not any(keys.values()):
            raise DecodeError("machines that are unknown here state the checkpoint")
        for device, signature in self.evidence.items():
            public = keys[device]
            if public is None:
                continue
            if not states(volume, device, public, self.snapshot, signature):
                raise DecodeError(f"machine {device.hex()} did not sign its statement")


def _read_slices(reader: Reader) -> tuple[Slice, ...]:
    slices = tuple(
        Slice(reader.raw(HASH_SIZE), reader.varint(MAX_SLICE)) for _ in range(reader.varint(MAX_SLICES))
    )
    if any(one.length == 0 for one in slices):
        raise DecodeError("a slice of no bytes")
    return slices


def checkpoint_name(name: bytes) -> str:
    """The object name of a root or slice."""
    return CHECKPOINTS + name.hex()


def parse_checkpoint_name(name: str) -> bytes | None:
    """The root or slice that an object name means, None for other objects."""
    found = _NAME.fullmatch(name)
    return bytes.fromhex(found[1]) if found else None


def seal_object(name: bytes, plaintext: bytes, volume: bytes, keys: SealKeys, nonce: bytes) -> bytes:
    """A root or slice as it stands on a cloud; *nonce*: 24 random bytes."""
    header = Writer().format(_OBJECT_MAGIC, _VERSION).raw(name).getvalue()
    return seal(
        header, volume, Writer().varint(len(plaintext)).raw(compress(plaintext)).getvalue(), keys, nonce
    )


def read_object_header(reader: Reader, name: str) -> None:
    """Read what is in clear of the root or slice that stands under `name`. Raises `DecodeError` when it is
    another one."""
    reader.format(_OBJECT_MAGIC, _VERSION)
    if checkpoint_name(reader.raw(HASH_SIZE)) != name:
        raise DecodeError("another part of a checkpoint")


def open_object(
    data: Buffer, name: bytes, volume: bytes, keys: SealKeys, name_of: Callable[[Buffer], bytes]
) -> bytes:
    """The root or slice in an object; `name_of` names a plaintext. Raises `DecodeError`, also when it is
    another one, `UnknownEpochError`."""
    reader = Reader(data)
    read_object_header(reader, checkpoint_name(name))
    header = bytes(memoryview(data)[: reader.position])
    payload = Reader(open_sealed(reader, header, volume, keys))
    size = payload.varint(MAX_SLICE)
    plaintext = decompress(payload.raw(payload.remaining), size)
    if name_of(plaintext) != name:
        raise DecodeError("a part of a checkpoint is not the one that its name means")
    return plaintext
