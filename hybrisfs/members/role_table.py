"""What each device may do, by the registers of `hybrisfs.members.roles` that an update had seen."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection
from typing import Final, NamedTuple

from hybrisfs.kinds import ROLE
from hybrisfs.members.areas import Grounds, known_assignments
from hybrisfs.members.backing import Backing, Word
from hybrisfs.members.lineage import VectorOf
from hybrisfs.members.roles import Rights, Role, RoleRecord, whose_role
from hybrisfs.registers.values import Stamp
from hybrisfs.state.database import Reader
from hybrisfs.state.members import is_reserve, is_told_of_limits
from hybrisfs.state.registers import stamped_of_kind
from hybrisfs.state.stored_log import newest_by_branch, vector_of
from hybrisfs.topic import Topic
from sync import Bound, DecodeError, SignedUpdate, VersionVector

__all__ = ["MOST_WORDS", "Roles"]

MOST_WORDS: Final = 8
"""Of one author about one device, on a branch: older ones have no effect, or they would take time."""
_MOST_KEPT: Final = 256
_ALL: Final = Rights(Role.FULL)


class _Said(NamedTuple):
    """In the order of clocks."""

    clock: int
    key: bytes
    record: RoleRecord


class Roles:
    """What has been said in registers of roles; of the transaction, or of a snapshot."""

    def __init__(self, database: Reader) -> None:
        self._db = database
        self._backing = Backing(database)
        self._judged: dict[tuple[object, ...], list[Word]] = {}
        self.changed = Topic[[Collection[bytes]]]()
        """What these devices may do may be something else."""
        self._said: dict[bytes, dict[bytes, list[_Said]]] = {}  # by device and branch
        self._stamps: dict[bytes, list[Stamp]] = {}  # of the values of each register
        self.count = 0
        """How often words about roles have arrived."""
        self.overstepped: set[bytes] = set()
        """The readers and contributors that have signed what they may not, as far as it was heard since the
        start."""
        self.load()

    def load(self) -> None:
        """The registers hold other values, or go by other names."""
        self._is_told = is_told_of_limits(self._db)
        self._said.clear()
        self._stamps.clear()
        self.forget()
        for key, stamp, value in stamped_of_kind(self._db, ROLE):
            self._put(stamp, key, value)
        self.changed(self.devices())

    def __bool__(self) -> bool:
        """Whether the log says anything about roles."""
        return bool(self._said)

    def devices(self) -> Collection[bytes]:
        """Those of which a register tells."""
        return self._said.keys()

    def note(self, stamp: Stamp, key: bytes, value: bytes | None) -> None:
        """An update has written this to a register of a role."""
        self.count += 1
        self._judged.clear()
        self._put(stamp, key, value)
        self.changed((whose_role(key),))

    def kin_changed(self) -> None:
        """Admissions have changed; `forget` was called before."""
        if self._said:
            self.changed(self.devices())

    def forget(self) -> None:
        """What was found out before may not be so any more; `kin_changed` follows."""
        self.count += 1
        self._backing.forget()
        self._judged.clear()

    def _put(self, stamp: Stamp, key: bytes, value: bytes | None) -> None:
        try:
            said = _Said(stamp.clock, key, RoleRecord.decode(value or b""))
        except DecodeError:
            return
        self._stamps.setdefault(key, []).append(stamp)
        insort(self._said.setdefault(whose_role(key), {}).setdefault(stamp.writer, []), said)

    def are_awaited(self, device: bytes) -> bool:
        """Whether this *device* was told, when it was let in, that it is no full member, and has yet to hear
        from the log what it may do: until then it only reads."""
        return self._is_told and device not in self._said

    def was_written(self, key: bytes, seen: VersionVector) -> bool:
        """Whether an update with the vector *seen* had seen a value of this register."""
        return any(seen[stamp.writer] >= stamp.clock for stamp in self._stamps.get(key, ()))

    def role(self, device: bytes, seen: VersionVector | None, vector_of: VectorOf) -> Role:
        """What the device might do, for an update that had seen so much; None: for all that is known here."""
        return self.rights(device, seen, vector_of).role

    def rights(self, device: bytes, seen: VersionVector | None, vector_of: VectorOf) -> Rights:
        """The same, with the areas of a contributor."""
        said = [one.record for one in self._judge(device, seen, vector_of) if one.record.limits]
        if not said:
            return _ALL
        if any(one.role is Role.READER for one in said):
            return Rights(Role.READER)
        return Rights(Role.CONTRIBUTOR, frozenset.intersection(*(one.rights.areas for one in said)))

    def grounds(self, rights: Rights, seen: VersionVector | None) -> Grounds:
        """What a device with these rights may write to, which had seen so much; None: all that is known."""
        return Grounds(rights.areas, lambda keys: self.known_assignments(keys, seen))

    def known_assignments(self, keys: Collection[bytes], seen: VersionVector | None) -> set[bytes]:
        """See `areas.known_assignments`."""
        return known_assignments(self._db, keys, seen)

    def known_areas(self) -> set[bytes]:
        """The areas of which any register of a role has ever told."""
        every = (one for branches in self._said.values() for said in branches.values() for one in said)
        return {area.id for one in every for area in one.record.areas}

    def pending(self, device: bytes, vector_of: VectorOf) -> list[tuple[bytes, Rights]]:
        """The words that limit the device and have no effect yet: author and rights of each, in order."""
        words = self._words(device, None)
        pending = self._backing.pending(device, words, self._backing.lineage(None, vector_of), vector_of)
        now = self.rights(device, None, vector_of)
        found = {(one.author, one.record.rights) for one in pending if one.record.rights != now}
        return sorted(found, key=lambda one: (one[0], one[1].role, sorted(one[1].areas)))

    def may_lift(self, author: bytes, device: bytes, vector_of: VectorOf) -> bool:
        """Whether it has an effect when *author* says that the device may do all."""
        own = (
            one
            for by, said in self._said.get(device, {}).items()
            if self._backing.author(by) == author
            for one in said
        )
        return self._backing.may_lift(author, device, self._backing.lineage(None, vector_of)) or any(
            one.record.limits for one in own
        )

    def readers(self) -> set[bytes]:
        """The devices that are no full members, for all that is stored."""
        return {one for one in self._said if self.stored_role(one) is not Role.FULL}

    def stored_role(self, device: bytes) -> Role:
        """What the device may do, for all that is stored."""
        if device not in self._said:
            return Role.FULL
        return self.role(device, newest_by_branch(self._db), self.vector_of)

    def bounds(self, device: bytes, seen: VersionVector, vector_of: VectorOf) -> list[Bound]:
        """The updates on which those of the device must depend, for an update that has seen so much; none if
        it may do all. The word of its inviter stays among them when other words limit the device: else it
        could sign writes that it never might, as if it had seen nothing."""
        limits = [one for one in self._judge(device, seen, vector_of) if one.record.limits]
        if not limits:
            return []
        inviter = self._backing.lineage(seen, vector_of).kinship.inviter(device)
        earliest = [
            Word(Stamp(said[0].clock, branch), self._backing.author(branch), said[0].record)
            for branch, said in self._said[device].items()
            if said[0].clock <= seen[branch] and said[0].record.from_first and said[0].record.limits
        ]
        known = {one.stamp for one in limits}
        first = [one for one in earliest if one.author == inviter and one.stamp not in known]
        return [
            Bound(one.author, *one.stamp[::-1], one.record.from_first and one.author == inviter, one.seconds)
            for one in (*limits, *first)
        ]

    def binds(self, update: SignedUpdate) -> set[bytes]:
        """Whom the update limits of whom its writer had never said anything, for all that is known
        here."""
        found = {whose_role(key) for key, value in update.writes if key[0] == ROLE and _restricts(value)}
        writer = update.header.writer
        author = self._backing.author
        return {one for one in found if all(author(by) != writer for by in self._said.get(one, ()))}

    def vector_of(self, branch: bytes, clock: int) -> VersionVector | None:
        """The dependency vector of an update that is stored."""
        return vector_of(self._db, branch, clock)

    def _judge(self, device: bytes, seen: VersionVector | None, vector_of: VectorOf) -> list[Word]:
        """The word about the device that holds."""
        counts = self._counts(device, seen)
        if not any(counts) or is_reserve(self._db, device):
            return []
        lineage = self._backing.lineage(seen, vector_of)
        basis = device, lineage, *counts
        if basis not in self._judged:
            if len(self._judged) >= _MOST_KEPT:
                self._judged.clear()
            counting = self._backing.counting(device, self._words(device, seen), lineage, vector_of)
            self._judged[basis] = _latest(counting, vector_of)
        return self._judged[basis]

    def _words(self, device: bytes, seen: VersionVector | None) -> list[Word]:
        """The newest words about the device, up to the vector *seen*."""
        branches = self._said.get(device, {}).items()
        return [
            Word(Stamp(one.clock, branch), self._backing.author(branch), one.record)
            for (branch, said), count in zip(branches, self._counts(device, seen), strict=True)
            for one in said[max(0, count - MOST_WORDS) : count]
        ]

    def _counts(self, device: bytes, seen: VersionVector | None) -> list[int]:
        """How many of each branch the vector *seen* covers."""
        branches = self._said.get(device, {}).items()
        return [len(said) if seen is None else _seen(said, seen[branch]) for branch, said in branches]


def _latest(words: list[Word], vector_of: VectorOf) -> list[Word]:
    """Those that no other's author had seen."""
    newest: dict[bytes, int] = {}
    for one in words:
        newest[one.stamp.writer] = max(one.stamp.clock, newest.get(one.stamp.writer, 0))
    stamps = {Stamp(clock, branch) for branch, clock in newest.items()}
    vectors = [vector_of(*stamp[::-1]) for stamp in stamps if len(stamps) > 1]
    return [
        one
        for one in words
        if one.stamp in stamps
        and not any(vector is not None and vector[one.stamp.writer] >= one.stamp.clock for vector in vectors)
    ]


def _seen(said: list[_Said], clock: int) -> int:
    """How many were said up to this clock."""
    return len(said) if said[-1].clock <= clock else bisect_right(said, clock, key=lambda one: one.clock)


def _restricts(value: bytes | None) -> bool:
    try:
        return RoleRecord.decode(value or b"").role is not Role.FULL
    except DecodeError:
        return False
