"""A kit, and the volume that it is of."""

from __future__ import annotations

from hybrisfs.admit.kit import Sources, encode_kit
from hybrisfs.keys import EpochKeys, SharedKeys
from hybrisfs.pairing.messages import Grant, GrantedCloud
from hybrisfs.recovery.record import KitRecord
from hybrisfs.recovery.sealed_key import Cost, KitSecret, seal_key
from sync import DeviceKey

__all__ = [
    "ADA",
    "BOB",
    "CHEAP",
    "PASSPHRASE",
    "RECORD",
    "SECRET",
    "STRANGER",
    "URLS",
    "VOLUME",
    "kit",
    "sources",
]

VOLUME = b"v" * 16
CHEAP = Cost(1, 8)
PASSPHRASE = "correct horse battery staple"
ADA, BOB, STRANGER = (DeviceKey.from_seed(bytes([number]) * 32) for number in (1, 2, 3))
SECRET = KitSecret(DeviceKey.from_seed(b"r" * 32), b"w" * 32, VOLUME)
RECORD = KitRecord("photos", 1_700_000_000, SECRET.voucher, seal_key(SECRET, PASSPHRASE, CHEAP))
URLS = tuple(f"file:///clouds/{number}" for number in range(3))
_EPOCH = EpochKeys(bytes(4), 0, b"d" * 32, b"m" * 32)


def sources(serial: int = 5, *, f: int = 1, members: tuple[DeviceKey, ...] = (ADA,)) -> Sources:
    """What a device that knows the log up to *serial* puts into the kit."""
    clouds = tuple(GrantedCloud(number, f"cloud-{number}", url) for number, url in enumerate(URLS))
    publics = (*(member.public for member in members), SECRET.reserve.public)
    grant = Grant(VOLUME, "photos", SharedKeys(b"n" * 32, (_EPOCH,)), f, 1, clouds, publics)
    return Sources(grant, serial)


def kit(made_of: Sources | None = None, device: DeviceKey = ADA, record: KitRecord = RECORD) -> bytes:
    """The kit as *device* puts it on the clouds."""
    return encode_kit(record, SECRET.reserve.public, made_of or sources(), device)
