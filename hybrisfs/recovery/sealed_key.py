"""The secret of a recovery kit, sealed under a passphrase.

    sealed key  version  u8 = 1
                passes   u32, Argon2id's time cost
                memory   u32, its memory cost in KiB
                salt     16, random
                nonce    24, random
                box      96: XChaCha20-Poly1305, under the key that Argon2id makes of passphrase and salt, of
                         seed     32, of the reserve's Ed25519 key
                         voucher  32, the key by which devices vouch for copies of the kit
                         volume   16
                         the associated data is all before the nonce, then the kit's id (16)

Argon2id is libsodium's (version 1.3, one lane). The costs are read from a cloud before anything proves them
right, so they are bounded: a hostile cloud makes a try take seconds and 1 GiB of memory, no more.
"""

from __future__ import annotations

import hashlib
import importlib.resources
import math
import os
import secrets
import unicodedata
from dataclasses import dataclass, field
from typing import Final

import nacl.exceptions
from msgspec import Struct
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_pwhash_alg,
    crypto_pwhash_ALG_ARGON2ID13,
)

from hybrisfs.errors import DamagedError, HybrisError, UsageError
from sync import KEY_SIZE, NONCE_SIZE, VOLUME_ID_SIZE, DecodeError, DeviceKey, Reader, Writer

__all__ = [
    "DEFAULT_COST",
    "LEAST_CHARACTERS",
    "VOUCHER_SIZE",
    "WORDS",
    "Cost",
    "KitSecret",
    "Passphrase",
    "RecoveryError",
    "SealedKey",
    "check_passphrase",
    "new_passphrase",
    "normalised",
    "seal_key",
]

VOUCHER_SIZE: Final = 32
_VERSION: Final = 1
_SALT_SIZE: Final = 16
_SEED_SIZE: Final = 32
_BOX_SIZE: Final = _SEED_SIZE + VOUCHER_SIZE + VOLUME_ID_SIZE + 16
_MOST_PASSES: Final = 16
_LEAST_MEMORY: Final = 8  # KiB, libsodium's own limit
_MOST_MEMORY: Final = 1 << 20  # KiB


class Cost(Struct, frozen=True):
    """What a try of a passphrase costs: Argon2id's passes, and memory in KiB."""

    passes: int
    memory: int

    def check(self) -> None:
        """Raise DecodeError for costs that no correct device chooses."""
        if not (1 <= self.passes <= _MOST_PASSES and _LEAST_MEMORY <= self.memory <= _MOST_MEMORY):
            raise DecodeError(f"Argon2id with {self.passes} passes and {self.memory} KiB is out of bounds")


DEFAULT_COST: Final = Cost(3, 256 << 10)
"""libsodium's "moderate"; less than a second on a laptop."""


@dataclass(frozen=True, slots=True)
class KitSecret:
    """What the passphrase opens."""

    reserve: DeviceKey
    voucher: bytes = field(repr=False)
    volume: bytes

    @property
    def kit(self) -> bytes:
        """The kit's id: the device id of the reserve."""
        return self.reserve.device_id


class SealedKey(Struct, frozen=True):
    """The record above."""

    cost: Cost
    salt: bytes
    nonce: bytes
    box: bytes

    def write_to(self, out: Writer) -> None:
        """Append the record."""
        out.raw(self._clear).raw(self.nonce).raw(self.box)

    @property
    def _clear(self) -> bytes:
        return Writer().u8(_VERSION).u32(self.cost.passes).u32(self.cost.memory).raw(self.salt).getvalue()

    @staticmethod
    def read_from(reader: Reader) -> SealedKey:
        """Raises DecodeError."""
        if reader.u8() != _VERSION:
            raise DecodeError("a sealed key of another version")
        cost = Cost(reader.u32(), reader.u32())
        cost.check()
        return SealedKey(cost, reader.raw(_SALT_SIZE), reader.raw(NONCE_SIZE), reader.raw(_BOX_SIZE))

    def open(self, passphrase: str, kit: bytes) -> KitSecret | None:
        """The secret of *kit*; None when the passphrase is another one, or the record was altered. Raises
        RecoveryError when there is not enough memory to try."""
        key = _stretch(passphrase, self.salt, self.cost)
        try:
            opened = crypto_aead_xchacha20poly1305_ietf_decrypt(self.box, self._clear + kit, self.nonce, key)
        except nacl.exceptions.CryptoError:
            return None
        reader = Reader(opened)
        secret = KitSecret(
            DeviceKey.from_seed(reader.raw(_SEED_SIZE)), reader.raw(VOUCHER_SIZE), reader.raw(VOLUME_ID_SIZE)
        )
        return secret if secret.kit == kit else None


