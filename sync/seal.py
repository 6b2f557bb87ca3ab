"""What the cloud objects of `sync` share: a clear header, and a payload sealed with an AEAD.

    header     given by the object kind; authenticated, not hidden
    epoch   4  which of the volume's keys seals it; authenticated, not hidden
    nonce  24  random, chosen by the caller for each object
    box        XChaCha20-Poly1305 of the payload, 16 bytes longer than it

The associated data is all before the nonce, followed by the volume id: an object of another volume, or with
a changed header, does not open. A 24-byte random nonce never repeats in practice, so one key may seal
any number of objects.

A volume begins with one epoch and gets a new one when a device is removed, which is not given its key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import zstandard
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from sync.codec import Reader
from sync.errors import DecodeError, UnknownEpochError

__all__ = [
    "EPOCH_SIZE",
    "FIRST_EPOCH",
    "KEY_SIZE",
    "NONCE_SIZE",
    "EpochKey",
    "OneKey",
    "SealKeys",
    "compress",
    "decompress",
    "open_sealed",
    "seal",
]

KEY_SIZE: Final = 32
NONCE_SIZE: Final = 24
EPOCH_SIZE: Final = 4
FIRST_EPOCH: Final = bytes(EPOCH_SIZE)


@dataclass(frozen=True, slots=True)
class EpochKey:
    """A key of 32 bytes, and the epoch that it belongs to."""

    epoch: bytes
    key: bytes = field(repr=False)


class SealKeys(Protocol):
    """The keys of one purpose, by epoch. What it answers may change at any time."""

    def newest(self) -> EpochKey:
        """The key to seal with."""

    def find(self, epoch: bytes) -> bytes | None:
        """The key of an epoch, None when it is not known here."""


class OneKey:
    """The keys of a volume that no device was ever removed from."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_SIZE:
            raise ValueError(f"the key has {KEY_SIZE} bytes, not {len(key)}")
        self._key = EpochKey(FIRST_EPOCH, key)

    def newest(self) -> EpochKey:
        return self._key

    def find(self, epoch: bytes) -> bytes | None:
        return self._key.key if epoch == FIRST_EPOCH else None


def seal(header: bytes, volume: bytes, payload: bytes, keys: SealKeys, nonce: bytes) -> bytes:
    """Header, epoch, nonce and sealed payload as one object."""
    if len(nonce) != NONCE_SIZE:
        raise ValueError(f"the nonce has {NONCE_SIZE} bytes, not {len(nonce)}")
    newest = keys.newest()
    clear = header + newest.epoch
    box = crypto_aead_xchacha20poly1305_ietf_encrypt(payload, clear + volume, nonce, newest.key)
    return b"".join([clear, nonce, box])


def open_sealed(reader: Reader, header: bytes, volume: bytes, keys: SealKeys) -> bytes:
    """The payload of an object whose `header` has just been read. Raises `DecodeError`, `UnknownEpochError`
    when it is sealed with a key that is not known here."""
    epoch, nonce = reader.raw(EPOCH_SIZE), reader.raw(NONCE_SIZE)
    key = keys.find(epoch)
    if key is None:
        raise UnknownEpochError(epoch)
    box = reader.raw(reader.remaining)
    try:
        return crypto_aead_xchacha20poly1305_ietf_decrypt(box, header + epoch + volume, nonce, key)
    except (CryptoError, ValueError) as error:  # ValueError: shorter than the tag
        raise DecodeError("the object was altered, or sealed for another volume or key") from error


# -- compression of what is sealed ----------------------------------------------------------------------


_LEVEL = 3  # measured: as small as 6 to 12 on metadata full of random ids, and twice as fast
_WINDOW_LOG = 24


def compress(data: bytes) -> bytes:
    """One frame, which tells the size of what is in it."""
    # The window spans everything, so that an id is found again however far back it stands.
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, source_size=len(data), window_log=min(_WINDOW_LOG, max(10, len(data).bit_length()))
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def decompress(frame: bytes, size: int) -> bytes:
    """Decompress a frame that must hold exactly `size` bytes and allocate no more than that.

    Raises `DecodeError`.
    """
    try:
        parameters = zstandard.get_frame_parameters(frame)
        if parameters.content_size != size:
            raise DecodeError(f"the record states {size} bytes, its zstd frame {parameters.content_size}")
        decompressor = zstandard.ZstdDecompressor(max_window_size=1 << _WINDOW_LOG)
        return decompressor.decompress(frame, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DecodeError(f"it does not decompress: {error}") from error
