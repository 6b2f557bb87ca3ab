"""Grants: how the members of a volume, and no other devices, get the keys of its epochs.

A device that removes another begins an epoch with fresh keys, and grants them to the rest: as a register, in
the very update that removes the device, and as an object on the clouds, for devices that meet objects sealed
with the new keys before that update. There each device that uses an epoch puts a grant of its own, for all
that it knows as members. When the removal of a device is vetoed, it is granted the epochs that it lacks: by
registers, then by objects, too: all devices must learn of the epochs that exclude it.

========  ==================  =====================================================================
register  key                 value
========  ==================  =====================================================================
epoch     ``e`` epoch id (4)  a grant
========  ==================  =====================================================================

    grant     version u8 = 1
              boxes    varint, at most MAX_WRITERS; then for each, in ascending order:
                       device 16
                       box    80, the wrap key (32) sealed for that device (`sync.identity.box_for`), or
                              zeros: it was granted the epoch before
              nonce    24, random
              ring     blob: XChaCha20-Poly1305 of the epochs under the wrap key; associated data: volume (16)

    epochs    varint, at most MAX_EPOCHS; then for each, lowest rank first:
              id 4, number varint, data 32, metadata 32,
              excluded varint, at most MAX_WRITERS; then device 16 for each, in ascending order

    object    `epochs/<epoch id, hex>/<writer's device id, hex>`:
              magic "HFEG", version u16 = 1, epoch 4, writer 16, grant, signature 64 of all before by the
              writer

No grant holds the first epoch, which every device gets when it is paired. That in a register holds the epoch
of its key, and what else its ring says counts for nothing; an object holds the epochs that its writer knows
and that exclude none to which it gives them, or one that excludes a member again. A cloud sees how many
devices there are, and when one is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from hybrisfs.environment import SYSTEM
from hybrisfs.keys import MAX_EPOCH_NUMBER, MAX_EPOCHS, EpochKeys
from hybrisfs.kinds import EPOCH
from sync import (
    DEVICE_ID_SIZE,
    EPOCH_SIZE,
    FIRST_EPOCH,
    KEY_SIZE,
    MAX_WRITERS,
    NONCE_SIZE,
    DecodeError,
    DeviceKey,
    Members,
    Reader,
    Writer,
)
from sync.identity import BOX_OVERHEAD, BOX_SEED_SIZE, SIGNATURE_SIZE, box_for, is_public_key, verify

__all__ = [
    "GRANT_PREFIX",
    "MAX_GRANT",
    "check_grant",
    "encode_grant",
    "encode_grant_object",
    "epoch_key",
    "given_to",
    "grant_name",
    "open_grant",
    "open_grant_object",
    "parse_grant_name",
    "read_epochs",
    "write_epochs",
]

GRANT_PREFIX: Final = "epochs/"
MAX_GRANT: Final = 1 << 20
"""Most bytes of a grant object."""

_VERSION: Final = 1
_MAGIC: Final = b"HFEG"
_BOX: Final = KEY_SIZE + BOX_OVERHEAD
_NOTHING: Final = bytes(_BOX)
_MAX_RING: Final = MAX_GRANT // 2


def epoch_key(epoch: bytes) -> bytes:
    """The register of an epoch's grant."""
    return EPOCH.prefix + epoch


def grant_name(epoch: bytes, writer: bytes) -> str:
    """The object name of the grant of `writer`."""
    return f"{GRANT_PREFIX}{epoch.hex()}/{writer.hex()}"


def parse_grant_name(name: str) -> tuple[bytes, bytes]:
    """The epoch and the writer in the object name of a grant. Raises DecodeError for any other name."""
    parts = name.removeprefix(GRANT_PREFIX).split("/")
    try:
        epoch, writer = (bytes.fromhex(part) for part in parts)
    except ValueError as error:
        raise DecodeError(f"not the name of a grant: {name!r}") from error
    if (len(epoch), len(writer)) != (EPOCH_SIZE, DEVICE_ID_SIZE) or grant_name(epoch, writer) != name:
        raise DecodeError(f"not the name of a grant: {name!r}")
    return epoch, writer


def write_epochs(out: Writer, epochs: Iterable[EpochKeys]) -> None:
    """Append the form above."""
    epochs = list(epochs)
    out.varint(len(epochs))
    for epoch in epochs:
        out.raw(epoch.id).varint(epoch.number).raw(epoch.data).raw(epoch.metadata)
        out.varint(len(epoch.excluded))
        for device in sorted(epoch.excluded):
            out.raw(device)


def read_epochs(reader: Reader) -> list[EpochKeys]:
    """Raises DecodeError."""
    epochs = []
    for _ in range(reader.varint(MAX_EPOCHS)):
        identity, number = reader.raw(EPOCH_SIZE), reader.varint(MAX_EPOCH_NUMBER)
        data, metadata = reader.raw(KEY_SIZE), reader.raw(KEY_SIZE)
        excluded = [reader.raw(DEVICE_ID_SIZE) for _ in range(reader.varint(MAX_WRITERS))]
        if any(one >= other for one, other in pairwise(excluded)):
            raise DecodeError("excluded machines out of order")
        epochs.append(EpochKeys(identity, number, data, metadata, frozenset(excluded)))
    if any(one.rank >= other.rank for one, other in pairwise(epochs)):
        raise DecodeError("epochs out of order")
    if len({one.id for one in epochs}) != len(epochs):
        raise DecodeError("an epoch is named twice")
    return epochs


