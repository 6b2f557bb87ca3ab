"""Sealing of values, and the names and checksums of the objects that hold them.

    sealed value
    size      field
    1         flags: bits 0-6 format version, bit 7 set when the body is a zstd frame
    4         the epoch whose key sealed it; format 2 only
    12        nonce: first bytes of the keyed BLAKE3 of the body
    length    body, encrypted with AES-256-GCM
    16        GCM tag

    keys    BLAKE3(key = value key, "hybrisfs sealed value" | flags | store id 16 | write u64), 64 bytes of
            output: the AES key (32), then the key of the nonce hash (32)

Format 1 is that of a store that one device has: its value key is the device's own. Format 2 is that of a
store that all devices of a volume use: its value key is one of the epoch, so that a device that was removed
does not get what is written later. Names and checksums of such a store come from a key that stays.

    name    kv/STORE/WRITE        of copies; STORE and WRITE are 32 hex digits
            kv/STORE/WRITE.i      of share i of an erasure-coded value
            WRITE = BLAKE3(key = name key, "hybrisfs value name" | store id | write), 16 bytes

    store id  8 random bytes, then the first 8 of BLAKE3(key = store key, these): who has the key recognises
            its own stores by name when their metadata are lost. Ids made before that was so are random.

Every write has a number of its own, so every sealed value has a key and a name of its own; the nonce would
keep even a number that is used twice, by a database restored from a backup, harmless. Clouds see neither
keys nor containers, nor which values are versions of one key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import partial
from typing import Final

import zstandard
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hybrisfs.dispersal.errors import IntegrityError, NewerVersionError, UnreadableHereError
from hybrisfs.kv.record import CHECKSUM_SIZE, MAX_VALUE
from sync import EPOCH_SIZE
from sync.codec import Buffer
from sync.seal import SealKeys

__all__ = [
    "SEAL_OVERHEAD",
    "STORE_ID_SIZE",
    "VALUE_PREFIX",
    "ValueSealer",
    "is_own_store",
    "is_value_name",
    "new_store_id",
    "parse_value_name",
]

STORE_ID_SIZE: Final = 16

VALUE_PREFIX: Final = "kv/"
_OWN: Final = 1  # the format versions
_SHARED: Final = 2
_COMPRESSED: Final = 0x80
_NONCE_SIZE: Final = 12
_TAG_SIZE: Final = 16
SEAL_OVERHEAD: Final = 1 + EPOCH_SIZE + _NONCE_SIZE + _TAG_SIZE
"""Bytes that sealing adds at most."""
_KEY_SIZE: Final = 32
_ZSTD_LEVEL: Final = 1
_RANDOM_SIZE: Final = 8  # of a store id
_NAME: Final = re.compile(VALUE_PREFIX + r"([0-9a-f]{32})/([0-9a-f]{32})(\.[0-9]{1,3})?")


def new_store_id(key: bytes) -> bytes:
    """An id for a new store of the device with this value key."""
    drawn = os.urandom(_RANDOM_SIZE)
    return drawn + _proof(key, drawn)


def is_own_store(key: bytes, store: bytes) -> bool:
    """Whether a store was made by the device with this value key; not known of those with a random id."""
    return store[_RANDOM_SIZE:] == _proof(key, store[:_RANDOM_SIZE])


def _proof(key: bytes, drawn: bytes) -> bytes:
    store_key = blake3(b"hybrisfs store ids", key=key).digest()
    return blake3(drawn, key=store_key).digest(STORE_ID_SIZE - _RANDOM_SIZE)


def parse_value_name(name: str) -> tuple[bytes, bytes] | None:
    """The id of the store and the label of the write that an object's name tells; None for other names."""
    found = _NAME.fullmatch(name)
    return None if found is None else (bytes.fromhex(found[1]), bytes.fromhex(found[2]))


def is_value_name(name: str) -> bool:
    """Whether an object of that name may hold a share of a value, of whatever store."""
    return name.startswith(VALUE_PREFIX)


