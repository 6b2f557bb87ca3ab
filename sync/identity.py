"""Who may write: device keys, device ids, and the members of a volume.

A device id is the hash of the device's public key, so a device that knows an id can check a key that comes
from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from nacl.bindings import (
    crypto_box,
    crypto_box_seal_open,
    crypto_box_seed_keypair,
    crypto_sign_ed25519_pk_to_curve25519,
)
from nacl.encoding import RawEncoder
from nacl.exceptions import CryptoError
from nacl.hash import blake2b
from nacl.signing import SigningKey, VerifyKey

from sync.codec import Buffer, digest
from sync.errors import DecodeError

__all__ = [
    "BOX_OVERHEAD",
    "BOX_SEED_SIZE",
    "DEVICE_ID_SIZE",
    "PUBLIC_KEY_SIZE",
    "SIGNATURE_SIZE",
    "DeviceKey",
    "Members",
    "box_for",
    "device_id_of",
    "is_public_key",
    "verify",
]

DEVICE_ID_SIZE = 16
PUBLIC_KEY_SIZE = 32
SIGNATURE_SIZE = 64
BOX_OVERHEAD = 48
BOX_SEED_SIZE = 32
_BOX_NONCE_SIZE = 24
_SEED_SIZE = 32

_ID_CONTEXT = "hybrisfs.sync 2026-11 device id"


def device_id_of(public: bytes) -> bytes:
    """The 16-byte id of the device whose Ed25519 public key this is."""
    if len(public) != PUBLIC_KEY_SIZE:
        raise ValueError(f"a public key has {PUBLIC_KEY_SIZE} bytes, not {len(public)}")
    return digest(_ID_CONTEXT, public, DEVICE_ID_SIZE)


def verify(public: bytes, message: Buffer, signature: bytes) -> bool:
    """True when `signature` is the Ed25519 signature of `message` under the key `public`."""
    try:
        _verifier(public).verify(bytes(message), signature)
    except CryptoError:
        return False
    return True


@lru_cache(maxsize=256)
def _verifier(public: bytes) -> VerifyKey:
    return VerifyKey(public)


def is_public_key(public: bytes) -> bool:
    """Whether these 32 bytes are a key that something can be sealed for."""
    try:
        crypto_sign_ed25519_pk_to_curve25519(public)
    except (CryptoError, ValueError):
        return False
    return True


def box_for(public: bytes, message: bytes, seed: bytes) -> bytes:
    """`message` sealed for the device with this Ed25519 public key (libsodium's sealed box, on the X25519 key
    that follows from it): BOX_OVERHEAD bytes longer. The key pair that seals it follows from `seed`, which is
    BOX_SEED_SIZE random bytes for this message alone. Raises `DecodeError` when it is not a key."""
    sender, secret = crypto_box_seed_keypair(seed)
    try:
        receiver = crypto_sign_ed25519_pk_to_curve25519(public)
        nonce = blake2b(sender + receiver, digest_size=_BOX_NONCE_SIZE, encoder=RawEncoder)
        return sender + crypto_box(message, nonce, receiver, secret)
    except (CryptoError, ValueError) as error:
        raise DecodeError("a public key that is none") from error


class DeviceKey:
    """The secret Ed25519 key of this device. `seed` is the secret to keep; repr shows only the id."""

    __slots__ = ("_signing", "device_id", "public")

    def __init__(self, signing: SigningKey) -> None:
        self._signing = signing
        self.public = bytes(signing.verify_key)
        self.device_id = device_id_of(self.public)

    @classmethod
    def generate(cls) -> DeviceKey:
        """A new key from the system's random source."""
        return cls(SigningKey.generate())

    @classmethod
    def from_seed(cls, seed: bytes) -> DeviceKey:
        """The key whose `seed` (32 bytes) was kept."""
        if len(seed) != _SEED_SIZE:
            raise ValueError(f"a device key seed has {_SEED_SIZE} bytes, not {len(seed)}")
        return cls(SigningKey(seed))

    @property
    def seed(self) -> bytes:
        return bytes(self._signing)

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature of `message`."""
        return self._signing.sign(message).signature

    def open(self, box: bytes) -> bytes:
        """What `box_for` sealed for this device. Raises `DecodeError` for anything else."""
        secret = self._signing.to_curve25519_private_key()
        try:
            return crypto_box_seal_open(box, bytes(secret.public_key), bytes(secret))
        except (CryptoError, TypeError, ValueError) as error:
            raise DecodeError("a box that is not sealed for this machine") from error

    def __repr__(self) -> str:
        return f"DeviceKey({self.device_id.hex()})"


class Members:
    """The devices of a volume: device id -> public key. Never changes.

    Iteration, length and `in` are about those that belong to it now; `former` ones were removed.
    """

    __slots__ = ("_former", "_keys")

    def __init__(self, public_keys: Iterable[bytes], former: Iterable[bytes] = ()) -> None:
        self._keys = {device_id_of(public): public for public in public_keys}
        self._former = {device_id_of(public): public for public in former}

    @property
    def public_keys(self) -> Mapping[bytes, bytes]:
        """Those of all members, by their ids."""
        return self._keys

    def public_key(self, device: bytes) -> bytes | None:
        """The member's public key, or None for a stranger."""
        return self._keys.get(device)

    def former_key(self, device: bytes) -> bytes | None:
        """The public key of a device that was removed, None for all others."""
        return self._former.get(device)

    @property
    def former(self) -> tuple[bytes, ...]:
        """The public keys of all that were removed."""
        return tuple(self._former.values())

    def known(self, device: bytes) -> bool:
        """Whether the device is a member or was one."""
        return device in self._keys or device in self._former

    def __contains__(self, device: object) -> bool:
        return device in self._keys

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
