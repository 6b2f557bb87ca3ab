"""The devices of a volume, as registers tell: who may write, and what people call them.

========  =======================  ==================================================================
register  key                      value
========  =======================  ==================================================================
member    ``m`` device id (16)     version u8 = 2, public key (32), name (blob <= 255, UTF-8),
                                   state u8: 0 a device, 1 one that no longer belongs to the volume,
                                   2 one in reserve
========  =======================  ==================================================================

The first device lets itself in; each later one is let in by a device that is a member. Of concurrent values,
the one with the highest stamp counts, but a device that was removed never comes back: pairing it again makes
it another one.

A device *in reserve* is the key of a recovery kit (`hybrisfs.recovery`): it gets the keys of every epoch, and
what it signs is accepted, but nobody waits for it, as it is no machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from hybrisfs.store.database import Database
from sync import DecodeError, Members, device_id_of
from sync.codec import Reader, Writer

__all__ = ["MAX_DEVICE_NAME", "Member", "MemberTable", "Membership", "member_key"]

MAX_DEVICE_NAME: Final = 255
_VERSION: Final = 2
_DEVICE, _REMOVED, _RESERVE = 0, 1, 2


def member_key(device: bytes) -> bytes:
    return b"m" + device


@dataclass(frozen=True, slots=True)
class Member:
    """A device of the volume."""

    public: bytes
    name: str
    removed: bool = False
    reserve: bool = False

    @property
    def device(self) -> bytes:
        return device_id_of(self.public)

    def encode(self) -> bytes:
        state = _REMOVED if self.removed else _RESERVE if self.reserve else _DEVICE
        return Writer().u8(_VERSION).raw(self.public).blob(self.name.encode()).u8(state).getvalue()

    @staticmethod
    def decode(value: bytes) -> Member:
        """Raises DecodeError."""
        reader = Reader(value)
        if reader.u8() != _VERSION:
            raise DecodeError("a member record of another version")
        public, name = reader.raw(32), reader.blob(MAX_DEVICE_NAME)
        state = reader.u8()
        reader.end()
        if state > _RESERVE:
            raise DecodeError("a device is a member, removed or in reserve")
        try:
            return Member(public, name.decode(), state == _REMOVED, state == _RESERVE)
        except UnicodeDecodeError as error:
            raise DecodeError("the name of a device is no text") from error


class Membership(IntEnum):
    """What the column `state` of the `member` table says of a device."""

    MEMBER = 0
    TOLD_REMOVED = 1  # by the device that let this one in; what it wrote before is accepted with the log
    REMOVED = 2  # by an update that is accepted here
    RESERVE = 3  # the key of a recovery kit; less than removed, more than an ordinary member


_GONE: Final = frozenset((Membership.TOLD_REMOVED, Membership.REMOVED))


def _state_of(member: Member, when_removed: Membership) -> Membership:
    if member.removed:
        return when_removed
    return Membership.RESERVE if member.reserve else Membership.MEMBER


class MemberTable:
    """The `member` table, under the volume's lock."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self) -> list[Member]:
        """The devices of the volume, by name; not those in reserve."""
        return self._where("state = 0")

    def reserves(self) -> list[Member]:
        """Those in reserve."""
        return self._where("state = 3")

    def removed(self) -> list[Member]:
        """Those that no longer belong to it."""
        return self._where("state IN (1, 2)")

    def told_removed(self) -> list[Member]:
        """Those of which this device was told so when it was let in, and has not seen the update yet."""
        return self._where("state = 1")

    def _where(self, condition: str) -> list[Member]:
        rows = self._db.execute(
            f"SELECT public, name, state FROM member WHERE {condition} ORDER BY name, device"
        )
        return [
            Member(public, name, state in _GONE, state == Membership.RESERVE) for public, name, state in rows
        ]

    def devices(self) -> Members:
        """Which devices belong to the volume, and which did."""
        return self._members("state = 0")

    def keys(self) -> Members:
        """The same, with those in reserve: who is to have the keys of the volume."""
        return self._members("state IN (0, 3)")

    def _members(self, condition: str) -> Members:
        current = self._where(condition)
        return Members((member.public for member in current), (member.public for member in self.removed()))

    def writers(self) -> Members:
        """Whose updates are accepted: all but those of devices whose removal has been accepted."""
        return Members(
            (member.public for member in self._where("state <> 2")),
            (member.public for member in self._where("state = 2")),
        )

    def name_of(self, device: bytes) -> str:
        row = self._db.execute("SELECT name FROM member WHERE device = ?", (device,)).fetchone()
        return row[0] if row else device.hex()[:8]

    def admit(self, members: Iterable[Member]) -> None:
        """Add devices, give them other names, or note that they were removed."""
        self._put(members, Membership.REMOVED)

    def introduce(self, members: Iterable[Member]) -> None:
        """Add the devices that a device was told of when it was let in."""
        self._put(members, Membership.TOLD_REMOVED)

    def _put(self, members: Iterable[Member], when_removed: Membership) -> None:
        self._db.executemany(
            "INSERT INTO member (device, public, name, state) VALUES (?, ?, ?, ?) "
            # A removed device stays one, and what is known to be in reserve is no ordinary member.
            "ON CONFLICT (device) DO UPDATE SET name = excluded.name, state = CASE "
            "WHEN state IN (1, 2) OR excluded.state IN (1, 2) THEN max(state % 3, excluded.state % 3) "
            "ELSE max(state, excluded.state) END",
            [(one.device, one.public, one.name, _state_of(one, when_removed)) for one in members],
        )

    def learn(self, key: bytes, values: Iterable[bytes | None]) -> bool:
        """Take in the values of a member register, the one that counts last; False when none of them can have
        been written by a correct device."""
        known = []
        for value in values:
            try:
                member = Member.decode(value or b"")
            except DecodeError:
                continue
            if member_key(member.device) == key:
                known.append(member)
        self.admit(known)
        return bool(known)
