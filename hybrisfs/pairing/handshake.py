"""What both sides of a pairing know so far, and the keys that come from it.

A message, as it travels and lies on a cloud, is an object of `sync.seal`:

    header     magic "HFPR", version u16 = 1, kind u8 (`Kind`)
    nonce  24  random
    box        XChaCha20-Poly1305 of what `messages` describes

Its key comes from the code's secret, the X25519 shared secret once both keys are known, the kind, and the
transcript: a hash over everything said so far. So a message opens only at the one place in the one
conversation it was made for, under the code it was made for; and one who learns the code later still cannot
open what was sealed once the shared secret was known (forward secrecy).

The comparison string is six digits of the transcript. The joiner commits to all it will say before it
sees the inviter's key, and the inviter speaks before it sees what the joiner committed to, so
somebody in the middle who stole the code can only guess: one chance in a million, once, as in ZRTP
(RFC 6189, 4.4.1.1) and Bluetooth's numeric comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from hybrisfs.pairing.errors import StrangeMessageError
from sync.codec import HASH_SIZE, DecodeError, Reader, Writer, digest
from sync.seal import NONCE_SIZE, OneKey, open_sealed, seal

__all__ = ["MAX_MESSAGE", "Handshake", "Kind", "Random", "commit", "kind_of"]

Random = Callable[[int], bytes]
"""As many random bytes as asked for."""

MAX_MESSAGE: Final = 1 << 20  # bytes; a grant with credentials for all clouds and a thousand members fits

_MAGIC: Final = b"HFPR"
_VERSION: Final = 1
_CONTEXT: Final = "hybrisfs.pairing 2026-11 "


class Kind(IntEnum):
    """What a message is. The joiner sends the odd ones."""

    HELLO = 1
    OFFER = 2
    REVEAL = 3
    GRANT = 4
    DONE = 5
    REJECT = 6
    DECLINE = 7
    CLOSED = 8


class Handshake:
    """One side's view: feed it what was said with `absorb`, and it seals and opens what comes next."""

    __slots__ = ("_private", "_random", "_secret", "_shared", "_transcript", "ephemeral")

    def __init__(self, secret: bytes, random: Random) -> None:
        self._secret = secret
        self._random = random
        self._private = X25519PrivateKey.from_private_bytes(random(32))
        self._shared = b""
        self._transcript = digest(f"{_CONTEXT}transcript", b"")
        self.ephemeral = self._private.public_key().public_bytes_raw()

    @property
    def transcript(self) -> bytes:
        """The hash over all that was absorbed, 32 bytes."""
        return self._transcript

    def absorb(self, *said: bytes) -> None:
        """Both sides know this now."""
        self._transcript = self.after(*said)

    def after(self, *said: bytes) -> bytes:
        """The transcript as it would be after `absorb`."""
        out = Writer().raw(self._transcript)
        for part in said:
            out.blob(part)
        return digest(f"{_CONTEXT}transcript", out.getvalue())

    def agreed(self, ephemeral: bytes) -> bytes:
        """The secret shared with the owner of the X25519 key *ephemeral*. Raises StrangeMessageError."""
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(ephemeral))
        except ValueError as error:  # a point of low order: the result would be known to everybody
            raise StrangeMessageError("the other machine sent an impossible key") from error

    def share(self, agreed: bytes) -> None:
        """Use this shared secret from now on."""
        self._shared = agreed

    def seal(self, kind: Kind, payload: bytes, agreed: bytes | None = None) -> bytes:
        """A message of this kind; with *agreed*, under that shared secret instead of the one in use."""
        header = Writer().format(_MAGIC, _VERSION).u8(kind).getvalue()
        key = OneKey(self._key(kind, self._shared if agreed is None else agreed))
        return seal(header, self._transcript, payload, key, self._random(NONCE_SIZE))

    def open(self, kind: Kind, message: bytes, agreed: bytes | None = None) -> bytes:
        """The payload of a message of this kind. Raises StrangeMessageError."""
        if kind_of(message) is not kind:
            raise StrangeMessageError("a message came out of order")
        reader = Reader(message)
        header = reader.raw(len(_MAGIC) + 3)
        key = OneKey(self._key(kind, self._shared if agreed is None else agreed))
        try:
            return open_sealed(reader, header, self._transcript, key)
        except DecodeError as error:
            raise StrangeMessageError(
                "a message was refused", "it was altered, repeated, or made with another code"
            ) from error

    def comparison(self) -> str:
        """Six digits in two groups, equal on both sides when nobody is in between."""
        number = int.from_bytes(digest(f"{_CONTEXT}comparison", self._transcript, 16)) % 1_000_000
        return f"{number // 1000:03} {number % 1000:03}"

    def _key(self, kind: Kind, shared: bytes) -> bytes:
        known = Writer().raw(self._secret).blob(shared).raw(self._transcript).u8(kind)
        return digest(f"{_CONTEXT}message key", known.getvalue(), HASH_SIZE)


def commit(ephemeral: bytes, reveal: bytes) -> bytes:
    """The 32-byte commitment to the joiner's X25519 key and the encoded `messages.Reveal`."""
    return digest(f"{_CONTEXT}commitment", Writer().raw(ephemeral).raw(reveal).getvalue())


def kind_of(message: bytes) -> Kind:
    """What a message says it is. Raises StrangeMessageError for what cannot be a message."""
    if len(message) > MAX_MESSAGE:
        raise StrangeMessageError("a message was refused", f"it is larger than {MAX_MESSAGE} bytes")
    try:
        reader = Reader(message)
        reader.format(_MAGIC, _VERSION)
        return Kind(reader.u8())
    except ValueError as error:  # DecodeError and NewerFormatError among them
        raise StrangeMessageError("a message was refused", str(error)) from error
