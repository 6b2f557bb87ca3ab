"""What the messages of a pairing say, once opened. `handshake` seals them, `protocol` orders them.

    hello      commitment 32
    offer      ephemeral 32 (X25519), device 32 (Ed25519), its name, volume 16, volume's name
    reveal     ephemeral 32 (X25519), and sealed once more (see `protocol`):
                   opening 32 (random), device 32 (Ed25519), its name,
                   signature 64 by that device
    grant      volume 16, volume's name, dedup 32, epochs (`hybrisfs.members.epochs`, the first among them),
               f varint, k varint,
               clouds: varint, each number u8, name, url, u8: 1 when credentials follow, as a blob
               members: varint, each 32 (Ed25519)
               former members: varint, each 32 (Ed25519)
               u8 = 1 when the new device is not a full member, else nothing
               signature 64 by the inviter's device
    reject     reason u8
    done       nothing

Names and URLs are blobs of UTF-8 that can be printed. Every length is bounded: nothing here is trusted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from msgspec import Struct

from hybrisfs.errors import UsageError
from hybrisfs.home import check_volume_name
from hybrisfs.keys import SharedKeys
from hybrisfs.members.epochs import read_epochs, write_epochs
from hybrisfs.settings.config import MAX_CLOUD_NUMBER, MAX_CLOUDS, choose_redundancy
from sync.codec import DecodeError, Reader, Writer
from sync.identity import PUBLIC_KEY_SIZE
from sync.seal import FIRST_EPOCH
from sync.update import VOLUME_ID_SIZE
from sync.vector import MAX_WRITERS

__all__ = [
    "EPHEMERAL_SIZE",
    "MAX_CREDENTIALS",
    "OPENING_SIZE",
    "Grant",
    "GrantedCloud",
    "Offer",
    "Peer",
    "Reason",
    "Reveal",
    "check_device_name",
]

EPHEMERAL_SIZE: Final = 32
OPENING_SIZE: Final = 32
MAX_CREDENTIALS: Final = 16 << 10  # bytes per cloud
_MAX_NAME: Final = 255  # bytes
_MAX_URL: Final = 1024  # bytes
_KEY_SIZE: Final = 32


class Reason(IntEnum):
    """Why one side ends the pairing."""

    NOT_CONFIRMED = 1
    EXPIRED = 2
    USED = 3
    WITHDRAWN = 4


class Peer(Struct, frozen=True):
    """The device on the other side: its Ed25519 public key and the name it gave itself."""

    public: bytes
    name: str


@dataclass(frozen=True, slots=True)
class GrantedCloud:
    """A cloud of the volume, as in `hybrisfs.settings.config.CloudConfig`."""

    number: int
    name: str
    url: str
    credentials: bytes | None = field(default=None, repr=False)
    """Opaque; None when the person did not let them travel."""


class Grant(Struct, frozen=True):
    """All that a device needs to take part in a volume."""

    volume: bytes
    name: str
    keys: SharedKeys
    f: int
    k: int
    clouds: tuple[GrantedCloud, ...]
    members: tuple[bytes, ...]
    """The Ed25519 public keys of the devices that belong to the volume, the inviter's among them."""
    former: tuple[bytes, ...] = ()
    """Those of devices that were removed; the log holds what they wrote before."""
    reader: bool = False
    """Whether the new device is not a full member: it only reads until the log tells what it may do."""

    def encode(self) -> bytes:
        """The record without the signature. Raises ValueError when no reader would accept it."""
        out = Writer().raw(self.volume).blob(self.name.encode())
        out.raw(self.keys.dedup)
        write_epochs(out, self.keys.epochs)
        out.varint(self.f).varint(self.k).varint(len(self.clouds))
        for cloud in self.clouds:
            out.u8(cloud.number).blob(cloud.name.encode()).blob(cloud.url.encode())
            out.u8(cloud.credentials is not None)
            if cloud.credentials is not None:
                out.blob(cloud.credentials)
        for publics in (self.members, self.former):
            out.varint(len(publics))
            for public in publics:
                out.raw(public)
        if self.reader:
            out.u8(1)
        record = out.getvalue()
        if Grant.decode(record) != self:
            raise ValueError("a grant with keys or ids of the wrong length")
        return record

    @staticmethod
    def decode(data: bytes) -> Grant:
        """Raises DecodeError."""
        reader = Reader(data)
        volume, name = reader.raw(VOLUME_ID_SIZE), read_text(reader)
        keys = SharedKeys(reader.raw(_KEY_SIZE), tuple(read_epochs(reader)))
        f, k = reader.varint(MAX_CLOUDS), reader.varint(MAX_CLOUDS)
        clouds = tuple(_read_cloud(reader) for _ in range(reader.varint(MAX_CLOUDS)))
        members, former = (
            tuple(reader.raw(PUBLIC_KEY_SIZE) for _ in range(reader.varint(MAX_WRITERS))) for _ in range(2)
        )
        only_reads = bool(reader.remaining)
        if only_reads and reader.u8() != 1:
            raise DecodeError("a machine only reads or does not")
        reader.end()
        if [one.number for one in keys.epochs if one.id == FIRST_EPOCH] != [0]:
            raise DecodeError("the first epoch is missing")
        for distinct in (
            {one.number for one in clouds},
            {one.name for one in clouds},
            {one.url for one in clouds},
        ):
            if len(distinct) != len(clouds):
                raise DecodeError("two clouds have the same number, name or URL")
        if len({*members, *former}) != len(members) + len(former):
            raise DecodeError("a member is named twice")
        try:
            check_volume_name(name)
            choose_redundancy(len(clouds), f, k)
        except UsageError as error:
            raise DecodeError(f"no such volume can be: {error.what}") from error
        return Grant(volume, name, keys, f, k, clouds, members, former, only_reads)


