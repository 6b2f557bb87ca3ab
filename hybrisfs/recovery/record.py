"""The registers of a recovery kit: what every device needs to renew it.

==========  ====================  ===================================================================
register    key                   value
==========  ====================  ===================================================================
signed kit  ``q`` kit id (16)     version u8 = 1, the record (blob <= 1024), public key of the reserve (32),
                                  its signature (64) of "hybrisfs recovery kit record" and all before
kit         ``y`` kit id (16)     the record alone: of kits that earlier versions made
==========  ====================  ===================================================================

The *record* is version u8 = 1, name of the volume (blob <= 64, ASCII), created u64, seconds since the epoch,
before the year 5000, voucher (32), the sealed key (`hybrisfs.recovery.sealed_key`).

The kit's id is the device id of its reserve. A signed kit says by itself that it is one: nobody but its maker
writes the register, which never ends. So no member takes a kit away by overwriting anything; a kit is worth
nothing when its reserve was removed, as any member is (`hybrisfs.members.removal`). The register of earlier
versions any member could overwrite, or end together with the removal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from hybrisfs.errors import UsageError
from hybrisfs.home import check_volume_name
from hybrisfs.kinds import KIT, SIGNED_KIT
from hybrisfs.recovery.sealed_key import VOUCHER_SIZE, SealedKey
from sync import DecodeError, DeviceKey, Reader, Writer, device_id_of
from sync.identity import SIGNATURE_SIZE, is_public_key, verify

__all__ = [
    "KIT_CONTEXT",
    "KitRecord",
    "SignedKit",
    "kit_key",
    "signed_kit_key",
]

_VERSION: Final = 1
_MAX_NAME: Final = 64
_MAX_RECORD: Final = 1024
_PUBLIC_SIZE: Final = 32
KIT_CONTEXT: Final = b"hybrisfs recovery kit record"
"""What the signature of a kit covers before its value."""
_MOST_SECONDS: Final = 95_617_584_000  # since the epoch: until then calendars everywhere can show the time


def kit_key(kit: bytes) -> bytes:
    return KIT.key(kit)


def signed_kit_key(kit: bytes) -> bytes:
    return SIGNED_KIT.key(kit)


@dataclass(frozen=True, slots=True)
class KitRecord:
    """A kit as its register says."""

    volume_name: str
    created: int
    voucher: bytes = field(repr=False)
    key: SealedKey

    def encode(self) -> bytes:
        out = Writer().u8(_VERSION).blob(self.volume_name.encode()).u64(self.created).raw(self.voucher)
        self.key.write_to(out)
        return out.getvalue()

    @staticmethod
    def decode(value: bytes) -> KitRecord:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a record of a kit of another version")
        name, created, voucher = reader.blob(_MAX_NAME), reader.u64(), reader.raw(VOUCHER_SIZE)
        key = SealedKey.read_from(reader)
        reader.end()
        if created >= _MOST_SECONDS:
            raise DecodeError("a kit that was made at no time that can be shown")
        try:
            return KitRecord(check_volume_name(name.decode()), created, voucher, key)
        except (UnicodeDecodeError, UsageError) as error:
            raise DecodeError("the record of a kit names no volume") from error


class SignedKit(Struct, frozen=True):
    """A kit as its reserve has signed it."""

    record: KitRecord
    public: bytes
    """Of the reserve."""

    def encode(self, reserve: DeviceKey) -> bytes:
        """The value of the register, signed by the reserve."""
        body = Writer().u8(_VERSION).blob(self.record.encode()).raw(self.public).getvalue()
        return body + reserve.sign(KIT_CONTEXT + body)

    @staticmethod
    def decode(key: bytes, value: bytes) -> SignedKit:
        """The value of the register with this key. Raises DecodeError unless that kit's reserve signed it."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a signed kit of another version")
        record, public = KitRecord.decode(reader.blob(_MAX_RECORD)), reader.raw(_PUBLIC_SIZE)
        body, signature = value[: reader.position], reader.raw(SIGNATURE_SIZE)
        reader.end()
        if key != signed_kit_key(device_id_of(public)) or not is_public_key(public):
            raise DecodeError("the record of another kit")
        if not verify(public, KIT_CONTEXT + body, signature):
            raise DecodeError("the record of a kit that its reserve did not sign")
        return SignedKit(record, public)
