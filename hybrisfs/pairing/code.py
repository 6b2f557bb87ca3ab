"""The one-time code that one device shows and the other is given.

The code is the text `hfs1-` and the base32 (RFC 4648, lower case, no padding) of

    secret     16  random, known to nobody but the two devices
    expires    varint, seconds since the epoch
    places     the rest but four bytes: raw DEFLATE (RFC 1951) with the dictionary below, of
                   clouds     varint, at most 32, each a blob: the URL, UTF-8, at most 1024 bytes
                   addresses  varint, at most 16, each a blob: the host, ASCII, at most 253 bytes,
                              and a u16: the port
    checksum   4   of all bytes before: tells a mistyped code from a wrong one

The 1 of `hfs1` is the format's version. White space and the case of letters do not matter. The URLs hold no
passwords: with a code alone nobody reaches the inviter: that takes the accounts, or to be near.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from hybrisfs.environment import Environment
from hybrisfs.pairing.errors import CodeError
from sync.codec import DecodeError, Reader, Writer, digest

__all__ = ["MAX_ADDRESSES", "SECRET_SIZE", "Address", "PairingCode", "invite_id", "new_code"]

Address = tuple[str, int]
"""Host name or address, and TCP port."""

SECRET_SIZE: Final = 16
MAX_ADDRESSES: Final = 16
_MAX_CLOUDS: Final = 32
_MAX_URL: Final = 1024  # bytes
_MAX_HOST: Final = 253  # characters, RFC 1035
_MAX_CODE: Final = 4096  # characters, more than any terminal line but enough for long URLs
_MAX_PLACES: Final = 1 << 16  # bytes once inflated
_MAX_TIME: Final = 1 << 40  # seconds, for ever
_CHECKSUM_SIZE: Final = 4
_PREFIX: Final = "hfs1-"
_CHECKSUM_CONTEXT: Final = "hybrisfs.pairing 2026-11 code checksum"
_INVITE_CONTEXT: Final = "hybrisfs.pairing 2026-11 invite id"
# Part of the format. What is most likely stands last, where DEFLATE reaches it most cheaply.
_DICTIONARY: Final = (
    b"/remote.php/dav/files/sftp://webdav://webdavs://azure://gs://.blob.core.windows.net/"
    b".storage.googleapis.com/.backblazeb2.com/.r2.cloudflarestorage.com/.amazonaws.com/"
    b"?endpoint=http://?region=us-east-1eu-central-1.com/.org/.net/hybrisfs/s3://https://file:///home/"
)


@dataclass(frozen=True, slots=True)
class PairingCode:
    """What a code says: the *secret*, until when it is good, and where the inviter may be found."""

    secret: bytes = field(repr=False)
    expires: int
    """Seconds since the epoch, by the inviter's clock."""
    clouds: tuple[str, ...]
    addresses: tuple[Address, ...] = ()

    def encode(self) -> str:
        """The code as text. Raises `CodeError` when a URL holds a password or something is too long."""
        for url in self.clouds:
            if urlsplit(url).password is not None:
                raise CodeError("no code can be made", "the URL of a cloud holds a password")
        places = Writer().varint(len(self.clouds))
        for url in self.clouds:
            places.blob(url.encode())
        places.varint(len(self.addresses))
        for host, port in self.addresses:
            places.blob(host.encode("ascii")).u16(port)
        packer = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY)
        packed = packer.compress(places.getvalue()) + packer.flush()
        body = Writer().raw(self.secret).varint(self.expires).raw(packed).getvalue()
        text = base64.b32encode(body + _checksum(body)).decode("ascii").rstrip("=").lower()
        code = _PREFIX + text
        if PairingCode.decode(code) != self:
            raise CodeError("no code can be made", "it would not decode to itself")
        return code

    @staticmethod
    def decode(text: str) -> PairingCode:
        """Read a code as it was typed or pasted. Raises `CodeError`."""
        if len(text) > 2 * _MAX_CODE:
            raise CodeError("this is not a pairing code", "it is far too long", _PASTE)
        code = "".join(text.split()).lower()
        if not code.startswith(_PREFIX):
            if re.match(r"hfs\d+-", code):
                raise CodeError("this code is of another version", "", "Update HybrisFS on both machines.")
            raise CodeError("this is not a pairing code", f"a code begins with {_PREFIX}", _PASTE)
        if len(code) > _MAX_CODE:
            raise CodeError("this is not a pairing code", f"it is longer than {_MAX_CODE} characters", _PASTE)
        body = _without_checksum(code.removeprefix(_PREFIX))
        try:
            reader = Reader(body)
            secret, expires = reader.raw(SECRET_SIZE), reader.varint(_MAX_TIME)
            clouds, addresses = _read_places(Reader(_inflate(reader.raw(reader.remaining))))
        except (ValueError, zlib.error) as error:
            raise CodeError("this is not a pairing code", str(error), _PASTE) from error
        return PairingCode(secret, expires, clouds, addresses)


_PASTE: Final = "Copy the whole code again. Nothing was changed."


def new_code(
    clouds: Sequence[str], addresses: Sequence[Address], environment: Environment, lifetime: float
) -> PairingCode:
    """A fresh code, good for *lifetime* seconds from now; *clouds* are URLs without secrets.

    Addresses of IPv6 are left out where there are others: each makes the code 61 characters longer.
    """
    secret = environment.random_bytes(SECRET_SIZE)
    addresses = [one for one in addresses if ":" not in one[0]] or addresses
    return PairingCode(
        secret, int(environment.time() + lifetime), tuple(clouds), tuple(addresses[:MAX_ADDRESSES])
    )


def invite_id(secret: bytes) -> bytes:
    """The 16-byte name of an invitation on clouds and network. It tells nothing of the *secret*."""
    return digest(_INVITE_CONTEXT, secret, 16)


def _checksum(body: bytes) -> bytes:
    return digest(_CHECKSUM_CONTEXT, body, _CHECKSUM_SIZE)


def _without_checksum(text: str) -> bytes:
    """The bytes that base32 `text` stands for, checked. Raises `CodeError`."""
    mistyped = CodeError("the code is mistyped or incomplete", "its checksum is wrong", _PASTE)
    try:
        data = base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except ValueError as error:  # a character that is not in the alphabet, or an impossible length
        raise mistyped from error
    body, checksum = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:]
    # Base32 leaves bits at the end that stand for nothing: only one spelling is right.
    if _checksum(body) != checksum or base64.b32encode(data).decode().rstrip("=").lower() != text:
        raise mistyped
    return body


def _inflate(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(-15, _DICTIONARY)
    places = unpacker.decompress(packed, _MAX_PLACES)
    if not unpacker.eof or unpacker.unused_data:
        raise DecodeError("its list of places does not end where it should")
    return places


def _read_places(reader: Reader) -> tuple[tuple[str, ...], tuple[Address, ...]]:
    clouds = tuple(_printable(reader.blob(_MAX_URL)) for _ in range(reader.varint(_MAX_CLOUDS)))
    addresses = tuple(
        (_printable(reader.blob(_MAX_HOST)), _port(reader.u16())) for _ in range(reader.varint(MAX_ADDRESSES))
    )
    reader.end()
    return clouds, addresses


def _printable(data: bytes) -> str:
    text = data.decode()
    if not text or not text.isprintable():
        raise DecodeError("a cloud or host has no proper name")
    return text


def _port(number: int) -> int:
    if number == 0:
        raise DecodeError("there is no port 0")
    return number
