"""The devices that no longer belong to a volume, by the votes of its members.

========  ==================================  =======================================================
register  key                                 value
========  ==================================  =======================================================
vote      ``x`` accused (16), voter (16)      version u8 = 1, stance u8: 0 keep, 1 suspend, 2 remove
========  ==================================  =======================================================

Only the voter writes it. Its "remove" about itself says that it *leaves*: nobody can veto that, and it counts
also from a device that only reads, which has no vote about others. Its "keep" about itself counts for
nothing: a suspended device says so, so that others learn why it is suspended
(`hybrisfs.merge.signing.Signer.plead`). A member register that says of a device that it was removed is the
vote "remove" of its author, when that one has no vote register about it.

No member removes another one alone for good, for no device can tell a thief from an owner. Two things follow
from votes, and from nothing but the *set* of accepted updates:

*Ended* is a device that is removed for good, because
 (a) the volume's first recovery kit says so, and none says "keep"; or
 (b) one member says so, and there is the proof that the device broke a rule (`hybrisfs.members.evidence`); or
 (c) two members that are independent of each other say so; or
 (d) all other devices that came before say so: of two devices each can end the other at once. A device that
     was let in by an update that had not seen it is asked, too: else a device could pretend to know no other,
     and end all.
 The "keep" of the first kit undoes all of that.
A device that has left is ended, too. But what it said of others while it belonged here goes on counting: else
a device that it removed would come back. It is not asked any more about what is said after it has left.

*Suspended* is a device that one member accuses, by "suspend" or "remove", as long as no member vetoes that. A
"keep" is a veto if its voter is neither the accused, nor the accuser, nor let in by the accused. Devices that
the accused let in may veto, too, when the accused let in the accuser as well: else no device could help the
founder of a volume. One accusation of a member counts at a time, and one of a kit, the earliest without a
veto; accusations with a proof always count. A veto also answers what the accuser says of the voter, unless
that came first or comes later. Together with the accused, devices are suspended that it let in and that its
accuser accuses as well, where an older member is left that could veto. So whatever one member signs, another
one remains that can veto it.

    a device is   that means                                  it becomes    when
    -----------   -----------------------------------------   -----------   ---------------------------------
    member        its updates are accepted                    suspended     an accusation of it counts
                                                              ended         one of (a) to (d) holds,
                                                                            or it left
    suspended     no update of it is accepted, unless a       member        no accusation of it counts now
                  member depends on it; its consent counts    ended         one of (a) to (d) holds
    ended         neither                                     member        the first kit says "keep", unless
                                                                            it left

`judge` says which of them a device is, `effects` what a vote changes of that: both without I/O, for
`hybrisfs.members.hearing` and `hybrisfs.sharing.membership`, which read the facts and sign what follows.

`hybrisfs.members.kinship` says which members are *independent* of each other, or *older* than others.

The *first kit* is the one that is older than all others; of several whose order is not known, all must
say the same. Kits that the accused let in do not count for it, when there is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from hybrisfs.kinds import VOTE
from hybrisfs.members.kinship import Kinship, Roster
from sync import DecodeError, Reader, Writer

__all__ = [
    "NO_VOTES",
    "Cast",
    "Effects",
    "Facts",
    "Outcome",
    "Stance",
    "Verdict",
    "decode_vote",
    "effects",
    "encode_vote",
    "judge",
    "vote_key",
]

_VERSION: Final = 1


class Stance(IntEnum):
    """The stance of a member about another one."""

    KEEP = 0
    SUSPEND = 1
    REMOVE = 2


def vote_key(accused: bytes, voter: bytes) -> bytes:
    """The register of a vote."""
    return VOTE.key(accused, voter)


def encode_vote(stance: Stance) -> bytes:
    """The value of the register."""
    return Writer().u8(_VERSION).u8(stance).getvalue()


def decode_vote(value: bytes) -> Stance:
    """Raises DecodeError."""
    reader = Reader(value)
    if reader.u8() != _VERSION:
        raise DecodeError("a vote of another version")
    stance = reader.u8()
    reader.end()
    if stance > Stance.REMOVE:
        raise DecodeError("a vote for nothing that is known")
    return Stance(stance)


class Cast(NamedTuple):
    """A vote that was cast."""

    stance: Stance
    clock: int
    """Of the update that says so."""
    branch: bytes = b""
    """Of it, too."""


class Facts(NamedTuple):
    """What votes are judged by."""

    roster: Roster
    kits: Collection[bytes]
    """Those in reserve."""
    votes: Mapping[tuple[bytes, bytes], Cast]
    """By accused and voter."""
    proven: Container[bytes]
    """The devices that broke a rule, for which there is proof."""
    saw: Callable[[bytes, bytes], bool]
    """Whether the update that let in the first device had seen the one that let in the second."""
    knew: Callable[[bytes, Cast], bool] = lambda device, cast: False
    """Whether the update that let in a device had seen a vote."""
    readers: Collection[bytes] = ()
    """Those that only read: they have no vote."""


class Verdict(NamedTuple):
    """What follows from all votes."""

    ended: frozenset[bytes]
    suspended: Mapping[bytes, tuple[bytes, ...]]
    """The accused, with the accusers that count, the earliest first."""

    @property
    def out(self) -> frozenset[bytes]:
        """Those whose updates are not accepted now."""
        return self.ended.union(self.suspended)


class Outcome(NamedTuple):
    """A verdict, and the devices that it spares."""

    verdict: Verdict
    left: frozenset[bytes] = frozenset()
    """The devices that members voted about and that stay in."""
    kits: frozenset[bytes] = frozenset()
    """The keys of recovery kits, when any member has voted."""


NO_VOTES: Final = Outcome(Verdict(frozenset(), {}))


def judge(facts: Facts) -> Verdict:
    """What becomes of the members."""
    return _Court(facts).verdict() if facts.votes else NO_VOTES.verdict


class Effects(NamedTuple):
    """What a vote changes at once, as sets of devices."""

    final: frozenset[bytes]
    """Of those voted about: removed for good."""
    leaving: frozenset[bytes]
    """Those whose updates are not accepted now: they get no new keys."""
    returning: frozenset[bytes]
    """Those whose updates are accepted again."""


def effects(
    before: Verdict, after: Verdict, stance: Stance, accused: Collection[bytes], unknown: Collection[bytes]
) -> Effects:
    """The effects of one more vote, with that stance about all *accused*; *unknown*: those of them of which
    the log says nothing. No verdict tells of these, so this vote alone removes them."""
    removed = frozenset(unknown) if stance is Stance.REMOVE else frozenset()
    out = after.out | removed
    final = after.ended.intersection(accused) | out.intersection(unknown)
    return Effects(final, out, before.out - after.out)


class _Charge(NamedTuple):
    """An accusation; the least is the earliest, and of one update the one nearest to the founder."""

    clock: int
    depth: int
    accused: bytes


class _Court:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._members = facts.roster.counted.difference(facts.readers)
        self._devices = self._members.difference(facts.kits)
        self._votes: dict[bytes, dict[bytes, Cast]] = {}
        for (accused, voter), cast in facts.votes.items():
            if voter in self._members and voter != accused and accused in facts.roster.devices:
                self._votes.setdefault(accused, {})[voter] = cast
        self._left = {
            voter: cast
            for (accused, voter), cast in facts.votes.items()
            if voter == accused and cast.stance is Stance.REMOVE
            if voter in facts.roster.counted and voter not in facts.kits
        }
        self._ended: set[bytes] = set()
        self._kin = Kinship(facts.roster, facts.saw)

    def verdict(self) -> Verdict:
        # A round builds on those before: a device that was ended there has no vote. Kits come before all
        # others.
        while self._end(self._is_ended_by_kit) or self._end(self._is_ended):
            pass
        return Verdict(frozenset(self._ended.union(self._left)), self._suspended())

    def _end(self, is_ended: Callable[[bytes], bool]) -> bool:
        found = [one for one in self._votes if one not in self._ended and is_ended(one)]
        self._ended.update(found)
        return bool(found)

    def _cast(self, accused: bytes) -> dict[bytes, Cast]:
        """The votes about a device that count."""
        return {voter: cast for voter, cast in self._votes[accused].items() if voter not in self._ended}

    # -- ended -----------------------------------------------------------------------------------

    def _first_kits(self, accused: bytes) -> list[bytes]:
        kits = [one for one in self._facts.kits if one in self._members and one not in self._ended]
        return self._kin.first_kits(accused, kits)

    def _is_kept_by_kit(self, accused: bytes) -> bool:
        votes = self._cast(accused)
        first = self._first_kits(accused)
        return any(one in votes and votes[one].stance is Stance.KEEP for one in first)

    def _is_ended_by_kit(self, accused: bytes) -> bool:
        votes = self._cast(accused)
        first = self._first_kits(accused)
        if not first or not all(one in votes and votes[one].stance is Stance.REMOVE for one in first):
            return False
        line = self._kin.line(accused)
        return not any(
            one in self._facts.kits and one not in line and cast.stance is Stance.KEEP
            for one, cast in votes.items()
        )

    def _is_ended(self, accused: bytes) -> bool:
        voters = {one: cast for one, cast in self._cast(accused).items() if cast.stance is Stance.REMOVE}
        if not voters or self._is_kept_by_kit(accused):
            return False
        return (
            accused in self._facts.proven
            or self._are_all(voters, accused)
            or self._kin.are_independent(voters, accused)
        )

    def _are_all(self, voters: Mapping[bytes, Cast], accused: bytes) -> bool:
        """Whether they are all other devices. Devices that came after the vote are not asked, because
        otherwise a final vote could change; nor are those that had left before, unless they said "keep"."""
        others = self._devices.difference(self._ended, (accused,), voters)
        silent = self._left.keys() - self._cast(accused).keys()

        def is_asked(one: bytes, cast: Cast) -> bool:
            if one in silent and self._left[one].clock < cast.clock:
                return False
            return not self._facts.knew(one, cast)

        return not self._devices.isdisjoint(voters) and all(
            any(not is_asked(one, cast) for cast in voters.values()) for one in others
        )

    # -- suspended -------------------------------------------------------------------------------

    def _suspended(self) -> dict[bytes, tuple[bytes, ...]]:
        open_: dict[bytes, list[_Charge]] = {}  # by accuser
        first: dict[bytes, _Charge] = {}
        answers: dict[tuple[bytes, bytes], int] = {}  # by vetoing member and accuser: the clock
        for accused in sorted(self._votes):
            if accused in self._ended or accused in self._left or self._is_kept_by_kit(accused):
                continue
            votes = self._cast(accused)
            keepers = [one for one, cast in votes.items() if cast.stance is Stance.KEEP]
            for voter, cast in votes.items():
                if cast.stance is Stance.KEEP:
                    continue
                charge = _Charge(cast.clock, len(self._kin.above(accused)), accused)
                first[voter] = min(charge, first.get(voter, charge))
                vetoes = self._vetoes(accused, voter, keepers)
                for keeper in vetoes:
                    answers[keeper, voter] = max(votes[keeper].clock, answers.get((keeper, voter), 0))
                if not vetoes:
                    open_.setdefault(voter, []).append(charge)
        found: dict[bytes, list[tuple[int, bytes]]] = {}
        for accuser, charges in open_.items():
            # A member that vetoes an accusation has answered those against itself that it had seen then.
            standing = [
                one
                for one in sorted(charges)
                if one == first[accuser] or one.clock > answers.get((one.accused, accuser), 0)
            ]
            for one in self._counting(accuser, standing):
                found.setdefault(one.accused, []).append((one.clock, accuser))
        return {accused: tuple(one for _, one in sorted(by)) for accused, by in sorted(found.items())}

    def _vetoes(self, accused: bytes, accuser: bytes, keepers: Iterable[bytes]) -> list[bytes]:
        """Those of *keepers* whose veto counts."""
        line = self._kin.line(accused)
        return [one for one in keepers if one != accuser and (one not in line or accuser in line)]

    def _counting(self, accuser: bytes, charges: list[_Charge]) -> Iterable[_Charge]:
        proven, kits = self._facts.proven, self._facts.kits
        unproven = [one.accused for one in charges if one.accused not in proven]
        first = next((one for one in unproven if one not in kits), None)
        first_kit = next((one for one in unproven if one in kits), None)
        for one in charges:
            accused = one.accused
            if accused in (first, first_kit) or accused in proven:
                yield one
            elif first is not None and accused in self._kin.line(first):
                outside = self._devices.difference(
                    self._ended, self._left, self._kin.line(first), (accuser, first)
                )
                if any(self._kin.older(other, accused) for other in outside):
                    yield one
