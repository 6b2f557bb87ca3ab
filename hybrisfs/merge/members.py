"""The devices of a volume, as registers tell: who may write, and what people call them.

========  =======================  ==================================================================
register  key                      value
========  =======================  ==================================================================
member    ``m`` device id (16)     version u8 = 1, public key (32), name (blob <= 255, UTF-8)
========  =======================  ==================================================================

The first device lets itself in; each later one is let in by a device that is a member. Of concurrent values,
the one with the highest stamp counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hybrisfs.store.database import Database
from sync import DecodeError, Members, device_id_of
from sync.codec import Reader, Writer

__all__ = ["MAX_DEVICE_NAME", "Member", "MemberTable", "member_key"]

MAX_DEVICE_NAME: Final = 255
_VERSION: Final = 1


def member_key(device: bytes) -> bytes:
    return b"m" + device


@dataclass(frozen=True, slots=True)
class Member:
    """A device of the volume."""

    public: bytes
    name: str

    @property
    def device(self) -> bytes:
        return device_id_of(self.public)

    def encode(self) -> bytes:
        return Writer().u8(_VERSION).raw(self.public).blob(self.name.encode()).getvalue()

    @staticmethod
    def decode(value: bytes) -> Member:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a member record of another version")
        public, name = reader.raw(32), reader.blob(MAX_DEVICE_NAME)
        reader.end()
        try:
            return Member(public, name.decode())
        except UnicodeDecodeError as error:
            raise DecodeError("the name of a device is no text") from error


class MemberTable:
    """The `member` table, under the volume's lock."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self) -> list[Member]:
        """All devices, by name."""
        rows = self._db.execute("SELECT public, name FROM member ORDER BY name, device")
        return [Member(public, name) for public, name in rows]

    def count(self) -> int:
        (count,) = self._db.execute("SELECT count(*) FROM member").fetchone()
        return int(count)

    def keys(self) -> Members:
        """Whose updates are accepted."""
        return Members(member.public for member in self.all())

    def name_of(self, device: bytes) -> str:
        row = self._db.execute("SELECT name FROM member WHERE device = ?", (device,)).fetchone()
        return row[0] if row else device.hex()[:8]

    def admit(self, members: Iterable[Member]) -> None:
        """Add devices, or give them other names."""
        self._db.executemany(
            "INSERT INTO member (device, public, name) VALUES (?, ?, ?) "
            "ON CONFLICT (device) DO UPDATE SET name = excluded.name",
            [(member.device, member.public, member.name) for member in members],
        )

    def learn(self, key: bytes, value: bytes | None) -> bool:
        """Take in the value of a member register; False when no correct device can have written it."""
        try:
            member = Member.decode(value or b"")
        except DecodeError:
            return False
        if member_key(member.device) != key:
            return False
        self.admit([member])
        return True