class Offer(Struct, frozen=True):
    """The inviter's answer to a commitment."""

    ephemeral: bytes
    peer: Peer
    volume: bytes
    volume_name: str

    def encode(self) -> bytes:
        """The record."""
        out = Writer().raw(self.ephemeral).raw(self.peer.public).blob(self.peer.name.encode())
        return out.raw(self.volume).blob(self.volume_name.encode()).getvalue()

    @staticmethod
    def decode(data: bytes) -> Offer:
        """Raises DecodeError."""
        reader = Reader(data)
        ephemeral = reader.raw(EPHEMERAL_SIZE)
        peer = Peer(reader.raw(PUBLIC_KEY_SIZE), read_text(reader))
        volume, volume_name = reader.raw(VOLUME_ID_SIZE), read_text(reader)
        reader.end()
        return Offer(ephemeral, peer, volume, volume_name)


class Reveal(Struct, frozen=True):
    """What the joiner committed to, but for the ephemeral key, which travels in front of it."""

    opening: bytes
    peer: Peer

    def encode(self) -> bytes:
        """The record without the signature."""
        return Writer().raw(self.opening).raw(self.peer.public).blob(self.peer.name.encode()).getvalue()

    @staticmethod
    def decode(data: bytes) -> Reveal:
        """Raises DecodeError."""
        reader = Reader(data)
        opening = reader.raw(OPENING_SIZE)
        peer = Peer(reader.raw(PUBLIC_KEY_SIZE), read_text(reader))
        reader.end()
        return Reveal(opening, peer)


def check_device_name(name: str) -> str:
    """Return `name`; raise `UsageError` unless it can be shown and is short enough."""
    if not name.strip() or not name.isprintable() or len(name.encode()) > _MAX_NAME:
        raise UsageError(
            f"{name!r} is not a name for a machine", f"it needs 1 to {_MAX_NAME} bytes that can be shown"
        )
    return name


def read_text(reader: Reader, maximum: int = _MAX_NAME) -> str:
    """Text that can be shown on a terminal. Raises DecodeError."""
    try:
        text = reader.blob(maximum).decode()
    except UnicodeDecodeError as error:
        raise DecodeError("a name is not UTF-8") from error
    if not text.strip() or not text.isprintable():
        raise DecodeError("a name is empty or cannot be shown")
    return text


def _read_cloud(reader: Reader) -> GrantedCloud:
    number, name, url = reader.u8(), read_text(reader), read_text(reader, _MAX_URL)
    if number > MAX_CLOUD_NUMBER:
        raise DecodeError(f"no cloud has the number {number}")
    travels = reader.u8()
    if travels > 1:
        raise DecodeError("credentials are there or not")
    return GrantedCloud(number, name, url, reader.blob(MAX_CREDENTIALS) if travels else None)