def seal_key(secret: KitSecret, passphrase: str, cost: Cost = DEFAULT_COST) -> SealedKey:
    """Seal the secret of a kit under a passphrase. Takes as long as a try of the passphrase."""
    unsealed = SealedKey(cost, os.urandom(_SALT_SIZE), os.urandom(NONCE_SIZE), b"")
    key = _stretch(passphrase, unsealed.salt, cost)
    plain = secret.reserve.seed + secret.voucher + secret.volume
    box = crypto_aead_xchacha20poly1305_ietf_encrypt(plain, unsealed._clear + secret.kit, unsealed.nonce, key)
    return SealedKey(cost, unsealed.salt, unsealed.nonce, box)


def _stretch(passphrase: str, salt: bytes, cost: Cost) -> bytes:
    """Raises RecoveryError when there is not enough memory for that."""
    try:
        return crypto_pwhash_alg(
            KEY_SIZE,
            normalised(passphrase),
            salt,
            cost.passes,
            cost.memory << 10,
            crypto_pwhash_ALG_ARGON2ID13,
        )
    except nacl.exceptions.RuntimeError as error:
        raise RecoveryError(
            "the passphrase cannot be tried", f"that takes {cost.memory >> 10} MiB of memory", "Free some."
        ) from error


# -- passphrases of recovery kits: words drawn at random, or what a person chose ------------------------
# The words are those of the "EFF Large Wordlist" by Joseph Bonneau, Electronic Frontier Foundation, 7,776 of
# them, so 12.9 bits each: `eff_large_wordlist.txt`, which is what is published at
# https://www.eff.org/deeplinks/2016/07/new-wordlists-random-passphrases without the numbers of the dice. Its
# licence is Creative Commons Attribution 3.0 United States, https://creativecommons.org/licenses/by/3.0/us/.


WORDS: Final = 8
"""103 bits: nobody tries so many, whatever a try costs."""
LEAST_CHARACTERS: Final = 12
_MOST_BYTES: Final = 1024
_LIST: Final = "eff_large_wordlist.txt"
_LIST_SHA256: Final = "6d557f0693958fb5e650b68b5bee585eb82cf4da32965505c789e924743bc522"


@dataclass(frozen=True, slots=True)
class Passphrase:
    """A passphrase that was drawn, and the logarithm of the number of those it was drawn from."""

    text: str = field(repr=False)
    bits: int


def new_passphrase() -> Passphrase:
    """Draw one from the system's random source. Raises DamagedError for a list of words that was changed."""
    words = _word_list()
    return Passphrase(
        " ".join(secrets.choice(words) for _ in range(WORDS)), math.floor(WORDS * math.log2(len(words)))
    )


def normalised(text: str) -> bytes:
    """The bytes that a passphrase stands for: however it is typed, spaces between words count once."""
    return " ".join(unicodedata.normalize("NFKC", text).split()).encode("utf-8", "surrogatepass")


def check_passphrase(text: str) -> str:
    """Return a passphrase that a person chose; raise UsageError when it is too short or too long."""
    plain = normalised(text)
    if len(plain.decode("utf-8", "surrogatepass")) < LEAST_CHARACTERS:
        raise UsageError(
            f"the passphrase has fewer than {LEAST_CHARACTERS} characters",
            "anyone who gets hold of a cloud can try passphrases for years",
            "Take a longer one, or let one be made.",
        )
    if len(plain) > _MOST_BYTES:
        raise UsageError(f"the passphrase has more than {_MOST_BYTES} bytes")
    return text


def _word_list() -> list[str]:
    data = (importlib.resources.files("hybrisfs.recovery") / _LIST).read_bytes()
    # With a list of few words a passphrase looks as strong as ever.
    if hashlib.sha256(data).hexdigest() != _LIST_SHA256:
        raise DamagedError(
            f"the list of words of passphrases, {_LIST}, has been changed",
            "a passphrase that is drawn from it may be easy to guess",
            "Install HybrisFS again.",
        )
    return data.decode("ascii").split()


# -- what can go wrong when a volume is recovered -------------------------------------------------------


class RecoveryError(HybrisError):
    """The volume was not recovered; this machine is as it was."""
