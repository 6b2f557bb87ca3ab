"""Minutes of what members said about the end of packs: whether all had agreed when a member ended one.

The registers that packs end by (`hybrisfs.gc`) hold what was said last. What an update that ends a pack
relies on may have been followed by other values before it arrives. So each value of a proposal, of answers or
a member register is noted with its stamp, and whether a pack has ended is decided by what the update that
says so *had seen*: the minutes that its dependency vector covers. So all devices decide alike, in
whatever order updates come.

An end counts when its signer had proposed the pack, the proposal stood, and all devices that were members by
then had agreed, without refusing this pack. A device was a member if a member register names it, or if it had
signed an update. Not counted are devices that had been removed for good (`hybrisfs.members.removal`), and
keys in reserve. A suspended device is asked, as a member may still veto that. Any other end is *empty*, and
changes nothing. Votes and proofs against members are noted here, too, for that.

An empty end convicts no device, though no correct device signs one. No part of the log shows that a consent
is lacking: a proof would have to hold all that the update had seen, which has no bound. And a device that has
begun with a checkpoint since could not check it. Convictions decide which devices belong to the volume, and
all devices have to see that alike (`hybrisfs.members.removal`). No device need learn that the pack has not
ended; the log of the daemon names it.

A device that begins with a checkpoint, or has let go of old minutes, does not know what was said before.
When an update had not even seen where its minutes begin, it cannot judge: the end is *doubtful*. Both
mistakes would be bad then. So the pack is not taken for gone, nor is it relied upon for anything new
(`ChunkStore.doubt_pack`). An update that had seen that far can be judged: answers repeat
all answers to what still stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final

from hybrisfs.kinds import ADMISSION, ANSWERS, EVIDENCE, ID, MEMBER, PROPOSAL, SIGNED_KIT, VOTE, Trait, having
from hybrisfs.members.hearing import Hearing, VectorOf, by_member_register, is_by_member_register
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.removal import Stance, decode_vote
from hybrisfs.recovery.record import SignedKit
from hybrisfs.registers.proposals import Answers, Book, Proposal, Stray, answers_key, proposal_key
from hybrisfs.registers.values import Stamp
from hybrisfs.state.database import Reader, RowWriter
from hybrisfs.state.registers import (
    Said,
    beginnings,
    forget_older,
    note_said,
    rename_said,
    said_of_kind,
    stamps_of_key,
    value_at,
    values_of_kind,
    values_on_branch,
)
from hybrisfs.state.stored_log import device_of_branch, devices_of_branches
from sync import DecodeError, Rename, VersionVector

__all__ = ["End", "Minutes", "bans_orphan", "bans_place", "bans_strays_of"]

_KIN: Final = having(Trait.KIN)
_ONCE: Final = having(Trait.SAID_ONCE)
_KEPT: Final = 16
"""Values of a proposal, of answers or a vote that are kept for each branch. A proposer ends packs by the
newest ones that it has seen; an end by a device that has seen so little is doubted."""


class End(Enum):
    """Whether a statement counts that a pack has ended."""

    AGREED = "all had agreed"
    EMPTY = "not all had agreed"
    DOUBTFUL = "it is not known here whether all had agreed"


class Minutes:
    """What was said."""

    def __init__(self, database: RowWriter, hearing: Hearing) -> None:
        self._db = database
        self._roles = hearing.roles
        self._hearing = hearing

    def note(self, stamp: Stamp, key: bytes, value: bytes | None, *, begins: bool = False) -> None:
        """An update has written this to a register of a kind with `Trait.SAID`. *begins*: it is not known
        what was said before."""
        if key[0] == SIGNED_KIT:
            # As if the register of its reserve said so once more, which may be overwritten.
            key, value = _reserve(key, value or b"")
        said = _meaning(key[0], value or b"")
        self._say(stamp, key, said, begins=begins)
        if key[0] == MEMBER and said and Member.decode(said).removed:
            voter = device_of_branch(self._db, stamp.branch)
            if voter is not None:
                vote = by_member_register(key[ID], voter)
                self._say(stamp, vote, bytes((Stance.REMOVE,)), begins=begins)

    def _say(self, stamp: Stamp, key: bytes, said: bytes, *, begins: bool) -> None:
        once = key[0] in _ONCE or is_by_member_register(key)
        if once and said in values_on_branch(self._db, key, stamp.branch):
            return
        note_said(self._db, Said(key, stamp.branch, stamp.clock, said), begins=begins)
        if not once:
            forget_older(self._db, key, stamp.branch, _KEPT)
        if key[0] in _KIN:
            self._roles.forget()

    def rename(self, rename: Rename) -> None:
        """A branch of the log has another name now, above a clock."""
        rename_said(self._db, rename)
        self._roles.forget()

    def judge(
        self, author: bytes, seen: VersionVector, packs: Iterable[bytes], vector_of: VectorOf
    ) -> dict[bytes, End]:
        """Whether the statement of *author* counts that these packs have ended. *seen*: what its update
        depends on; *vector_of* gives the same of other updates."""
        proposals = self._standing(proposal_key(author), seen, vector_of)
        book = Book((author,), {author: proposals}, {})
        wanted = {pack for one in book.lists for pack in (*one.packs, *one.orphans)}
        agreed: set[bytes] = set()
        if not wanted.isdisjoint(packs):
            members = self._members(author, seen, vector_of)
            answers = {one: self._standing(answers_key(one), seen, vector_of) for one in members}
            book = Book(members, {author: proposals}, answers)
            listed = book.agreed(book.lists[0]) if len(book.lists) == 1 else None
            if listed is not None:
                agreed.update(listed.packs, listed.orphans)
        other = End.EMPTY if self._knows(seen) else End.DOUBTFUL
        return {pack: End.AGREED if pack in agreed else other for pack in packs}

    def _knows(self, seen: VersionVector) -> bool:
        """Whether an update that had seen so much can be judged."""
        return all(seen[branch] >= clock for branch, clock in beginnings(self._db))

    def _standing(self, key: bytes, seen: VersionVector, vector_of: VectorOf) -> list[bytes]:
        """The values of a register, as an update with the vector *seen* had seen them."""
        newest: dict[bytes, int] = {}
        for branch, clock in stamps_of_key(self._db, key):
            if clock <= seen[branch]:
                newest[branch] = max(clock, newest.get(branch, 0))
        stamps = [Stamp(clock, branch) for branch, clock in newest.items()]
        vectors = [vector_of(*one[::-1]) for one in stamps if len(stamps) > 1]
        return [
            value_at(self._db, key, one.branch, one.clock)
            for one in stamps
            if not any(vector is not None and vector[one.branch] >= one.clock for vector in vectors)
        ]

    def _members(self, author: bytes, seen: VersionVector, vector_of: VectorOf) -> set[bytes]:
        """The members whose consent a device needed after it had seen so much."""
        said: dict[bytes, list[Member]] = {}
        for key, branch, clock, value in said_of_kind(self._db, MEMBER):
            if clock <= seen[branch] and value:
                said.setdefault(key[ID], []).append(Member.decode(value))
        devices = devices_of_branches(self._db)
        heard = {author, *(devices[branch] for branch, clock in seen.items() if clock), *said}
        ended = self._hearing.verdict_for(seen, vector_of).ended
        return {one for one in heard - ended if _is_asked(said.get(one, ()))}


def _is_asked(said: Iterable[Member]) -> bool:
    """Whether a device with these member records is asked. No member becomes a reserve; a device that was
    only ever removed may never have been a member."""
    said = list(said)
    return not said or any(not one.reserve and not one.removed for one in said)


def _reserve(key: bytes, value: bytes) -> tuple[bytes, bytes | None]:
    """The word of a signed kit, in the form of its reserve's member register."""
    try:
        reserve = Member(SignedKit.decode(key, value).public, "", reserve=True)
    except DecodeError:
        return member_key(key[ID]), None
    return member_key(reserve.device), reserve.encode()


