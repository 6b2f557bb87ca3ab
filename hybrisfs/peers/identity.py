"""What a device shows of itself and of the volume on the network: nothing that tells a stranger anything.

All names here are keyed with a secret that the members of the volume share:

    server name   what a connecting device asks for in the clear first bytes of TLS: 12 random bytes and
                  16 bytes keyed hash of them, in base32. Two connections have nothing in common.
    volume tag,   8 bytes keyed hash of the day, and of the day and the device id: what is announced on the
    device tag    local network. They change with the day, so that nobody is recognised for longer.
"""

from __future__ import annotations

import hmac
import os
from base64 import b32decode, b32encode
from dataclasses import dataclass, field
from typing import Final

from blake3 import blake3

from sync import VOLUME_ID_SIZE, DeviceKey

__all__ = ["SECRET_SIZE", "TAG_SIZE", "PeerIdentity"]

SECRET_SIZE: Final = 32
TAG_SIZE: Final = 8
_SALT_SIZE: Final = 12
_PROOF_SIZE: Final = 16


@dataclass(frozen=True, slots=True)
class PeerIdentity:
    """*volume* is the volume's id, *device* this device's key, *secret* 32 bytes that all members have.

    The secret keeps strangers from costing anything; who is let in is decided by the list of members. It
    therefore need not change when a device is removed: devices that have not heard of it yet still meet.
    """

    volume: bytes
    device: DeviceKey
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.volume) != VOLUME_ID_SIZE or len(self.secret) != SECRET_SIZE:
            raise ValueError("a volume id or secret of the wrong length")

    def derive(self, purpose: str, data: bytes = b"", length: int = 32) -> bytes:
        """The keyed hash of *data* for *purpose*, a constant; different for every volume."""
        context = f"hybrisfs peers {purpose}\0".encode() + self.volume
        return blake3(context + data, key=self.secret).digest(length)

    def server_name(self) -> str:
        """A fresh name to ask for when connecting to a member."""
        salt = os.urandom(_SALT_SIZE)
        proof = self.derive("server name", salt, _PROOF_SIZE)
        return b32encode(salt + proof).decode("ascii").rstrip("=").lower()

    def knows(self, server_name: str) -> bool:
        """Whether the side that asks for *server_name* has the secret, or has overheard one that has."""
        padding = "=" * (-len(server_name) % 8)
        try:
            raw = b32decode(server_name.upper() + padding)
        except ValueError:
            return False
        salt, proof = raw[:_SALT_SIZE], raw[_SALT_SIZE:]
        return hmac.compare_digest(self.derive("server name", salt, _PROOF_SIZE), proof)

    def volume_tag(self, day: int) -> str:
        """16 hexadecimal digits for the volume on *day*, counted from 1970."""
        return self.derive("volume tag", day.to_bytes(8, "big", signed=True), TAG_SIZE).hex()

    def device_tag(self, device_id: bytes, day: int) -> str:
        """16 hexadecimal digits for a member on *day*."""
        return self.derive("device tag", day.to_bytes(8, "big", signed=True) + device_id, TAG_SIZE).hex()
