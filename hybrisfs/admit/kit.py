"""Recovery kits on the clouds: the objects `kits/KIT/RECORD`, each a version of a kit, and `recovery/KIT`.

KIT is the id of the kit in hex. RECORD is that of a version of kind 1 (`hybrisfs.quorums.names`),
hashed with a key that follows from the voucher (below). The number of its time is the serial, but at most
2^48 - 1, and the writer the first 8 bytes of the digest; write and verifier are 24 bytes of a hash of the
object, keyed with the voucher; k is 1 and the commitment 0. The object `recovery/KIT` has the bytes of the
latest version, for programs that know no versions. All are this:

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
recovers takes what more than f clouds have (`choose_copy`).

Of two copies, the one with the higher (serial, digest) is the later one.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from blake3 import blake3
from msgspec import Struct
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from hybrisfs.environment import SYSTEM
from hybrisfs.pairing.messages import Grant
from hybrisfs.quorums.contact import self_proving
from hybrisfs.quorums.names import RegisterNames, Version
from hybrisfs.quorums.thresholds import Standing, first_contact
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
    "VERSIONS_PREFIX",
    "Chosen",
    "Held",
    "KitCopy",
    "Sources",
    "choose_copy",
    "decode_kit",
    "encode_kit",
    "kit_name",
    "kit_versions",
    "versions_prefix",
]

log = logging.getLogger(__name__)

KIT_PREFIX: Final = "recovery/"
VERSIONS_PREFIX: Final = "kits/"
MAX_KIT: Final = 2 << 20
"""Most bytes of a kit."""
_MAGIC: Final = b"HFRK"
_VERSION: Final = 1
_BOX_SIZE: Final = KEY_SIZE + BOX_OVERHEAD
_MAX_CONTENTS: Final = MAX_KIT - 1024


def kit_name(kit: bytes) -> str:
    """The name under which every program knows a kit."""
    return f"{KIT_PREFIX}{kit.hex()}"


def versions_prefix(kit: bytes) -> str:
    """What the names of the versions of a kit begin with."""
    return f"{VERSIONS_PREFIX}{kit.hex()}/"


def kit_versions(kit: bytes, voucher: bytes) -> RegisterNames:
    """The names of the versions of a kit."""
    key = blake3(b"hybrisfs recovery kit names", key=voucher).digest()
    return RegisterNames(versions_prefix(kit), key)


class Sources(Struct, frozen=True):
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

    def version(self, voucher: bytes) -> Version:
        """The version that it is."""
        digest = blake3(b"hybrisfs recovery kit version" + self.data, key=voucher).digest()
        return self_proving(self.serial, self.digest, digest, len(self.data))

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
            raise DecodeError("no machine of the volume made this copy of the kit")
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


# -- which of the versions of a kit to believe ----------------------------------------------------------
# Every version that opens was made by a device that belonged to the volume at some time. What remains is a
# device that was removed, and clouds that help it: they can make one that looks newest, names clouds of their
# own, and says what f they like. Of correct clouds, some that the person named can be more than f, and no
# cloud that lies is among the volume's more often than f times. So:
#
# 1. What more than f of the clouds have that the person named, a correct cloud has. The latest such version
#    is believed. f is the highest one that those versions tell which most of these clouds have, but at least
#    all below half of the clouds that the person named: so many can lie without a vote being lost.
# 2. Of the clouds that a believed version names, not more than f lie: a later version that more of them have
#    is believed in its place, and so on.
# 3. If nothing is believed, as the person named too few clouds: the version that most of them have; then the
#    one that its own clouds have, but more than f+1 count no more than f+1; then the latest.
#
# An earlier version stays until a later one is complete, so that there is always one which f+1 correct clouds
# have. An old version does no harm (see `hybrisfs.recovery`).


class Held(NamedTuple):
    """A copy, and the URLs of the clouds that have it."""

    copy: KitCopy
    urls: frozenset[str]


class Chosen(Struct, frozen=True):
    """The contents that are chosen, and the grounds."""

    grant: Grant
    agreed: bool
    """More than f clouds have them: of those that the person named, or that a version names which these have;
    or, if those that the person named do not contradict, of those that the contents themselves name."""
    by_named: bool
    """Whether it rests on more than f clouds that the person named."""


class _Opened(NamedTuple):
    copy: KitCopy
    grant: Grant
    urls: frozenset[str]
    named: frozenset[str]
    """Those of the URLs that the person named."""

    @property
    def rank(self) -> tuple[int, bytes]:
        return self.copy.rank

    def held_by(self, other: _Opened) -> int:
        """How many of the clouds that another version names have this one."""
        return len(self.urls.intersection(one.url for one in other.grant.clouds))


def choose_copy(found: Iterable[Held], secret: KitSecret, named: Collection[str]) -> Chosen | None:
    """The contents to believe of what clouds returned; None when no copy opens. The person *named* these
    URLs."""
    opened = [one for held in found if (one := _open(held, secret, named)) is not None]
    if not opened:
        return None
    most = max(len(one.named) for one in opened)
    f = max((len(set(named)) - 1) // 2, *(one.grant.f for one in opened if len(one.named) == most))
    # The words for a person go by the highest f that any version tells: a forged one may tell a low one.
    highest = max(one.grant.f for one in opened)
    believed = [one for one in opened if _counts(len(one.named), f)]
    if not believed:
        chosen = max(opened, key=lambda one: (len(one.named), min(one.held_by(one), f + 1), one.rank))
        by_named = _counts(len(chosen.named), highest)
        contradicted = any(one.named - chosen.urls for one in opened)
        agreed = by_named or (not contradicted and _counts(chosen.held_by(chosen), highest))
        return Chosen(chosen.grant, agreed, by_named)
    chosen = max(believed, key=lambda one: one.rank)
    holders = len(chosen.named)
    while (later := _later(opened, chosen, f)) is not None:
        holders = max(len(later.named), later.held_by(chosen))
        chosen = later
    return Chosen(chosen.grant, _counts(holders, highest), by_named=True)


def _open(held: Held, secret: KitSecret, named: Collection[str]) -> _Opened | None:
    try:
        grant = held.copy.open(secret)
    except DecodeError as error:
        log.warning("%s: the recovery kit is wrong: %s", ", ".join(sorted(held.urls)), error)
        return None
    return _Opened(held.copy, grant, held.urls, held.urls.intersection(named))


def _counts(holders: int, f: int) -> bool:
    """Whether one of so many clouds is correct."""
    return first_contact(f).classify(holders) is not Standing.INCOMPLETE


def _later(opened: Collection[_Opened], believed: _Opened, f: int) -> _Opened | None:
    """The latest version after a believed one that enough of the clouds have which that one names."""
    later = (one for one in opened if one.rank > believed.rank and _counts(one.held_by(believed), f))
    return max(later, key=lambda one: one.rank, default=None)
