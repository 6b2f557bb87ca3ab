"""What the cloud objects of `sync` share: a clear header, and a payload sealed with an AEAD.

    header     given by the object kind; authenticated, not hidden
    nonce  24  random, chosen by the caller for each object
    box        XChaCha20-Poly1305 of the payload, 16 bytes longer than it

The associated data is the header followed by the volume id: an object of another volume, or with a
changed header, does not open. A 24-byte random nonce never repeats in practice, so one key may seal
any number of objects.
"""

from __future__ import annotations

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from sync.codec import Reader
from sync.errors import DecodeError

__all__ = ["KEY_SIZE", "NONCE_SIZE", "open_sealed", "seal"]

KEY_SIZE = 32
NONCE_SIZE = 24


def _check_size(secret: bytes, size: int, name: str) -> None:
    if len(secret) != size:
        raise ValueError(f"the {name} has {size} bytes, not {len(secret)}")


def seal(header: bytes, volume: bytes, payload: bytes, key: bytes, nonce: bytes) -> bytes:
    """Header, nonce and sealed payload as one object."""
    _check_size(nonce, NONCE_SIZE, "nonce")
    _check_size(key, KEY_SIZE, "key")
    return b"".join(
        [header, nonce, crypto_aead_xchacha20poly1305_ietf_encrypt(payload, header + volume, nonce, key)]
    )


def open_sealed(reader: Reader, header: bytes, volume: bytes, key: bytes) -> bytes:
    """The payload of an object whose `header` has just been read. Raises `DecodeError`."""
    _check_size(key, KEY_SIZE, "key")
    nonce = reader.raw(NONCE_SIZE)
    box = reader.raw(reader.remaining)
    try:
        return crypto_aead_xchacha20poly1305_ietf_decrypt(box, header + volume, nonce, key)
    except (CryptoError, ValueError) as error:  # ValueError: shorter than the tag
        raise DecodeError("the object was altered, or sealed for another volume or key") from error
