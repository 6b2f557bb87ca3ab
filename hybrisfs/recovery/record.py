"""The register of a recovery kit: what every device needs to renew it.

========  ======================  ===================================================================
register  key                     value
========  ======================  ===================================================================
kit       ``y`` kit id (16)       version u8 = 1, name of the volume (blob <= 64, ASCII),
                                  created u64, seconds since the epoch, before the year 5000, voucher (32),
                                  the sealed key (`hybrisfs.recovery.sealed_key`)
========  ======================  ===================================================================

The kit's id is the device id of its reserve, whose public key is in the member register. The value is written
once; that the reserve is removed ends the kit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hybrisfs.errors import UsageError
from hybrisfs.home import check_volume_name
from hybrisfs.recovery.sealed_key import VOUCHER_SIZE, SealedKey
from sync import DecodeError, Reader, Writer

__all__ = ["KIT_KEY_PREFIX", "KitRecord", "kit_key"]

KIT_KEY_PREFIX: Final = b"y"
_VERSION: Final = 1
_MAX_NAME: Final = 64
_MOST_SECONDS: Final = 95_617_584_000  # since the epoch: until then calendars everywhere can show the time


def kit_key(kit: bytes) -> bytes:
    return KIT_KEY_PREFIX + kit


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
