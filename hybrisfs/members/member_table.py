"""The devices of a volume, as the registers of `members.members` and the votes about them have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hybrisfs.members.hearing import Hearing
from hybrisfs.members.kinship import BY_NOBODY, Admission, Roster
from hybrisfs.members.lineage import Word, admission_of, founders, words
from hybrisfs.members.members import Member, is_device_key, member_key
from hybrisfs.members.removal import NO_VOTES
from hybrisfs.registers.values import Stamp, Value
from hybrisfs.state.database import RowWriter
from hybrisfs.state.members import (
    MemberRow,
    Membership,
    member_rows,
    name_of_member,
    put_members,
    rename_members,
    reserves_with_kits,
)
from sync import DecodeError, Members

__all__ = ["MemberTable"]


_GONE: Final = frozenset((Membership.TOLD_REMOVED, Membership.REMOVED))


def _state_of(member: Member, when_removed: Membership) -> Membership:
    if member.removed:
        return when_removed
    return Membership.RESERVE if member.reserve else Membership.MEMBER


class _Known(NamedTuple):
    """What the table says of a device."""

    member: Member
    state: Membership
    admission: Admission


class MemberTable:
    """The members of one volume."""

    def __init__(self, database: RowWriter, hearing: Hearing | None = None) -> None:
        """*hearing* tells what follows from votes; without it, every removed device is gone."""
        self._db = database
        self._hearing = hearing
        self._outcome = NO_VOTES
        self._rows: list[MemberRow] = []
        self._kits: set[bytes] = set()
        self._known: dict[bytes, _Known] = {}
        self._as_of: object = None  # until when nothing that `_known` follows from has changed
        self._roster = Roster({})
        self._words: dict[bytes, list[Word]] | None = None  # None: to be read again
        self._made: dict[str, Members] = {}  # of what is known
        self._called: dict[str, set[bytes]] = {}  # the present members of that name

    def all(self) -> list[Member]:
        """The devices of the volume, by name; not those in reserve."""
        return self._in(Membership.MEMBER)

    def reserves(self) -> list[Member]:
        """Those in reserve."""
        return self._in(Membership.RESERVE)

    def removed(self) -> list[Member]:
        """Those that no longer belong to it."""
        return self._in(*_GONE)

    def gone(self) -> frozenset[bytes]:
        """All devices that no longer belong to it, those beyond the bounds included."""
        return frozenset(device for device, one in self._load().items() if one.state in _GONE)

    def left(self) -> frozenset[bytes]:
        """Devices that a member wanted to remove and that still belong to the volume."""
        self._load()
        return self._outcome.left

    def told_removed(self) -> list[Member]:
        """Those that this device was let in with as removed, and whose removal it has not seen in the log
        yet."""
        return self._in(Membership.TOLD_REMOVED)

    def _in(self, *states: Membership) -> list[Member]:
        return [one.member for one in self._counted() if one.state in states]

    def _counted(self) -> list[_Known]:
        """Those within the bounds, by name; no reserve without a kit."""
        return [
            one
            for device, one in self._load().items()
            if device in self._roster.counted
            # The registers of a reserve that its inviter named to this device are still to come.
            and (one.state != Membership.RESERVE or device in self._kits or one.admission.clock is None)
        ]

    def _load(self) -> dict[bytes, _Known]:
        """All known devices, by name; cached until something changes that tells who is a member."""
        as_of = self._db.membership, None if self._hearing is None else self._hearing.said_of_roles
        if as_of == self._as_of and self._words is not None:
            return self._known
        rows = member_rows(self._db)
        has_reserves = any(row.state == Membership.RESERVE for row in rows)
        kits = reserves_with_kits(self._db) if has_reserves else set()
        outcome = NO_VOTES if self._hearing is None else self._hearing.outcome
        known = rows, kits, outcome
        if known != (self._rows, self._kits, self._outcome) or self._words is None:
            (self._rows, self._kits, self._outcome), self._words = known, words(self._db)
            self._known = {
                row.device: self._understood(row)
                for row in rows
                if is_device_key(row.public)  # earlier versions let in whatever a member said
            }
            first = founders(self._db)
            self._roster = Roster(
                {
                    device: BY_NOBODY
                    if device in first
                    else admission_of(device, one.admission, self._words.get(device, ()))
                    for device, one in self._known.items()
                }
            )
            self._made.clear()
            self._called = {}
            for device, one in self._known.items():
                if one.state not in _GONE:
                    self._called.setdefault(one.member.name, set()).add(device)
        self._as_of = as_of
        return self._known

    def _understood(self, row: MemberRow) -> _Known:
        state = self._standing(row.device, row.state)
        member = Member(row.public, row.name, state in _GONE, state is Membership.RESERVE)
        return _Known(member, state, Admission(row.inviter, row.clock))

    def _standing(self, device: bytes, state: int) -> Membership:
        """What it is, of which its row says *state*."""
        verdict, left, in_reserve = self._outcome
        if device in verdict.suspended or device in verdict.ended:
            return Membership.REMOVED
        if state in _GONE and device in left:
            return Membership.RESERVE if device in in_reserve else Membership.MEMBER
        return Membership(state)

    @property
    def suspended(self) -> Mapping[bytes, tuple[bytes, ...]]:
        """Devices that no longer belong to the volume unless a member vetoes that, with their accusers."""
        self._load()
        return self._outcome.verdict.suspended

    def has_left(self, device: bytes) -> bool:
        """Whether the device itself has said that it belongs to the volume no longer."""
        return self._hearing is not None and self._hearing.says_that_it_leaves(device)

    def asked(self) -> list[Member]:
        """The devices whose consent it takes to destroy something: also those that are only suspended."""
        present, outcome = self.all(), self._outcome
        suspended = outcome.verdict.suspended.keys() - outcome.kits
        return [*present, *(one for one in self.removed() if one.device in suspended)]

    def devices(self) -> Members:
        """Which devices belong to the volume, and which did."""
        return self._members("devices", lambda: self._present(Membership.MEMBER))

    def keys(self) -> Members:
        """The same, with those in reserve: all that must have the keys of the volume."""
        return self._members("keys", lambda: self._present(Membership.MEMBER, Membership.RESERVE))

    def writers(self) -> Members:
        """The devices whose updates are accepted: all but those whose removal was accepted and those that do
        not count. Their updates are accepted if a member depends on them."""
        return self._members("writers", self._writers)

    def followed(self, own: bytes) -> Members:
        """The writers, and this device, *own*, while it is suspended or has left: it goes on handing on what
        it has, and puts no head on a cloud before it has read its own there (`sync.beacons`)."""
        if own not in self.suspended and not self.has_left(own):
            return self.writers()
        return self._members("followed", lambda: self._writers(also=own))

    def _members(self, which: str, make: Callable[[], Members]) -> Members:
        self._load()
        found = self._made.get(which)
        if found is None:
            found = self._made[which] = make()
        return found

    def _present(self, *states: Membership) -> Members:
        return Members(
            (member.public for member in self._in(*states)), (member.public for member in self.removed())
        )

    def _writers(self, also: bytes | None = None) -> Members:
        current = {one.member.device for one in self._counted() if one.state != Membership.REMOVED}
        if also is not None:
            current.add(also)
        return Members(
            (self._known[device].member.public for device in current),
            (one.member.public for device, one in self._known.items() if device not in current),
        )

    def name_of(self, device: bytes) -> str:
        return name_of_member(self._db, device) or device.hex()[:8]

    def shown_name(self, device: bytes) -> str:
        """Its name, with the beginning of its id if another device of the volume has the same name."""
        name = self.name_of(device)
        self._load()
        others = self._called.get(name, set()) - {device}
        return f"{name} ({device.hex()[:8]})" if others else name

    def inviter_of(self, device: bytes) -> bytes | None:
        """The device that let this one in; None when none did, or when that is unknown."""
        self._load()
        return self._roster.inviter(device)

    def admitted_by(self, device: bytes) -> list[Member]:
        """The devices of the volume, in reserve or not, that this device let in, directly or through
        others."""
        known = self._load()
        present = {one.member.device for one in self._counted() if one.state not in _GONE}
        return [known[one].member for one in self._roster.admitted(device) if one in present]

    def words_changed(self) -> None:
        """Called when registers of admissions have other values."""
        self._words = None

    def admit(self, members: Iterable[Member], by: bytes | None = None, clock: int = 0) -> None:
        """Add devices, give them other names, or note that they were removed: *by* that device, in an update
        with that clock. Votes decide what follows from a removal by another device."""
        members = list(members)
        if self._hearing is not None and by is not None:
            voted = [one for one in members if one.removed and self._hearing.knows(one.device)]
            rename_members(self._db, [(one.device, one.name) for one in voted])
            members = [one for one in members if one not in voted]
        self._put(members, Membership.REMOVED, by, clock)

    def introduce(self, members: Iterable[Member]) -> None:
        """Add the devices whose names this device got when it was let in."""
        self._put(members, Membership.TOLD_REMOVED, None, None)

    def learn_reserve(self, public: bytes, by: bytes | None, clock: int) -> None:
        """Add the reserve of a signed kit, which *by* named, unless it is known: a device that
        begins with a checkpoint has no other source, if the member register was overwritten since."""
        reserve = Member(public, "", reserve=True)
        if reserve.device not in self._load():
            self._put([reserve], Membership.REMOVED, by, clock)

    def _put(
        self, members: Iterable[Member], when_removed: Membership, by: bytes | None, clock: int | None
    ) -> None:
        put_members(
            self._db,
            [
                MemberRow(
                    one.device, one.public, one.name, _state_of(one, when_removed), _other(by, one), clock
                )
                for one in members
            ],
        )

    def learn(
        self, key: bytes, values: Sequence[Value], author: Callable[[Stamp], bytes | None] = lambda _: None
    ) -> bool:
        """Take in the values of a member register, the winning one last; False when no correct device can
        have written any of them. *author*: returns the device that signed an update."""
        known = False
        for value in sorted(values, key=lambda one: one.stamp):
            try:
                member = Member.decode(value.value or b"")
            except DecodeError:
                continue
            if member_key(member.device) == key:
                self.admit([member], author(value.stamp), value.stamp.clock)
                known = True
        return known


def _other(by: bytes | None, member: Member) -> bytes | None:
    return None if by == member.device else by