class ValueSealer:
    """Seals and opens the values of one store. Thread-safe."""

    def __init__(self, key: bytes, store: bytes, epochs: SealKeys | None = None) -> None:
        """*key* (32 bytes) names and proves objects; it seals them, too, unless keys of *epochs* do. *store*
        is the store's id."""
        if len(key) != _KEY_SIZE or len(store) != STORE_ID_SIZE:
            raise ValueError("a value key has 32 bytes, a store id 16")
        self._own_key = _value_key(key)
        self._name_key = blake3(b"hybrisfs value names", key=key).digest()
        self._checksum_key = blake3(b"hybrisfs value checksums", key=key).digest()
        self._store = store
        self._epochs = epochs

    def seal(self, write: int, value: Buffer) -> bytes:
        """Return the sealed bytes of the value of that write. ValueError when it is too large."""
        size = len(value)
        if size > MAX_VALUE:
            raise ValueError(f"a value has at most {MAX_VALUE} bytes, not {size}")
        body: Buffer = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_content_size=False).compress(value)
        flags = self._version | _COMPRESSED
        if len(body) * 20 > size * 19:  # less than 5 % saved: not worth a decompression per read
            body = value
            flags = self._version
        epoch, value_key = b"", self._own_key
        if self._epochs is not None:
            newest = self._epochs.newest()
            epoch, value_key = newest.epoch, _value_key(newest.key)
        key, nonce_key = self._keys(value_key, flags, write)
        nonce = blake3(body, key=nonce_key).digest(_NONCE_SIZE)
        return b"".join((bytes((flags,)), epoch, nonce, AESGCM(key).encrypt(nonce, body, None)))

    def open(self, write: int, sealed: Buffer, size: int) -> bytes:
        """Return the value of `size` bytes. Raises IntegrityError unless it is what that write sealed."""
        head = 1 if self._epochs is None else 1 + EPOCH_SIZE
        start = head + _NONCE_SIZE
        bounds = range(start + _TAG_SIZE, MAX_VALUE + start + _TAG_SIZE + 1)
        if not 0 <= size <= MAX_VALUE or len(sealed) not in bounds:
            raise IntegrityError(f"sealed value of {len(sealed)} bytes for {size}: outside its bounds")
        view = memoryview(sealed)
        flags = view[0]
        if flags & ~_COMPRESSED != self._version:
            raise NewerVersionError(
                f"sealed value has format {flags & ~_COMPRESSED}, this version reads {self._version}"
            )
        key, _ = self._keys(self._key_of(bytes(view[1:head])), flags, write)
        try:
            body = AESGCM(key).decrypt(view[head:start], view[start:], None)
        except InvalidTag:
            raise IntegrityError("sealed value does not decrypt: it was altered or is another") from None
        value = _decompress(body, size) if flags & _COMPRESSED else body
        if len(value) != size:
            raise IntegrityError(f"sealed value holds {len(value)} bytes instead of {size}")
        return value

    @property
    def _version(self) -> int:
        return _OWN if self._epochs is None else _SHARED

    def _key_of(self, epoch: bytes) -> bytes:
        if self._epochs is None:
            return self._own_key
        found = self._epochs.find(epoch)
        if found is None:
            raise UnreadableHereError(f"the keys of epoch {epoch.hex()} have not come to this machine")
        return _value_key(found)

    def checksum(self, share: Buffer) -> bytes:
        """The checksum of an object on a cloud: keyed, so that nobody else can look for two alike."""
        return blake3(share, key=self._checksum_key).digest(CHECKSUM_SIZE)

    def name(self, write: int, copies: bool) -> Callable[[int], str]:
        """The function that names share i of a write."""
        return partial(_share_name, f"{VALUE_PREFIX}{self._store.hex()}/{self.label(write).hex()}", copies)

    def label(self, write: int) -> bytes:
        """What names the objects of a write within the store."""
        return blake3(b"hybrisfs value name" + self._number(write), key=self._name_key).digest(16)

    def _keys(self, value_key: bytes, flags: int, write: int) -> tuple[bytes, bytes]:
        material = blake3(
            b"%b%c%b" % (b"hybrisfs sealed value", flags, self._number(write)), key=value_key
        ).digest(2 * _KEY_SIZE)
        return material[:_KEY_SIZE], material[_KEY_SIZE:]

    def _number(self, write: int) -> bytes:
        return self._store + write.to_bytes(8, "big")


def _value_key(key: bytes) -> bytes:
    return blake3(b"hybrisfs values", key=key).digest()


def _share_name(base: str, copies: bool, index: int) -> str:
    return base if copies else f"{base}.{index}"


def _decompress(body: bytes, size: int) -> bytes:
    try:
        # A declared size would be allocated before max_output_size is looked at.
        if zstandard.get_frame_parameters(body).content_size != zstandard.CONTENTSIZE_UNKNOWN:
            raise IntegrityError("sealed value has a zstd frame that declares a size")
        decompressor = zstandard.ZstdDecompressor()
        return decompressor.decompress(body, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise IntegrityError(f"sealed value does not decompress to {size} bytes: {error}") from None
