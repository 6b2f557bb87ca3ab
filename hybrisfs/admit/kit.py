"""The object `recovery/<kit id, hex>` on every cloud: a recovery kit.

    header     magic "HFRK", version u16 = 1
               kit     16, the device id of the reserve
               key     the sealed key (`sealed_key`)
               writer  16, the device that put this copy there
               serial  varint: the highest clock of the updates that the contents follow from
               digest  32, BLAKE3 of the contents, keyed with the voucher: equal for equal contents
               box     80, the wrap key (32) sealed for the reserve (`sync.identity.box_for`)
    nonce      24, random
    contents   blob: XChaCha20-Poly1305 of a grant (`hybrisfs.pairing.messages`), without credentials, under
               the wrap key; the associated data is the header, then the volume id (16)
    signature  64 of all before, by the writer
    tag        32, BLAKE3 of all before, keyed with the voucher

The *voucher* is known to all devices that ever belonged to the volume, and to a machine that opens the kit,
but to no cloud: a cloud can neither make a copy nor put the contents of one under another key. A device that
was removed knows it; devices therefore take a copy for one only when a member signed it, and a machine that
recovers prefers what f+1 clouds agree on.

Of two copies, the one with the higher (serial, digest) is the later one.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from blake3 import blake3
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from hybrisfs.environment import SYSTEM
from hybrisfs.pairing.messages import Grant
from hybrisfs.recovery.record import KitRecord
from hybrisfs.recovery.sealed_key import KitSecret, SealedKey
from sync import (
    DEVICE_ID_SIZE,
    HASH_SIZE,
    KEY_SIZE,
    MAX_CLOCK,
    NONCE_SIZE,
    DecodeError,
    DeviceKey,
    Reader,
    Writer,
    device_id_of,
)
from sync.identity import BOX_OVERHEAD, BOX_SEED_SIZE, SIGNATURE_SIZE, box_for, verify

__all__ = [
    "KIT_PREFIX",
    "MAX_KIT",
    "Chosen",
    "KitCopy",
    "Sources",
    "choose_copy",
    "decode_kit",
    "encode_kit",
    "kit_name",
]

log = logging.getLogger(__name__)

KIT_PREFIX: Final = "recovery/"
MAX_KIT: Final = 2 << 20
"""Most bytes of a kit."""
_MAGIC: Final = b"HFRK"
_VERSION: Final = 1
_BOX_SIZE: Final = KEY_SIZE + BOX_OVERHEAD
_MAX_CONTENTS: Final = MAX_KIT - 1024


def kit_name(kit: bytes) -> str:
    """The object name of a kit."""
    return f"{KIT_PREFIX}{kit.hex()}"


@dataclass(frozen=True, slots=True)
class Sources:
    """What the contents of a kit are made of, as a device knows it now."""

    grant: Grant
    serial: int

    def rank(self, voucher: bytes) -> tuple[int, bytes]:
        """Of two copies with contents that differ, the one with the higher rank is the later one."""
        return self.serial, _digest(self.grant.encode(), voucher)


@dataclass(frozen=True, slots=True)
class KitCopy:
    """A kit as a cloud returned it: well formed, nothing of it verified."""

    kit: bytes
    key: SealedKey
    writer: bytes
    serial: int
    digest: bytes
    box: bytes
    nonce: bytes
    contents: bytes
    header: bytes = field(repr=False)
    data: bytes = field(repr=False)

    @property
    def rank(self) -> tuple[int, bytes]:
        """See `Sources.rank`."""
        return self.serial, self.digest

    def is_vouched_for(self, voucher: bytes) -> bool:
        """Whether a device made it that knows the voucher."""
        return hmac.compare_digest(_tag(self.data[:-HASH_SIZE], voucher), self.data[-HASH_SIZE:])

    def is_signed_by(self, public: bytes) -> bool:
        """Whether the device with this key is the writer, and signed it."""
        end = len(self.data) - HASH_SIZE
        signed, signature = self.data[: end - SIGNATURE_SIZE], self.data[end - SIGNATURE_SIZE : end]
        return device_id_of(public) == self.writer and verify(public, signed, signature)

    def open(self, secret: KitSecret) -> Grant:
        """The contents. Raises DecodeError unless all of it is right."""
        if self.kit != secret.kit or not self.is_vouched_for(secret.voucher):
            raise DecodeError("no device of the volume made this copy of the kit")
        wrap = secret.reserve.open(self.box)
        try:
            plain = crypto_aead_xchacha20poly1305_ietf_decrypt(
                self.contents, self.header + secret.volume, self.nonce, wrap
            )
        except (CryptoError, ValueError, TypeError) as error:
            raise DecodeError("the contents of a kit do not open") from error
        grant = Grant.decode(plain)
        if grant.volume != secret.volume or _digest(plain, secret.voucher) != self.digest:
            raise DecodeError("a kit with the contents of another one")
        if not any(self.is_signed_by(public) for public in grant.members):
            raise DecodeError("no member signed this copy of the kit")
        return grant


def encode_kit(record: KitRecord, reserve: bytes, sources: Sources, device: DeviceKey) -> bytes:
    """The kit whose reserve has this public key, as *device* puts it on the clouds.

    Raises DecodeError and ValueError for what makes no grant.
    """
    plain, wrap, nonce = (
        sources.grant.encode(),
        SYSTEM.random_bytes(KEY_SIZE),
        SYSTEM.random_bytes(NONCE_SIZE),
    )
    out = Writer().format(_MAGIC, _VERSION).raw(device_id_of(reserve))
    record.key.write_to(out)
    out.raw(device.device_id).varint(sources.serial).raw(_digest(plain, record.voucher))
    header = out.raw(box_for(reserve, wrap, SYSTEM.random_bytes(BOX_SEED_SIZE))).getvalue()
    sealed = crypto_aead_xchacha20poly1305_ietf_encrypt(plain, header + sources.grant.volume, nonce, wrap)
    if len(sealed) > _MAX_CONTENTS:
        raise ValueError(f"a kit with {len(sealed)} bytes of contents")
    signed = out.raw(nonce).blob(sealed).getvalue()
    body = signed + device.sign(signed)
    return body + _tag(body, record.voucher)


def decode_kit(data: bytes, name: str) -> KitCopy:
    """What a cloud returned for the kit of this object name. Raises DecodeError."""
    if len(data) > MAX_KIT:
        raise DecodeError(f"a kit of {len(data)} bytes")
    reader = Reader(data)
    reader.format(_MAGIC, _VERSION)
    kit = reader.raw(DEVICE_ID_SIZE)
    if kit_name(kit) != name:
        raise DecodeError(f"another kit stands under the name {name}")
    key = SealedKey.read_from(reader)
    writer, serial = reader.raw(DEVICE_ID_SIZE), reader.varint(MAX_CLOCK)
    digest, box = reader.raw(HASH_SIZE), reader.raw(_BOX_SIZE)
    header = data[: reader.position]
    nonce, contents = reader.raw(NONCE_SIZE), reader.blob(_MAX_CONTENTS)
    reader.raw(SIGNATURE_SIZE + HASH_SIZE)
    reader.end()
    return KitCopy(kit, key, writer, serial, digest, box, nonce, contents, header, data)


def _digest(plain: bytes, voucher: bytes) -> bytes:
    return blake3(b"hybrisfs recovery kit contents" + plain, key=voucher).digest()


def _tag(body: bytes, voucher: bytes) -> bytes:
    return blake3(b"hybrisfs recovery kit" + body, key=voucher).digest()


# -- which of the copies of a kit to believe ------------------------------------------------------------
# Every copy that opens was made by a device that belonged to the volume at some time, and an old one is good
# enough (see `hybrisfs.recovery`). What remains is a device that was removed and a cloud that help each
# other: they can make a copy that looks newest, and that names clouds of their own. So what most clouds
# return alike is taken, where those that the person named count before those that a copy names, and only then
# the newest. What f+1 clouds return alike, one of them is right about.


@dataclass(frozen=True, slots=True)
class Chosen:
    """The contents that are believed; *agreed* when f+1 of their clouds return them alike."""

    grant: Grant
    agreed: bool


def choose_copy(copies: Mapping[str, KitCopy], secret: KitSecret, named: Collection[str]) -> Chosen | None:
    """The contents to believe of what clouds, by their URLs, returned; None when no copy opens. The person
    *named* these URLs."""
    clouds: dict[bytes, set[str]] = {}
    for url, copy in copies.items():
        clouds.setdefault(copy.data, set()).add(url)
    found: list[tuple[tuple[int, int, tuple[int, bytes]], Chosen]] = []
    for urls in clouds.values():
        copy = copies[min(urls)]
        try:
            grant = copy.open(secret)
        except DecodeError as error:
            log.warning("%s: the recovery kit is wrong: %s", ", ".join(sorted(urls)), error)
            continue
        own = urls.intersection(one.url for one in grant.clouds)
        votes = len(urls.intersection(named)), len(own), copy.rank
        found.append((votes, Chosen(grant, len(own) > grant.f)))
    return max(found, key=lambda one: one[0], default=(None, None))[1]
