"""What the log says about removals, for all that is known, or for a part that an update had seen.

The table `said` (`hybrisfs.members.minutes`) holds all that `hybrisfs.members.removal` decides by:
admissions, votes, and proofs, each with the stamp of its update. Whether a device has been ended in the past
of an update is decided by what that update had seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hybrisfs.kinds import ADMISSION, EVIDENCE, MEMBER, VOTE
from hybrisfs.members.evidence import Misdeed, evidence_key
from hybrisfs.members.lineage import VectorOf, founders, trace
from hybrisfs.members.members import Member, member_key
from hybrisfs.members.removal import (
    NO_VOTES,
    Cast,
    Facts,
    Outcome,
    Stance,
    Verdict,
    judge,
    vote_key,
)
from hybrisfs.members.role_table import Roles
from hybrisfs.members.roles import Role
from hybrisfs.state.members import Membership, devices_from_the_beginning
from hybrisfs.state.registers import Said, all_values, said_of_kind
from hybrisfs.state.stored_log import devices_of_branches
from hybrisfs.state.updates import LogRows
from sync import VersionVector

__all__ = ["Hearing", "VectorOf", "by_member_register", "is_by_member_register"]

_ACCUSED, _VOTER = VOTE.parts


def by_member_register(accused: bytes, voter: bytes) -> bytes:
    """The key in the table `said` of the vote that follows from a member register which *voter* wrote."""
    return vote_key(accused, voter) + MEMBER.prefix


def is_by_member_register(key: bytes) -> bool:
    """Whether a key of that table is that of such a vote."""
    return key[0] == VOTE and len(key) > VOTE.size


class Hearing:
    """Reads what was said."""

    def __init__(self, rows: LogRows, roles: Roles) -> None:
        self._db = rows.database
        self._vector_of: VectorOf = rows.vector_of
        self.roles: Final = roles
        self._basis: object = None
        self._outcome = NO_VOTES

    @property
    def outcome(self) -> Outcome:
        """What follows from all that is known."""
        votes = said_of_kind(self._db, VOTE)
        if not votes:
            return NO_VOTES
        first = founders(self._db)
        basis = votes, *self._others(), self._everybody(), first, self._readers(None, self._vector_of)
        if basis != self._basis:
            facts = self._facts(*basis, self._vector_of)
            verdict = judge(facts)
            voted = {accused for accused, _ in facts.votes}
            left = facts.roster.devices & voted - verdict.out
            self._basis, self._outcome = basis, Outcome(verdict, left, frozenset(facts.kits))
        return self._outcome

    @property
    def said_of_roles(self) -> int:
        """Rises with all that is said of roles, which is known here before the database has it."""
        return self.roles.count

    def knows(self, device: bytes) -> bool:
        """Whether the log has the admission or an update of a device, or the device is here from the
        beginning."""
        said = all_values(self._db, member_key(device))
        return (
            any(value and not Member.decode(value).removed for value in said)
            or device in self._everybody().values()
        )

    def verdict_with(self, voter: bytes, accused: Iterable[bytes], stance: Stance, clock: int) -> Verdict:
        """The outcome if *voter* took that stance about all *accused*, in an update with that clock."""
        readers = self._readers(None, self._vector_of)
        first = founders(self._db)
        facts = self._facts(
            said_of_kind(self._db, VOTE), *self._others(), self._everybody(), first, readers, self._vector_of
        )
        votes = {**facts.votes, **{(one, voter): Cast(stance, clock) for one in accused}}
        return judge(facts._replace(votes=votes))

    def verdict_for(self, seen: VersionVector, vector_of: VectorOf) -> Verdict:
        """The verdict for an update that had seen so much."""

        def known(rows: list[Said]) -> list[Said]:
            return [one for one in rows if one.clock <= seen[one.branch]]

        votes = known(said_of_kind(self._db, VOTE))
        if not votes:
            return Verdict(frozenset(), {})
        branches = {
            branch: device for branch, device in devices_of_branches(self._db).items() if seen[branch]
        }
        members, admissions, evidence = map(known, self._others())
        readers = self._readers(seen, vector_of)
        first = founders(self._db)
        return judge(self._facts(votes, members, admissions, evidence, branches, first, readers, vector_of))

    def stances(self) -> dict[tuple[bytes, bytes], Cast]:
        """The stance of each voter about each accused."""
        return _cast(said_of_kind(self._db, VOTE))

    def says_that_it_leaves(self, device: bytes) -> bool:
        """Whether the newest word of a device about itself is that it leaves the volume."""
        cast = self.stances().get((device, device))
        return cast is not None and cast.stance is Stance.REMOVE

    def _others(self) -> tuple[list[Said], list[Said], list[Said]]:
        """Beside votes: what is said of members and of their inviters, and what is proven against them."""
        return (
            said_of_kind(self._db, MEMBER),
            said_of_kind(self._db, ADMISSION),
            said_of_kind(self._db, EVIDENCE),
        )

    def _readers(self, seen: VersionVector | None, vector_of: VectorOf) -> frozenset[bytes]:
        """The devices that only read, for an update that has seen so much; None: for all that is known."""
        roles = self.roles
        return frozenset(one for one in roles.devices() if roles.role(one, seen, vector_of) is not Role.FULL)

    def _everybody(self) -> dict[bytes, bytes]:
        """The branches, and the devices that are here from the beginning, of which the log may say nothing
        yet."""
        first = devices_from_the_beginning(self._db, Membership.MEMBER)
        return {**{device: device for device in first}, **devices_of_branches(self._db)}

    @staticmethod
    def _facts(
        votes: list[Said],
        members: list[Said],
        admissions: list[Said],
        evidence: list[Said],
        branches: dict[bytes, bytes],
        first: frozenset[bytes],
        readers: frozenset[bytes],
        vector_of: VectorOf,
    ) -> Facts:
        lineage = trace(members, admissions, branches, vector_of, first)

        def knew(device: bytes, cast: Cast) -> bool:
            return lineage.had_seen(device, cast.branch, cast.clock)

        proven = {
            device for key, *_ in evidence if key == evidence_key(device := key[_ACCUSED], Misdeed.OFFENCE)
        }
        return Facts(lineage.roster, lineage.kits, _cast(votes), proven, lineage.saw, knew, readers)


def _cast(rows: list[Said]) -> dict[tuple[bytes, bytes], Cast]:
    """The votes that count. Of several votes of a voter the newest counts, and one in a vote register goes
    before all others. Of votes with one clock on different branches, the hardest counts."""
    found: dict[tuple[bytes, bytes], tuple[bool, Cast]] = {}
    for key, branch, clock, value in rows:
        if not value:
            continue
        own, pair = VOTE.has_form(key), (key[_ACCUSED], key[_VOTER])
        cast = Cast(Stance(value[0]), clock, branch)
        before = found.get(pair)
        if before is None or _rank(own, cast) > _rank(*before):
            found[pair] = own, cast
    return {pair: cast for pair, (_, cast) in found.items()}


def _rank(own: bool, cast: Cast) -> tuple[bool, int, int]:
    return (own, cast.clock, cast.stance) if own else (own, -cast.clock, cast.stance)
