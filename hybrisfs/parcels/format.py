"""Parcels on a cloud: files for people without the program, each sealed under a key of its own.

    parcels/ID/record        what the devices of the volume know of it; put first, deleted last
    parcels/ID/piece-NNNN    the file in pieces of 8 MiB, from 0000 on
    parcels/ID/page          the page that the link opens in a browser; put last

ID is 16 random bytes in hex. The link is a URL of the page that the cloud's service accepts for some days,
and behind # the key: 32 random bytes in base64url. Browsers send to no server what is behind #.

    piece     AES-256-GCM under the key of the parcel, which seals nothing else; the nonce is the number of
              the piece in 12 bytes, big-endian, the associated data "hybrisfs parcel 1"
    head      likewise, with the number 2^64 - 1: JSON, `name` of the file, its `size` in bytes, and how many
              `pieces` it has. It is in the page.

    record    magic "HFPC", version u16 = 1
              ID       16
              epoch, nonce and box as in `sync.seal`, with the volume's key for parcels:
                  made     varint, seconds since the epoch
                  expires  varint, likewise: after that its objects are deleted
                  size     varint, bytes of the file
                  pieces   varint
                  maker    16, the device
                  path     blob, of the file in the volume, at most 4096 bytes
                  link     blob, ASCII, at most 8192 bytes

    page      one HTML document without anything from elsewhere. By its policy it runs its own script only,
              and talks to the host that it comes from: that is where the pieces are. It has the head of the
              parcel and the URLs of the pieces, which are good for as long as its own. The cloud that hands
              it out can hand out another page: what that means is in the threat model

Nobody signs a record: a removed device that finds a cloud to help it can have a false one shown in a list. It
opens nothing by that.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sync import DEVICE_ID_SIZE
from sync.codec import DecodeError, Reader, Writer
from sync.seal import SealKeys, open_sealed, seal

__all__ = [
    "ID_SIZE",
    "LARGEST",
    "MAX_RECORD",
    "PIECE",
    "PREFIX",
    "Record",
    "Seal",
    "decode_record",
    "encode_record",
    "id_in",
    "page",
    "page_name",
    "piece_name",
    "piece_names",
    "record_name",
]

PREFIX: Final = "parcels/"
ID_SIZE: Final = 16
PIECE: Final = 8 << 20
"""Bytes of a piece."""
LARGEST: Final = 4 << 30
"""Bytes of a file: a browser gathers all of it before it stores it."""
KEY_SIZE: Final = 32
MAX_RECORD: Final = 1 << 14

_MAGIC: Final = b"HFPC"
_VERSION: Final = 1
_HEAD: Final = (1 << 64) - 1
_DATA: Final = b"hybrisfs parcel 1"
_LONGEST_PATH: Final = 4096
_LONGEST_LINK: Final = 8192
_LATEST: Final = 1 << 40  # seconds since the epoch
_MOST_PIECES: Final = LARGEST // PIECE
_NAME: Final = re.compile(r"parcels/([0-9a-f]{32})/(?:record|page|piece-[0-9]{4})")


def record_name(parcel: bytes) -> str:
    return f"{PREFIX}{parcel.hex()}/record"


def page_name(parcel: bytes) -> str:
    return f"{PREFIX}{parcel.hex()}/page"


def piece_name(parcel: bytes, number: int) -> str:
    return f"{PREFIX}{parcel.hex()}/piece-{number:04}"


def piece_names(parcel: bytes, size: int) -> list[str]:
    """The names of all pieces of a file of that size."""
    return [piece_name(parcel, number) for number in range(-(-size // PIECE))]


def id_in(name: str) -> bytes | None:
    """The parcel to which an object belongs by its name; None when it is not an object of one."""
    found = _NAME.fullmatch(name)
    return None if found is None else bytes.fromhex(found[1])


class Seal:
    """Seals one parcel."""

    def __init__(self, key: bytes) -> None:
        """*key*: `KEY_SIZE` random bytes, for this parcel only."""
        self._key = key
        self._cipher = AESGCM(key)

    @property
    def fragment(self) -> str:
        """The key as it stands in a link."""
        return urlsafe_b64encode(self._key).decode().rstrip("=")

    def piece(self, number: int, content: bytes) -> bytes:
        """A sealed piece."""
        return self._cipher.encrypt(number.to_bytes(12, "big"), content, _DATA)

    def head(self, name: str, size: int) -> bytes:
        """What tells of the file."""
        said = {"name": name, "size": size, "pieces": -(-size // PIECE)}
        return self.piece(_HEAD, json.dumps(said, ensure_ascii=True).encode())


class Record(NamedTuple):
    """What the devices know of a parcel: times in seconds since the epoch, the size in bytes, the path in the
    volume."""

    made: int
    expires: int
    size: int
    maker: bytes
    path: bytes
    link: str


def encode_record(parcel: bytes, record: Record, volume: bytes, keys: SealKeys, nonce: bytes) -> bytes:
    """The object of a record. Raises ValueError when path or link are too long."""
    if len(record.path) > _LONGEST_PATH or len(record.link) > _LONGEST_LINK:
        raise ValueError("the path or the link is too long for a record")
    payload = (
        Writer()
        .varint(record.made)
        .varint(record.expires)
        .varint(record.size)
        .varint(-(-record.size // PIECE))
        .raw(record.maker)
        .blob(record.path)
        .blob(record.link.encode("ascii"))
        .getvalue()
    )
    return seal(_header(parcel), volume, payload, keys, nonce)


def decode_record(data: bytes, parcel: bytes, volume: bytes, keys: SealKeys) -> Record:
    """The record of this parcel. Raises DecodeError."""
    reader = Reader(data)
    reader.format(_MAGIC, _VERSION)
    if reader.raw(ID_SIZE) != parcel:
        raise DecodeError("the record is that of another parcel")
    inside = Reader(open_sealed(reader, _header(parcel), volume, keys))
    made, expires = inside.varint(_LATEST), inside.varint(_LATEST)
    size, pieces = inside.varint(LARGEST), inside.varint(_MOST_PIECES)
    maker, path = inside.raw(DEVICE_ID_SIZE), inside.blob(_LONGEST_PATH)
    link = inside.blob(_LONGEST_LINK)
    inside.end()
    if pieces != -(-size // PIECE):
        raise DecodeError("the record has another number of pieces than its size")
    if not all(0x21 <= byte < 0x7F for byte in link):
        raise DecodeError("the record has no link")
    return Record(made, expires, size, maker, path, link.decode("ascii"))


def _header(parcel: bytes) -> bytes:
    return Writer().format(_MAGIC, _VERSION).raw(parcel).getvalue()


def page(head: bytes, pieces: Sequence[str]) -> bytes:
    """The document for a parcel with this sealed *head*; *pieces* are URLs."""
    static = files(__package__) / "static"
    document, style, script = (
        (static / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")
    )
    policy = (
        f"default-src 'none'; script-src {_allowed(script)}; style-src {_allowed(style)}; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    said = json.dumps({"head": b64encode(head).decode(), "pieces": list(pieces)})
    parts = {
        "@POLICY@": policy,
        "@STYLE@": style,
        "@SCRIPT@": script,
        "@PARCEL@": said.replace("<", "\\u003c"),  # or a URL could end the element
    }
    for mark, part in parts.items():
        document = document.replace(mark, part, 1)
    return document.encode()


def _allowed(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