def _meaning(kind: int, value: bytes) -> bytes:
    """The part of the value that matters here; empty when none does."""
    try:
        if kind == PROPOSAL:
            Proposal.decode(value)
        elif kind == ANSWERS:
            Answers.decode(value)
        elif kind == ADMISSION:
            return value
        elif kind == VOTE:
            return bytes((decode_vote(value),))
        elif kind == EVIDENCE:
            return b""  # which kind of proof there is, the key tells
        else:
            member = Member.decode(value)
            return Member(member.public, "", member.removed, member.reserve).encode()
    except DecodeError:
        return b""
    return value


# -- packs and shares that a standing proposal forbids to name ------------------------------------------
# A device keeps to it from the moment at which it knows of the proposal, whether it has answered or not.


def bans_orphan(db: Reader, pack: bytes) -> bool:
    """Whether a pack that no register here names must stay unnamed."""
    return any(pack in proposal.orphans for proposal in _standing(db))


def bans_strays_of(db: Reader, pack: bytes) -> bool:
    """Whether some shares of this pack must not be recorded at some clouds."""
    return any(stray.pack == pack for proposal in _standing(db) for stray in proposal.strays)


def bans_place(db: Reader, pack: bytes, placement: Sequence[int]) -> bool:
    """Whether the shares of a pack must not be recorded at these clouds."""
    places = {Stray(pack, index, cloud) for index, cloud in enumerate(placement)}
    return any(not places.isdisjoint(proposal.strays) for proposal in _standing(db))


def _standing(db: Reader) -> Iterator[Proposal]:
    """The proposals of all present and former members: a forbidden name too many does no harm."""
    for value in values_of_kind(db, PROPOSAL):
        try:
            yield Proposal.decode(value or b"")
        except DecodeError:
            continue  # no correct device has written it