def encode_grant(
    volume: bytes,
    epochs: Iterable[EpochKeys],
    members: Members,
    before: Iterable[bytes] = (),
    random_bytes: Callable[[int], bytes] = SYSTEM.random_bytes,
) -> bytes:
    """A grant of all *epochs* but the first to all *members* with valid public keys. It gives nothing to
    devices that it names as having been granted them *before*."""
    wrap, nonce = random_bytes(KEY_SIZE), random_bytes(NONCE_SIZE)
    boxes = dict.fromkeys(before, _NOTHING)
    for device, public in sorted(members.public_keys.items()):
        if is_public_key(public):
            boxes[device] = box_for(public, wrap, random_bytes(BOX_SEED_SIZE))
    out = Writer().u8(_VERSION).varint(len(boxes))
    for device, box in sorted(boxes.items()):
        out.raw(device).raw(box)
    ring = Writer()
    write_epochs(ring, (epoch for epoch in epochs if epoch.id != FIRST_EPOCH))
    sealed = crypto_aead_xchacha20poly1305_ietf_encrypt(ring.getvalue(), volume, nonce, wrap)
    return out.raw(nonce).blob(sealed).getvalue()


def open_grant(grant: bytes, volume: bytes, device: DeviceKey) -> list[EpochKeys]:
    """The epochs that a grant gives to *device*; none when it is not for it. Raises DecodeError."""
    reader = Reader(grant)
    epochs = _read_grant(reader, volume, device)
    reader.end()
    return epochs


def check_grant(grant: bytes) -> None:
    """Raise DecodeError unless it has the form of a grant. Only members can read what is sealed in it."""
    reader = Reader(grant)
    _read_sealed(reader)
    reader.end()


def given_to(grant: bytes) -> frozenset[bytes]:
    """The devices that a grant names. Raises DecodeError."""
    return frozenset(_read_sealed(Reader(grant))[0])


def _read_sealed(reader: Reader) -> tuple[dict[bytes, bytes], bytes, bytes]:
    """The boxes of a grant by devices, its nonce, and its sealed ring."""
    if reader.u8() != _VERSION:
        raise DecodeError("a grant of another version")
    boxes = [(reader.raw(DEVICE_ID_SIZE), reader.raw(_BOX)) for _ in range(reader.varint(MAX_WRITERS))]
    if any(one >= other for (one, _), (other, _) in pairwise(boxes)):
        raise DecodeError("boxes out of order")
    return dict(boxes), reader.raw(NONCE_SIZE), reader.blob(_MAX_RING)


def _read_grant(reader: Reader, volume: bytes, device: DeviceKey) -> list[EpochKeys]:
    boxes, nonce, sealed = _read_sealed(reader)
    box = boxes.get(device.device_id)
    if box is None or box == _NOTHING:
        return []
    wrap = device.open(box)
    try:
        ring = crypto_aead_xchacha20poly1305_ietf_decrypt(sealed, volume, nonce, wrap)
    except (CryptoError, ValueError) as error:
        raise DecodeError("the keys in a grant do not open") from error
    inner = Reader(ring)
    epochs = read_epochs(inner)
    inner.end()
    if any(epoch.id == FIRST_EPOCH for epoch in epochs):
        raise DecodeError("a grant of the first epoch")
    return epochs


def encode_grant_object(epoch: bytes, grant: bytes, device: DeviceKey) -> bytes:
    """The grant as *device* puts it on the clouds under `grant_name`."""
    signed = Writer().format(_MAGIC, _VERSION).raw(epoch).raw(device.device_id).raw(grant).getvalue()
    return signed + device.sign(signed)


def open_grant_object(
    data: bytes, epoch: bytes, volume: bytes, public: bytes, writer: bytes, device: DeviceKey
) -> list[EpochKeys]:
    """The epochs that an object, which a cloud returned as the grant of the member *writer*, gives to
    *device*.

    *public* is the writer's key. Raises DecodeError.
    """
    if len(data) > MAX_GRANT:
        raise DecodeError(f"a grant of {len(data)} bytes")
    reader = Reader(data)
    reader.format(_MAGIC, _VERSION)
    if (reader.raw(EPOCH_SIZE), reader.raw(DEVICE_ID_SIZE)) != (epoch, writer):
        raise DecodeError("a grant of another epoch or machine")
    if not verify(public, data[:-SIGNATURE_SIZE], data[-SIGNATURE_SIZE:]):
        raise DecodeError(f"machine {writer.hex()} did not sign this grant")
    epochs = _read_grant(reader, volume, device)
    reader.raw(SIGNATURE_SIZE)
    reader.end()
    return epochs
