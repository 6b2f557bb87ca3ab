"""The code of a space of a relay, which devices are given: the text `hfr1-` and the base32 (RFC 4648, lower
case, no padding) of

    host      blob, ASCII, at most 253 bytes
    port      u16
    space     blob, ASCII, at most 32 bytes
    pin       32, the SHA-256 hash of the relay's certificate
    token     blob, ASCII, at most 200 bytes
    checksum  4, of all bytes before

White space and the case of letters do not matter. Who has the code can read, change and delete all objects in
the space, which are sealed, and wait for calls there; it opens no volume.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Final

from backends.relay import USUAL_PORT
from hybrisfs.client import UsageError
from sync.codec import Reader, Writer, digest

__all__ = ["USUAL_PORT", "RelayCode"]

_PREFIX: Final = "hfr1-"
_LONGEST: Final = 1024  # characters
_MAX_HOST: Final = 253
_MAX_SPACE: Final = 32
_MAX_TOKEN: Final = 200
_PIN_SIZE: Final = 32
_CHECKSUM_SIZE: Final = 4
_CHECKSUM_CONTEXT: Final = "hybrisfs.relay 2026-11 code checksum"


@dataclass(frozen=True, slots=True)
class RelayCode:
    """Where a relay is, how it is known, which space of it is meant, and what opens that."""

    host: str
    port: int
    space: str
    pin: bytes
    token: str = field(repr=False)

    @property
    def url(self) -> str:
        """The URL by which the space is a cloud."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"relay://{host}:{self.port}/{self.space}?pin={self.pin.hex()}"

    def encode(self) -> str:
        """The code as text."""
        body = Writer().blob(self.host.encode("ascii")).u16(self.port).blob(self.space.encode("ascii"))
        data = body.raw(self.pin).blob(self.token.encode("ascii")).getvalue()
        return _PREFIX + _base32(data + _checksum(data))

    @staticmethod
    def decode(text: str) -> RelayCode:
        """Read a code as it was typed or pasted. Raises UsageError, which quotes nothing of it."""
        code = "".join(text.split()).lower()
        if len(text) > 2 * _LONGEST or not code.startswith(_PREFIX):
            raise UsageError("this is not the code of a relay", f"one begins with {_PREFIX}")
        digits = code.removeprefix(_PREFIX)
        try:
            data = base64.b32decode(digits.upper() + "=" * (-len(digits) % 8))
            body, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
            # Base32 leaves bits at the end that stand for nothing: only one spelling is right.
            if _checksum(body) != checksum or _base32(data) != digits:
                raise ValueError
            return _read(Reader(body))
        except ValueError:
            raise UsageError("the code is mistyped or incomplete", "", "Copy the whole code again.") from None


def _read(reader: Reader) -> RelayCode:
    host, port = _text(reader.blob(_MAX_HOST)), reader.u16()
    space, pin = _text(reader.blob(_MAX_SPACE)), reader.raw(_PIN_SIZE)
    token = _text(reader.blob(_MAX_TOKEN))
    reader.end()
    return RelayCode(host, port, space, pin, token)


def _text(data: bytes) -> str:
    text = data.decode("ascii")
    if not text or not text.isprintable():
        raise ValueError
    return text


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode("ascii").rstrip("=").lower()


def _checksum(body: bytes) -> bytes:
    return digest(_CHECKSUM_CONTEXT, body, _CHECKSUM_SIZE)
